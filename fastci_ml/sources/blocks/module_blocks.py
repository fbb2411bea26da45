"""The blocks of one file, and which of them a code object of that file belongs to."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastci_ml.records.evidence_kinds import BlockKind
from fastci_ml.sources.blocks.block import Block, ImportSeen

_MODULE = "<module>"
# Code objects without a name of their own; what holds them is looked up by line.
_ANONYMOUS = frozenset({"<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_LOCALS = ".<locals>"
_GENERIC = re.compile(r"<generic parameters of ([^>]*)>")
_REPEAT = re.compile(r"#\d+")
_DEFINED = (BlockKind.FUNCTION, BlockKind.CLASS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleBlocks:
    """Blocks of one file.

    Attributes
    ----------
    blocks : tuple of Block
        In file order: a function or class stands before what is in it.
    imports : tuple of ImportSeen
        All import statements, wherever they stand, by line.
    is_parsed : bool
        Whether the file is Python that this interpreter reads; if not there is one block for all of it.
    doc_fingerprint : str
        Of the module's docstring; empty without one.
    type_names : frozenset of str
        Type aliases and type parameters: code objects of these names compute their values.
    by_name : mapping of str to Block
        Blocks by their names, which are unique.
    """

    blocks: tuple[Block, ...]
    imports: tuple[ImportSeen, ...] = ()
    is_parsed: bool = True
    doc_fingerprint: str = ""
    type_names: frozenset[str] = frozenset()
    by_name: Mapping[str, Block] = field(init=False, repr=False, compare=False)
    _defined: Mapping[str, list[Block]] = field(init=False, repr=False, compare=False)
    _owned: Mapping[str, list[Block]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        defined: dict[str, list[Block]] = defaultdict(list)
        owned: dict[str, list[Block]] = defaultdict(list)
        for block in self.blocks:
            owned[block.owner].append(block)
            if block.kind in _DEFINED:
                defined[_qualname(block.name)].append(block)
        object.__setattr__(self, "by_name", {block.name: block for block in self.blocks})
        object.__setattr__(self, "_defined", dict(defined))
        object.__setattr__(self, "_owned", dict(owned))

    def owners(self, block: Block) -> tuple[Block, ...]:
        """Blocks around one, innermost first: a hit of a nested function is one of each around it."""
        around = []
        while block.owner:
            block = self.by_name[block.owner]
            around.append(block)
        return tuple(around)

    def at(self, qualname: str, first_line: int) -> Block | None:
        r"""Block that a code object of this file belongs to.

        Parameters
        ----------
        qualname : str
            Its ``co_qualname``.
        first_line : int
            Its ``co_firstlineno``.

        Returns
        -------
        Block or None
            The function or class of that name and line; for a lambda or comprehension the function or
            statement that holds it; the file's block where the file could not be parsed. None for a module's
            own code, and for what this file does not hold, or holds in several statements of one line.

        Examples
        --------
        >>> from fastci_ml.sources.blocks.reader import read_blocks
        >>> blocks = read_blocks(b"def f():\n    return lambda: 0\n")
        >>> blocks.at("f.<locals>.<lambda>", 2).name
        'f'
        """
        if qualname == _MODULE:
            return None
        if not self.is_parsed:
            return self.blocks[0]
        found = [block for block in self._defined.get(qualname, ()) if block.first_line == first_line]
        if found:
            # No two definitions can begin on one line.
            return found[0]
        return self._holding(qualname.split("."), first_line)

    def _holding(self, parts: list[str], line: int) -> Block | None:
        """What holds a code object that is no function's or class's own."""
        has_own_name = True
        while parts:
            name = ".".join(parts)
            around = [block for block in self._defined.get(name, ()) if _covers(block, line)]
            if around:
                break
            generic = _GENERIC.fullmatch(parts[-1])
            if generic is None and parts[-1] not in _ANONYMOUS and parts[-1] not in self.type_names:
                return None
            has_own_name = False
            parts = parts[:-1]
            if generic is not None:
                # The scope of type parameters, around their function, class or alias.
                for block in self._defined.get(".".join([*parts, generic.group(1)]), ()):
                    if block.first_line == line:
                        return block
            if parts and parts[-1] == "<locals>":
                parts = parts[:-1]
        else:
            return self._statement("", line)
        if has_own_name or len(around) != 1:
            return None
        return around[0] if around[0].kind is BlockKind.FUNCTION else self._in_class(around[0], line)

    def _in_class(self, around: Block, line: int) -> Block | None:
        """What holds a line of a class body: its statement there, or what the body is part of."""
        while around.kind is BlockKind.CLASS:
            found = self._statement(around.name, line)
            if found is not None:
                return found
            # A class in a loop or function has no statements of its own.
            loop = self._statement(around.owner, line, besides=around)
            if loop is not None or not around.owner:
                return loop
            around = self.by_name[around.owner]
        return around

    def _statement(self, owner: str, line: int, besides: Block | None = None) -> Block | None:
        """The one block of a module or class body that a line belongs to."""
        holding = [
            block for block in self._owned.get(owner, ()) if _covers(block, line) and block is not besides
        ]
        # A definition stands beside the effect of its decorators, and in the loop around it.
        defined = [block for block in holding if block.kind in _DEFINED]
        holding = defined or holding
        return holding[0] if len(holding) == 1 else None


def _covers(block: Block, line: int) -> bool:
    return block.first_line <= line <= block.last_line


def _qualname(name: str) -> str:
    """Name without its marks of repetition.

    Examples
    --------
    >>> _qualname("f#2.<locals>.g#3")
    'f.<locals>.g'
    """
    return _REPEAT.sub("", name) if "#" in name else name

"""The blocks of one file, and which of them a code object of that file belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastci_ml.records.evidence import BlockKind
from fastci_ml.sources.blocks.block import Block, ImportSeen

_MODULE = "<module>"
# Code objects without a name of their own; what holds them is looked up by line.
_ANONYMOUS = ("<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_LOCALS = ".<locals>"
_GENERIC = re.compile(r"<generic parameters of ([^>]*)>")
_REPEAT = re.compile(r"#\d+")
_NAMED = (BlockKind.FUNCTION, BlockKind.CLASS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleBlocks:
    """Blocks of one file.

    Attributes
    ----------
    blocks : tuple of Block
        In file order: a function or class stands before what is in it.
    imports : tuple of ImportSeen
        All import statements, wherever they stand.
    is_parsed : bool
        Whether the file is Python that this interpreter reads; if not there is one block for all of it.
    doc_fingerprint : str
        Of the module's docstring; empty without one.
    by_name : mapping of str to Block
        Blocks by their names, which are unique.
    """

    blocks: tuple[Block, ...]
    imports: tuple[ImportSeen, ...] = ()
    is_parsed: bool = True
    doc_fingerprint: str = ""
    by_name: Mapping[str, Block] = field(init=False, repr=False, compare=False)
    _by_code: Mapping[tuple[str, int], tuple[Block, ...]] = field(init=False, repr=False, compare=False)
    _by_owner: Mapping[str, tuple[Block, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_code: dict[tuple[str, int], tuple[Block, ...]] = {}
        by_owner: dict[str, tuple[Block, ...]] = {}
        for block in self.blocks:
            if block.kind in _NAMED:
                key = (_plain(block.name), block.first_line)
                by_code[key] = (*by_code.get(key, ()), block)
            by_owner[block.owner] = (*by_owner.get(block.owner, ()), block)
        object.__setattr__(self, "by_name", {block.name: block for block in self.blocks})
        object.__setattr__(self, "_by_code", by_code)
        object.__setattr__(self, "_by_owner", by_owner)

    def owners(self, block: Block) -> tuple[Block, ...]:
        """Blocks around one, innermost first: a hit of a nested function is one of each around it."""
        around = []
        while block.owner:
            block = self.by_name[block.owner]
            around.append(block)
        return tuple(around)

    def at(self, qualname: str, first_line: int) -> Block | None:
        """Block that a code object of this file belongs to.

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
            own code, and for what this file does not hold or holds in several blocks of one line.
        """
        if qualname == _MODULE:
            return None
        if not self.is_parsed:
            return self.blocks[0]
        found = self._by_code.get((qualname, first_line))
        if found is not None:
            return found[0] if len(found) == 1 else None
        if "<" not in qualname:
            return self._type_alias(qualname, first_line)
        return self._holding(qualname, first_line)

    def _holding(self, qualname: str, line: int) -> Block | None:
        head, _, last = qualname.rpartition(".")
        generic = _GENERIC.search(qualname)
        if generic is not None:
            # Type parameters are evaluated in a scope around their function or class, or in one of its own.
            name = qualname[: generic.start()] + generic.group(1)
            found = self._by_code.get((name, line))
            return found[0] if found else self._around(name.rpartition(".")[0], line)
        while last in _ANONYMOUS:
            head = head.removesuffix(_LOCALS)
            head, _, last = head.rpartition(".")
        return self._around(f"{head}.{last}" if head else last, line)

    def _type_alias(self, qualname: str, line: int) -> Block | None:
        """Values of type aliases and bounds of type parameters are code objects with plain names."""
        return self._around(qualname.rpartition(".")[0].removesuffix(_LOCALS), line)

    def _around(self, name: str, line: int) -> Block | None:
        """The function of that name around a line, or the statement of that module or class on it."""
        name = name.removesuffix(_LOCALS)
        if name:
            around = [
                block
                for (plain, _), found in self._by_code.items()
                if plain == name
                for block in found
                if block.first_line <= line <= block.last_line
            ]
            if len(around) != 1:
                return None
            if around[0].kind is BlockKind.FUNCTION:
                return around[0]
            owner = around[0]
            for outer in self.owners(owner):
                if outer.kind is BlockKind.FUNCTION:
                    return outer
            candidates = self._by_owner.get(owner.name, ())
        else:
            candidates = self._by_owner.get("", ())
        holding = [block for block in candidates if block.first_line <= line <= block.last_line]
        # A definition stands beside the statement of its decorators, which it holds as well.
        named = [block for block in holding if block.kind in _NAMED]
        holding = named or holding
        return holding[0] if len(holding) == 1 else None


def _plain(name: str) -> str:
    """Name without the marks of repetition, of any part.

    Examples
    --------
    >>> _plain("f#2.<locals>.g#3")
    'f.<locals>.g'
    """
    return _REPEAT.sub("", name) if "#" in name else name

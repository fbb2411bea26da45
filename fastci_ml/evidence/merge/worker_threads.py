"""What autograd runs on threads that a profile hook does not see: taken as run where its file was used.

Before Python 3.12 a hook belongs to one thread, and threads that C++ started have none: backward passes on
GPUs always run there.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastci_ml.evidence.merge.block_names import is_special, simple_name
from fastci_ml.evidence.merge.code_units import CodeUnits, SourceFile
from fastci_ml.evidence.merge.static_imports import StaticImports
from fastci_ml.records.evidence import UnitSeen
from fastci_ml.records.evidence_kinds import BlockKind
from fastci_ml.sources.blocks.block import Block

# The back ends that a thread of C++ escapes.
BLIND_BACKENDS = frozenset({"profile"})
_BACKWARD_NAMES = frozenset({"backward", "vjp", "jvp", "setup_context"})


class WorkerThreadRule:
    """Units that count as run by everyone who ran any unit of their file.

    Parameters
    ----------
    code_units : CodeUnits
        Files of the bundle.
    imports : StaticImports
        Where they import from.
    """

    def __init__(self, code_units: CodeUnits, imports: StaticImports) -> None:
        self._code_units = code_units
        self._imports = imports
        self._by_content: dict[int, frozenset[UnitSeen]] = {}
        self._names: dict[int, dict[str, list[Block]]] = {}
        self._targets: dict[int, dict[str, frozenset[str]]] = {}

    def of_file(self, number: int) -> frozenset[UnitSeen]:
        """Units that count as run where a file of this number was used."""
        file = self._code_units.files[number]
        found = self._by_content.get(id(file))
        if found is None:
            found = self._by_content[id(file)] = self._find(file)
        return found

    def _find(self, file: SourceFile) -> frozenset[UnitSeen]:
        """Backward passes and hooks of a file that uses torch, and what they call by name."""
        if file.blocks is None or not uses_torch(file):
            return frozenset()
        todo = [(file, block) for block in file.blocks.blocks if is_called_by_autograd(block)]
        found: dict[tuple[int, str], UnitSeen] = {}
        seen: set[tuple[int, str]] = set()
        while todo:
            place, block = todo.pop()
            if (id(place), block.name) in seen:
                continue
            seen.add((id(place), block.name))
            if block.kind is BlockKind.FUNCTION:
                found[id(place), block.name] = place.unit(block)
            todo.extend(self._called(place, block))
        return frozenset(found.values())

    def _called(self, file: SourceFile, block: Block) -> Iterator[tuple[SourceFile, Block]]:
        """What a block may call of its own file, and of those that it names by what they are imported as."""
        targets = self._targets.get(id(file))
        if targets is None:
            targets = self._targets[id(file)] = self._imports.by_name(file)
        paths = {path for name in targets.keys() & block.reads for path in targets[name]}
        places = [file, *(place for path in sorted(paths) for place in self._code_units.files_of(path))]
        for place in places:
            names = self._blocks_by_name(place)
            for name in names.keys() & block.reads:
                for other in names[name]:
                    yield place, other

    def _blocks_by_name(self, file: SourceFile) -> dict[str, list[Block]]:
        names = self._names.get(id(file))
        if names is None:
            names = self._names[id(file)] = {}
            for block in file.blocks.blocks if file.blocks is not None else ():
                for name in _names_of(block):
                    names.setdefault(name, []).append(block)
        return names


def _names_of(block: Block) -> tuple[str, ...]:
    if block.kind not in (BlockKind.FUNCTION, BlockKind.CLASS):
        return block.binds
    own = simple_name(block.name)
    # Methods that the language calls itself count with the class that they belong to.
    return (own, simple_name(block.owner)) if block.owner and is_special(own) else (own,)


def uses_torch(file: SourceFile) -> bool:
    """Whether a file imports torch or names it."""
    if file.blocks is None:
        return False
    return any(
        seen.module.partition(".")[0] == "torch" or "torch" in seen.names for seen in file.blocks.imports
    ) or any("torch" in block.reads for block in file.blocks.blocks)


def is_called_by_autograd(block: Block) -> bool:
    """Whether a function is one that autograd calls, by its name."""
    name = simple_name(block.name)
    return block.kind is BlockKind.FUNCTION and (name in _BACKWARD_NAMES or "hook" in name.lower())

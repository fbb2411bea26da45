"""From the code objects that a process entered to the units that they belong to."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from fastci_ml.evidence.bundle.reader import Bundle
from fastci_ml.evidence.merge.block_names import simple_name
from fastci_ml.evidence.merge.sources_at_hand import ParsedSources, SourceReader
from fastci_ml.records.evidence import FileSeen, UnitSeen
from fastci_ml.records.evidence_kinds import BlockKind, Gap
from fastci_ml.sources.blocks.block import Block
from fastci_ml.sources.blocks.module_blocks import ModuleBlocks

MODULE_CODE = "<module>"
_RESUMED = re.compile(r"torch_dynamo_resume_in_(\w+)_at_\d+").fullmatch
_NO_UNITS: frozenset[UnitSeen] = frozenset()


@dataclass(slots=True)
class SourceFile:
    """One content of a Python file that a bundle speaks of.

    Attributes
    ----------
    seen : FileSeen
        Its path and blob id.
    blocks : ModuleBlocks or None
        None where its source is not at hand.
    """

    seen: FileSeen
    blocks: ModuleBlocks | None
    _units: dict[str, UnitSeen] = field(default_factory=dict)
    _functions: dict[str, list[Block]] | None = None

    def unit(self, block: Block) -> UnitSeen:
        """Unit of a block: one object for each, which makes sets of them fast."""
        unit = self._units.get(block.name)
        if unit is None:
            unit = UnitSeen(
                path=self.seen.path, name=block.name, kind=block.kind, fingerprint=block.fingerprint
            )
            self._units[block.name] = unit
        return unit

    def posed_as(self, name: str, line: int) -> Block | None:
        """Function that generated code passes for, by its last name and a line.

        Wrappers that libraries write at run time take the name and place of what they wrap (Hypothesis), and
        compilers make functions of the rest of one (dynamo, behind a graph break).
        """
        assert self.blocks is not None
        last = name.rpartition(".")[2]
        resumed = _RESUMED(last)
        while resumed is not None:
            last = resumed[1]
            resumed = _RESUMED(last)
        if self._functions is None:
            self._functions = {}
            for block in self.blocks.blocks:
                if block.kind is BlockKind.FUNCTION:
                    self._functions.setdefault(simple_name(block.name), []).append(block)
        named = self._functions.get(last, [])
        found = [block for block in named if block.first_line == line]
        if not found and _RESUMED(name.rpartition(".")[2]) is not None:
            found = [block for block in named if block.first_line <= line <= block.last_line]
        return found[0] if len(found) == 1 else None


class CodeUnits:
    """What the code objects of one bundle are.

    Parameters
    ----------
    bundle : Bundle
        Its files and code objects.
    parsed : ParsedSources
        Blocks that are known already.
    sources : SourceReader
        Where sources are found.

    Attributes
    ----------
    files : dict of int to SourceFile
        By file number, the Python files that ran or were imported.
    blocks : dict of int to Block
        By code number, the block that it belongs to; none for a module's own code and for gaps.
    units : dict of int to frozenset of UnitSeen
        By code number: its block and the functions around it. A class body is none: like a module's own
        code it is run by the import, and its functions are units of their own.
    gaps : dict of int to (Gap, str)
        By code number, why it has no unit that could be compared.
    distinct_files : list of SourceFile
        Each content once.
    """

    def __init__(self, bundle: Bundle, parsed: ParsedSources, sources: SourceReader) -> None:
        self.bundle = bundle
        self.files: dict[int, SourceFile] = {}
        self.blocks: dict[int, Block] = {}
        self.units: dict[int, frozenset[UnitSeen]] = {}
        self.gaps: dict[int, tuple[Gap, str]] = {}
        by_content: dict[FileSeen, SourceFile] = {}
        for number in _python_files(bundle):
            seen = bundle.files[number]
            file = by_content.get(seen)
            if file is None:
                blocks = None if seen.blob is None else parsed.blocks(seen.path, seen.blob, sources)
                file = by_content[seen] = SourceFile(seen, blocks)
            self.files[number] = file
        self.distinct_files = list(by_content.values())
        self._by_path: dict[str, list[SourceFile]] = {}
        for file in self.distinct_files:
            self._by_path.setdefault(file.seen.path, []).append(file)
        changed = self._changed_paths()
        for number, code in bundle.codes.items():
            self._resolve(number, self.files[code.file], code.name, code.line)
            path = self.files[code.file].seen.path
            if path in changed:
                self.gaps.setdefault(number, (Gap.SOURCE_CHANGED, path))

    def files_of(self, path: str) -> list[SourceFile]:
        """Contents that a path had."""
        return self._by_path.get(path, [])

    def _changed_paths(self) -> set[str]:
        """Paths of which code of more than one content ran: which of them ran when is not known."""
        ran = {self.files[code.file].seen for code in self.bundle.codes.values()}
        return {path for path, n_contents in Counter(seen.path for seen in ran).items() if n_contents > 1}

    def _resolve(self, number: int, file: SourceFile, name: str, line: int) -> None:
        self.units[number] = _NO_UNITS
        if file.blocks is None:
            self.gaps[number] = (Gap.SOURCE_MISSING, file.seen.path)
            return
        if name == MODULE_CODE:
            return
        block = file.blocks.at(name, line) or file.posed_as(name, line)
        if block is None:
            self.gaps[number] = (Gap.SOURCE_CHANGED, file.seen.path)
            return
        self.blocks[number] = block
        ran = [owner for owner in file.blocks.owners(block) if owner.kind is BlockKind.FUNCTION]
        if block.kind is not BlockKind.CLASS:
            ran.append(block)
        self.units[number] = frozenset(map(file.unit, ran))


def _python_files(bundle: Bundle) -> list[int]:
    """Numbers of the files that hold code that ran, or that were imported."""
    numbers = {code.file for code in bundle.codes.values()}
    imported = {file for capture in bundle.captures.values() for file in capture.imports}
    imported.update(file for edge in bundle.edges for file in edge)
    # Not everything that is imported is Python; what ran is, whatever its name.
    numbers.update(number for number in imported if bundle.files[number].path.endswith(".py"))
    return sorted(numbers)

"""Who may have been served from a module-level cache, and what stands behind it.

A hit of a cache makes no call of what filled it. So whoever enters a memo, or runs code that uses its name
or that of what it fills, is taken to stand on all that the memo may have called, as far as it was executed
before in the same process. Calls are followed by names alone: too much is found rather than too little. What
was read where the memo was filled belongs to it as well.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from fastci_ml.evidence.bundle.reader import Bundle
from fastci_ml.evidence.merge.bits import bits
from fastci_ml.evidence.merge.block_names import is_special, simple_name
from fastci_ml.evidence.merge.capture_sums import CaptureSum
from fastci_ml.evidence.merge.code_units import CodeUnits, SourceFile
from fastci_ml.evidence.merge.memo_fills import FIELDS, MemoFills
from fastci_ml.evidence.merge.name_graph import NameGraph
from fastci_ml.records.evidence import UnitSeen
from fastci_ml.records.evidence_kinds import BlockKind, CaptureKind, Gap
from fastci_ml.sources.blocks.block import Block
from fastci_ml.sources.blocks.memos import is_memo_decorator

# Tests come in order of node id, and neighbours mostly get the same.
_N_KEPT = 8


class MemoRule:
    """The memos of one bundle.

    Parameters
    ----------
    code_units : CodeUnits
        What its code objects are.

    Attributes
    ----------
    code_memos : dict of int to int
        By code number, a bit for each memo that who runs it may be served from.
    """

    def __init__(self, code_units: CodeUnits) -> None:
        bundle = code_units.bundle
        first_run = _first_runs(bundle)
        self._code_units = code_units
        # Units by the time of their first run: those before a moment are the lower bits.
        firsts: dict[UnitSeen, int] = {}
        for code, capture in sorted(first_run.items(), key=lambda item: item[1]):
            for unit in code_units.units[code]:
                firsts.setdefault(unit, capture)
        self._units = list(firsts)
        self._unit_firsts = list(firsts.values())
        memos = sorted(_memos(code_units, firsts), key=lambda memo: memo[0])
        self._memo_firsts = [first for first, _, _ in memos]
        self._triggers = _Triggers(code_units, [(file, block) for _, file, block in memos])
        self.code_memos = self._triggers.of_codes() if memos else {}
        self._fills = MemoFills(
            bundle,
            self._triggers.entered_by_codes(),
            {code: simple_name(block.name) for code, block in code_units.blocks.items()} if memos else {},
            [block.reads - {simple_name(block.name)} for _, _, block in memos],
        )
        self._reach = self._reaches([(file, block) for _, file, block in memos]) if memos else []
        self._test_numbers = sorted(
            number for number, capture in bundle.captures.items() if capture.kind is CaptureKind.TEST
        )
        self._kept: dict[int, frozenset[UnitSeen]] = {}

    def _reaches(self, memos: list[tuple[SourceFile, Block]]) -> list[int]:
        """For each memo, bits of the units behind it: itself, what it may call, and what filled that."""
        unit_bits = {unit: bit for bit, unit in enumerate(self._units)}
        graph = NameGraph(self._code_units.distinct_files, unit_bits)
        own = [
            1 << bit if (bit := unit_bits.get(file.unit(block))) is not None else 0 for file, block in memos
        ]
        for number, (_, block) in enumerate(memos):
            # Code that uses what a memo fills stands on the memo, though it does not call it.
            for name in self._triggers.names[number]:
                graph.add(name, block.reads, own[number])
        return [mask | graph.reach(block.reads) for mask, (_, block) in zip(own, memos, strict=True)]

    def of_module(self, path: str) -> int:
        """Memos that the statements of a module may have been served from."""
        return self._triggers.of_statements(path)

    def served(self, memos: int, capture: int) -> CaptureSum:
        """What stands behind memos, as far as it was there before a capture ended.

        Parameters
        ----------
        memos : int
            Bits of memos.
        capture : int
            Number of the capture that was served.
        """
        # A capture ends before the next test begins; what it opened itself has higher numbers than its own.
        following = bisect_left(self._test_numbers, capture + 1)
        end = self._test_numbers[following] if following < len(self._test_numbers) else None
        n_memos = len(self._memo_firsts) if end is None else bisect_left(self._memo_firsts, end)
        n_units = len(self._units) if end is None else bisect_left(self._unit_firsts, end)
        reach = 0
        things: dict[str, set[Any]] = {field: set() for field in FIELDS}
        gaps: dict[tuple[Gap, str], None] = {}
        for memo in bits(memos & ((1 << n_memos) - 1)):
            reach |= self._reach[memo]
            for _, field, thing in self._fills.things(memo, end):
                things[field].add(thing)
            gaps |= dict.fromkeys(self._fills.gaps(memo, end))
        return CaptureSum(
            units=self._members(reach & ((1 << n_units) - 1)),
            reads=frozenset(things["reads"]),
            listings=frozenset(things["listings"]),
            environ=frozenset(things["environ"]),
            gaps=gaps,
        )

    def _members(self, mask: int) -> frozenset[UnitSeen]:
        known = self._kept.get(mask)
        if known is None:
            if len(self._kept) >= _N_KEPT:
                del self._kept[next(iter(self._kept))]
            known = self._kept[mask] = frozenset([self._units[bit] for bit in bits(mask)])
        return known


def _first_runs(bundle: Bundle) -> dict[int, int]:
    """By code number, the capture that it first ran in: captures are numbered as they began."""
    first: dict[int, int] = {}
    for number in sorted(bundle.captures):
        for code in bundle.captures[number].codes:
            first.setdefault(code, number)
    return first


def _memos(code_units: CodeUnits, firsts: dict[UnitSeen, int]) -> Iterator[tuple[int, SourceFile, Block]]:
    """Memos that ran, with their first runs. What a wrapper is bound to counts from the beginning."""
    covered = _seen_exactly(code_units)
    for file in code_units.distinct_files:
        for block in file.blocks.blocks if file.blocks is not None else ():
            if not block.is_memo:
                continue
            if block.kind is not BlockKind.FUNCTION:
                yield 0, file, block
                continue
            unit = file.unit(block)
            if unit in firsts and unit not in covered:
                yield firsts[unit], file, block


def _seen_exactly(code_units: CodeUnits) -> set[UnitSeen]:
    """Functions whose cache was watched: whoever was served from it uses the capture of its misses."""
    covered = set()
    for capture in code_units.bundle.captures.values():
        if capture.kind is CaptureKind.CACHE:
            for code in capture.codes & code_units.blocks.keys():
                block = code_units.blocks[code]
                file = code_units.files[code_units.bundle.codes[code].file]
                if f"{file.seen.path}::{code_units.bundle.codes[code].name}" == capture.label:
                    covered.add(file.unit(block))
    return covered


class _Triggers:
    """Which names say that a memo may have been asked.

    Attributes
    ----------
    names : list of frozenset of str
        For each memo.
    """

    def __init__(self, code_units: CodeUnits, memos: list[tuple[SourceFile, Block]]) -> None:
        self._code_units = code_units
        self.names: list[frozenset[str]] = []
        self._by_name: dict[str, int] = {}
        self._by_unit: dict[UnitSeen, int] = {}
        names: dict[int, _FileNames] = {}
        for number, (file, block) in enumerate(memos):
            bit = 1 << number
            self._by_unit[file.unit(block)] = bit
            if id(file) not in names:
                names[id(file)] = _FileNames.of(file)
            self.names.append(_asked_by(block, names[id(file)]))
            for name in self.names[number]:
                self._by_name[name] = self._by_name.get(name, 0) | bit

    def of_names(self, names: Iterable[str]) -> int:
        found = 0
        for name in self._by_name.keys() & names:
            found |= self._by_name[name]
        return found

    def of_codes(self) -> dict[int, int]:
        by_block: dict[tuple[int, str], int] = {}
        found = {}
        for code, block in self._code_units.blocks.items():
            file = self._code_units.files[self._code_units.bundle.codes[code].file]
            key = (id(file), block.name)
            if key not in by_block:
                by_block[key] = self.of_names(block.reads) | self._by_unit.get(file.unit(block), 0)
            if by_block[key]:
                found[code] = by_block[key]
        return found

    def entered_by_codes(self) -> dict[int, int]:
        """By code number, the bit of the memo that it is."""
        found = {}
        for code, block in self._code_units.blocks.items():
            if block.is_memo:
                file = self._code_units.files[self._code_units.bundle.codes[code].file]
                bit = self._by_unit.get(file.unit(block))
                if bit is not None:
                    found[code] = bit
        return found

    def of_statements(self, path: str) -> int:
        found = 0
        for file in self._code_units.files_of(path):
            for block in file.blocks.blocks if file.blocks is not None else ():
                if block.kind is not BlockKind.FUNCTION:
                    found |= self.of_names(block.reads)
        return found


@dataclass(frozen=True, slots=True)
class _FileNames:
    """Names of one file that tell what its functions can fill.

    Attributes
    ----------
    bound : frozenset of str
        What its statements bind, imports aside.
    functions : frozenset of str
        What its functions and methods are called.
    """

    bound: frozenset[str]
    functions: frozenset[str]

    @classmethod
    def of(cls, file: SourceFile) -> Self:
        blocks = () if file.blocks is None else file.blocks.blocks
        lines = set() if file.blocks is None else {seen.line for seen in file.blocks.imports}
        return cls(
            frozenset(
                name
                for block in blocks
                if block.kind is not BlockKind.FUNCTION and block.first_line not in lines
                for name in block.binds
            ),
            frozenset(simple_name(block.name) for block in blocks if block.kind is BlockKind.FUNCTION),
        )


def _asked_by(block: Block, names: _FileNames) -> frozenset[str]:
    """Names by which a memo, or what it fills, is asked.

    Only a wrapper answers without entering the function, so only a decorated one is asked by its own name. Of
    attributes those count that are private by name: others are read everywhere, and mostly through the memo.
    """
    if block.kind is not BlockKind.FUNCTION:
        return frozenset(block.binds)
    filled = {name for name in block.reads if name.startswith("_") and not is_special(name)}
    asked = (filled - names.functions) | (block.reads & names.bound)
    if any(map(is_memo_decorator, block.reads)):
        asked.add(simple_name(block.name))
    return frozenset(asked)

"""What code may call, by names alone: from a word to the blocks it may mean, and on to the words of those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fastci_ml.evidence.merge.block_names import is_special, simple_name
from fastci_ml.evidence.merge.code_units import SourceFile
from fastci_ml.evidence.merge.reachable import settle
from fastci_ml.records.evidence import UnitSeen
from fastci_ml.records.evidence_kinds import BlockKind
from fastci_ml.sources.blocks.block import Block


@dataclass(slots=True)
class _Word:
    """A word that names some block.

    Attributes
    ----------
    mask : int
        Bits of the units that it may mean; once it is settled, of all that those may call.
    reads : set of str
        Words of the blocks that it may mean.
    """

    mask: int = 0
    reads: set[str] = field(default_factory=set)


class NameGraph:
    """Words of the files of one bundle.

    Parameters
    ----------
    files : iterable of SourceFile
        Each content once.
    unit_bits : mapping of UnitSeen to int
        Place of the bit of each unit that ran; functions that did not run are no way to those that did.
    """

    def __init__(self, files: Iterable[SourceFile], unit_bits: Mapping[UnitSeen, int]) -> None:
        self._unit_bits = unit_bits
        self._words: dict[str, _Word] = {}
        for file in files:
            for block in file.blocks.blocks if file.blocks is not None else ():
                self._add_block(file, block)
        self._settled: dict[str, int] = {}

    def _add_block(self, file: SourceFile, block: Block) -> None:
        if block.kind is BlockKind.FUNCTION:
            bit = self._unit_bits.get(file.unit(block))
            if bit is None:
                return
            name = simple_name(block.name)
            self.add(name, block.reads, 1 << bit)
            if is_special(name) and block.owner:
                # Whoever makes an object, or uses one, may call these without naming them.
                self.add(simple_name(block.owner), block.reads, 1 << bit)
        elif block.kind is BlockKind.CLASS:
            self.add(simple_name(block.name), block.reads, 0)
        else:
            for name in block.binds:
                self.add(name, block.reads, 0)

    def add(self, name: str, reads: Iterable[str], mask: int) -> None:
        """Say that a word may mean something with these words and bits."""
        word = self._words.get(name)
        if word is None:
            word = self._words[name] = _Word()
        word.mask |= mask
        word.reads.update(reads)

    def reach(self, reads: Iterable[str]) -> int:
        """Bits of all units that code with these words may come to call."""
        found = 0
        for name in self._words.keys() & reads:
            if name not in self._settled:
                settle(name, self._successors, self._mask, self._settled)
            found |= self._settled[name]
        return found

    def _successors(self, name: str) -> Iterable[str]:
        return self._words.keys() & self._words[name].reads

    def _mask(self, name: str) -> int:
        return self._words[name].mask

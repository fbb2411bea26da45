"""Records of one lane and scope on their way into a segment: an inverted index in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from fastci_ml.records.evidence import EvidenceRecord, FileSeen, RunFacts, UnitSeen
from fastci_ml.records.evidence_kinds import Gap

_K = TypeVar("_K")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """A record without what is in posting lists."""

    node_id: str
    commit: str
    recorded_us: int
    backend: str
    environ: frozenset[str]
    native_readers: tuple[str, ...]
    gaps: tuple[tuple[Gap, str], ...]
    facts: RunFacts

    @property
    def is_complete(self) -> bool:
        """Whether it may narrow a selection."""
        return not self.gaps


@dataclass(slots=True)
class Draft:
    """A segment in memory; record number n is `rows[n - 1]`, and arrays hold numbers, ascending."""

    rows: list[RecordRow] = field(default_factory=list)
    units: dict[UnitSeen, array[int]] = field(default_factory=dict)
    reads: dict[FileSeen, array[int]] = field(default_factory=dict)
    listings: dict[FileSeen, array[int]] = field(default_factory=dict)
    roots: dict[str, array[int]] = field(default_factory=dict)

    def add(self, record: EvidenceRecord) -> None:
        """Add a record under the next number."""
        self.rows.append(
            RecordRow(
                node_id=record.node_id,
                commit=record.commit,
                recorded_us=record.recorded_us,
                backend=record.backend,
                environ=record.environ,
                native_readers=record.native_readers,
                gaps=record.gaps,
                facts=record.facts,
            )
        )
        number = len(self.rows)
        _note(self.units, record.units, number)
        _note(self.reads, record.reads, number)
        _note(self.listings, record.listings, number)
        _note(self.roots, record.roots, number)


def _note(index: dict[_K, array[int]], things: Iterable[_K], number: int) -> None:
    for thing in things:
        numbers = index.get(thing)
        if numbers is None:
            index[thing] = array("I", (number,))
        else:
            numbers.append(number)


def drafts_of(records: Iterable[EvidenceRecord]) -> dict[tuple[str, str], Draft]:
    """Drafts by lane and scope, in their order of appearance."""
    drafts: dict[tuple[str, str], Draft] = {}
    for record in records:
        drafts.setdefault((record.lane, record.scope), Draft()).add(record)
    return drafts

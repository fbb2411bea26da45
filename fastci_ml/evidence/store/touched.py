"""Which records touched what: the answer to a query."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.store.postings import unpack
from fastci_ml.evidence.store.segments import Segment
from fastci_ml.evidence.store.texts import from_text
from fastci_ml.evidence.store.union import unite

K = TypeVar("K", bound=Hashable)
_MARKS = 500


class Touched(Generic[K]):
    """Records by what they touched; lists stay packed until they are asked for.

    Record ids hold within one state of the store: use them inside of one `EvidenceStore.snapshot`.

    Parameters
    ----------
    segments : sequence of Segment
        Those that were looked into.
    lists : mapping of K to list of (int, bytes)
        Posting lists by what was touched: place in `segments`, packed list.
    """

    def __init__(self, segments: Sequence[Segment], lists: Mapping[K, list[tuple[int, bytes]]]) -> None:
        self._segments = segments
        self._lists = lists

    @property
    def keys(self) -> list[K]:
        """What was touched by any record, dead ones included."""
        return list(self._lists)

    def record_ids(self, keys: Iterable[K] | None = None) -> array[int]:
        """Records in force that touched any of `keys`, or anything asked for; ascending."""
        by_segment: dict[int, list[bytes]] = {}
        chosen = self._lists.values() if keys is None else (self._lists.get(key, []) for key in keys)
        for lists in chosen:
            for place, blob in lists:
                by_segment.setdefault(place, []).append(blob)
        found = []
        for place in sorted(by_segment):
            segment = self._segments[place]
            found.append(unite(by_segment[place], segment.dead, segment.n_records, segment.base))
        # Mostly there is one large segment: it is not copied.
        if not found:
            return array("q")
        for more in found[1:]:
            found[0].extend(more)
        return found[0]

    def reasons(self) -> dict[int, list[K]]:
        """For each record in force that touched anything, what; in order of record id."""
        found: dict[int, list[K]] = {record_id: [] for record_id in self.record_ids()}
        for key, lists in self._lists.items():
            for place, blob in lists:
                base = self._segments[place].base
                for number in unpack(blob):
                    reasons = found.get(base + number)
                    # A test may have executed several versions that differ from the head.
                    if reasons is not None and (not reasons or reasons[-1] != key):
                        reasons.append(key)
        return found


def node_ids_of(connection: sqlite3.Connection, record_ids: Sequence[int]) -> list[str]:
    """Tests of records, in their order.

    Raises
    ------
    EvidenceError
        If a record is no more: the store was written to since it was found.
    """
    found: dict[int, str] = {}
    for first in range(0, len(record_ids), _MARKS):
        some = record_ids[first : first + _MARKS]
        marks = ", ".join("?" * len(some))
        rows = connection.execute(
            "SELECT r.id, f.path, t.rest FROM record r JOIN test t ON t.id = r.test "  # noqa: S608
            f"JOIN file f ON f.id = t.file WHERE r.id IN ({marks})",
            some,
        )
        found.update((record_id, from_text(path) + from_text(rest)) for record_id, path, rest in rows)
    if len(found) < len(set(record_ids)):
        raise EvidenceError(
            "the evidence was changed while it was read", hint="repeat the command when no merge is running"
        )
    return [found[record_id] for record_id in record_ids]

"""What is in the store, in figures, for `status` and `doctor`."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fastci_ml.evidence.store import schema
from fastci_ml.evidence.store.reading import RecordHead, read_heads
from fastci_ml.records.evidence_kinds import Gap

_N_WORST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteTest:
    """A test whose newest record in a lane and scope is not complete.

    Attributes
    ----------
    node_id, lane, scope : str
        Which.
    gaps : tuple of (Gap, str)
        Why.
    complete_us : int or None
        When its last complete record was made, microseconds since the epoch, UTC; None for never.
    """

    node_id: str
    lane: str
    scope: str
    gaps: tuple[tuple[Gap, str], ...]
    complete_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSummary:
    """The store in figures.

    Attributes
    ----------
    n_tests : int
        Tests with a record in force, of any lane and scope.
    n_records : dict of (str, str) to int
        Records in force by lane and scope.
    n_complete : dict of (str, str) to int
        By lane and scope, tests whose newest record is complete.
    n_incomplete : dict of (str, str) to int
        By lane and scope, tests whose newest record is not.
    gaps : dict of Gap to int
        Tests, one for each lane and scope, whose newest record has the gap; most frequent first.
    worst : tuple of IncompleteTest
        At most ten: those never complete first, by number of gaps, then those that are it the longest.
    n_bundles : int
        Bundles merged.
    n_segments : int
        Segments, over all lanes and scopes.
    n_dead : int
        Records that were superseded or dropped, and still take space.
    n_bytes : int
        Size of the file.
    schema : int
        Version of the tables.
    newest_us : int or None
        Time of the newest record.
    """

    n_tests: int
    n_records: dict[tuple[str, str], int]
    n_complete: dict[tuple[str, str], int]
    n_incomplete: dict[tuple[str, str], int]
    gaps: dict[Gap, int]
    worst: tuple[IncompleteTest, ...]
    n_bundles: int
    n_segments: int
    n_dead: int
    n_bytes: int
    schema: int
    newest_us: int | None

    @property
    def complete_ratio(self) -> float | None:
        """Share of tests, one for each lane and scope, whose newest record is complete; None without any."""
        n_complete, n_incomplete = sum(self.n_complete.values()), sum(self.n_incomplete.values())
        return n_complete / (n_complete + n_incomplete) if n_complete + n_incomplete else None


def summarize(connection: sqlite3.Connection) -> StoreSummary:
    """Figures of the store, in one state of it."""
    by_test: dict[tuple[str, str, str], list[RecordHead]] = {}
    n_records: Counter[tuple[str, str]] = Counter()
    newest_us = None
    for head in read_heads(connection, None):
        by_test.setdefault((head.node_id, head.lane, head.scope), []).append(head)
        n_records[head.lane, head.scope] += 1
        newest_us = head.recorded_us if newest_us is None else max(newest_us, head.recorded_us)
    n_complete: Counter[tuple[str, str]] = Counter()
    incomplete = []
    for (node_id, lane, scope), heads in by_test.items():
        newest = max(heads, key=lambda head: (head.recorded_us, head.record_id))
        if not newest.gaps:
            n_complete[lane, scope] += 1
            continue
        complete_us = max((head.recorded_us for head in heads if not head.gaps), default=None)
        incomplete.append(
            IncompleteTest(node_id=node_id, lane=lane, scope=scope, gaps=newest.gaps, complete_us=complete_us)
        )
    gaps = Counter(gap for test in incomplete for gap in dict.fromkeys(gap for gap, _ in test.gaps))
    n_segments, n_dead = connection.execute(
        "SELECT count(*), coalesce(sum(n_dead), 0) FROM segment"
    ).fetchone()
    (n_bundles,) = connection.execute("SELECT count(*) FROM bundle").fetchone()
    return StoreSummary(
        n_tests=len({node_id for node_id, _, _ in by_test}),
        n_records=dict(sorted(n_records.items())),
        n_complete=dict(sorted(n_complete.items())),
        n_incomplete=dict(sorted(Counter((test.lane, test.scope) for test in incomplete).items())),
        gaps=dict(sorted(gaps.items(), key=lambda item: (-item[1], item[0]))),
        worst=tuple(_worst(incomplete)),
        n_bundles=n_bundles,
        n_segments=n_segments,
        n_dead=n_dead,
        n_bytes=n_bytes(connection),
        schema=schema.VERSION,
        newest_us=newest_us,
    )


def _worst(incomplete: Sequence[IncompleteTest]) -> list[IncompleteTest]:
    return sorted(
        incomplete,
        key=lambda test: (
            test.complete_us is not None,
            test.complete_us or 0,
            -len(test.gaps),
            test.node_id,
            test.lane,
            test.scope,
        ),
    )[:_N_WORST]


def n_bytes(connection: sqlite3.Connection) -> int:
    """Size of the file."""
    (n_pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    return int(n_pages) * int(page_bytes)

"""Rewriting segments of one lane and scope as one, without their dead records."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, groupby
from operator import itemgetter

from fastci_ml.evidence.store.postings import pack, unpack
from fastci_ml.evidence.store.schema import posting_key, posting_keys, role_of, thing_of
from fastci_ml.evidence.store.segments import Segment, add_segment, drop, segments_of

# A query looks into each segment, so there are few.
MAX_SEGMENTS = 8
_SELECT = "SELECT id, ids FROM posting WHERE id >= ? AND id < ? ORDER BY id"


def compact_overdue(connection: sqlite3.Connection, lane: int, scope: str) -> int:
    """Rewrite what is too much of segments, or mostly dead.

    Returns
    -------
    int
        Segments that were rewritten.
    """
    segments = segments_of(connection, lane, scope)
    if len(segments) > MAX_SEGMENTS:
        # From the newest back, as long as the next is not much larger than those together: so a record is
        # rewritten as often as the store doubles, not with each eighth merge.
        first = len(segments) - 1
        n_records = segments[first].n_records
        while first > 0 and (segments[first - 1].n_records <= 2 * n_records or len(segments) - first < 2):
            first -= 1
            n_records += segments[first].n_records
        return _rewrite(connection, segments[first:])
    mostly_dead = [segment for segment in segments if 2 * segment.n_dead > segment.n_records]
    return sum(_rewrite(connection, [segment]) for segment in mostly_dead)


def compact_scope(connection: sqlite3.Connection, lane: int, scope: str) -> int:
    """Rewrite all segments of a lane and scope as one, unless they are already; returns how many."""
    segments = segments_of(connection, lane, scope)
    if len(segments) < 2 and not any(segment.n_dead for segment in segments):
        return 0
    return _rewrite(connection, segments)


def _rewrite(connection: sqlite3.Connection, segments: Sequence[Segment]) -> int:
    n_records = sum(segment.n_records - segment.n_dead for segment in segments)
    new = add_segment(connection, segments[0].lane, segments[0].scope, n_records, ())
    # For each segment, the new number of each of its numbers; 0 for dead ones.
    maps: dict[int, list[int]] = {}
    next_number = 1
    for segment in segments:
        dead = frozenset() if segment.dead is None else frozenset(unpack(segment.dead))
        numbers = [0]
        for number in range(1, segment.n_records + 1):
            numbers.append(0 if number in dead else next_number)
            next_number += number not in dead
        maps[segment.id] = numbers
        connection.executemany(
            "UPDATE record SET id = ? WHERE id = ?",
            ((new.base + to, segment.base + number) for number, to in enumerate(numbers) if to),
        )
    connection.executemany(
        "INSERT INTO posting (id, ids) VALUES (?, ?)",
        (
            (posting_key(new.id, role, thing), pack(ids))
            for role, thing, ids in _merged(connection, segments, maps)
            if ids
        ),
    )
    for segment in segments:
        drop(connection, segment)
    return len(segments)


def _merged(
    connection: sqlite3.Connection, segments: Sequence[Segment], maps: dict[int, list[int]]
) -> Iterator[tuple[int, int, list[int]]]:
    """Role, thing and new numbers of each posting list, in the order of the keys."""
    # What is inserted meanwhile has higher keys, so these cursors never come to it.
    streams = [
        _lists(connection.execute(_SELECT, posting_keys(segment.id)), maps[segment.id])
        for segment in segments
    ]
    # Rows with equal keys come in the order of the segments, and so do their new numbers.
    for (role, thing), group in groupby(heapq.merge(*streams, key=itemgetter(0)), key=itemgetter(0)):
        ids: list[int] = []
        for _, numbers, blob in group:
            moved = list(map(numbers.__getitem__, unpack(blob)))
            ids.extend(compress(moved, moved))
        yield role, thing, ids


def _lists(
    rows: Iterable[tuple[int, bytes]], numbers: list[int]
) -> Iterator[tuple[tuple[int, int], list[int], bytes]]:
    for key, blob in rows:
        yield (role_of(key), thing_of(key)), numbers, blob

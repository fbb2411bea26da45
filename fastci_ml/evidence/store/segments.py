"""Segments: where they lie, and what in them is dead."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastci_ml.evidence.store.postings import pack, unpack
from fastci_ml.evidence.store.schema import NUMBER_BITS, posting_keys
from fastci_ml.evidence.store.texts import to_text


@dataclass(frozen=True, slots=True)
class Segment:
    """One row of table segment."""

    id: int
    lane: int
    scope: str
    n_records: int
    n_dead: int
    dead: bytes | None

    @property
    def base(self) -> int:
        """What is added to a record's number for its id."""
        return self.id << NUMBER_BITS


_COLUMNS = "s.id, s.lane, s.scope, s.n_records, s.n_dead, s.dead"


def segments_of(connection: sqlite3.Connection, lane: int, scope: str) -> list[Segment]:
    """Segments of a lane and scope, oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM segment s WHERE s.lane = ? AND s.scope = ? ORDER BY s.id",  # noqa: S608
        (lane, scope),
    )
    return [Segment(*row) for row in rows]


def segments_in(connection: sqlite3.Connection, lane: str, scopes: Sequence[str]) -> list[Segment]:
    """Segments of a lane, by its name, and of any of some scopes, oldest first."""
    marks = ", ".join("?" * len(scopes))
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM segment s JOIN lane l ON l.id = s.lane "  # noqa: S608
        f"WHERE l.name = ? AND s.scope IN ({marks}) ORDER BY s.id",
        (to_text(lane), *scopes),
    )
    return [Segment(*row) for row in rows]


def all_segments(connection: sqlite3.Connection) -> list[Segment]:
    """Every segment, oldest first."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM segment s ORDER BY s.id")  # noqa: S608
    return [Segment(*row) for row in rows]


def add_segment(
    connection: sqlite3.Connection, lane: int, scope: str, n_records: int, dead: Sequence[int]
) -> Segment:
    """Put a segment after all others."""
    packed = pack(dead) if dead else None
    cursor = connection.execute(
        "INSERT INTO segment (lane, scope, n_records, n_dead, dead) VALUES (?, ?, ?, ?, ?)",
        (lane, scope, n_records, len(dead), packed),
    )
    assert cursor.lastrowid is not None
    return Segment(cursor.lastrowid, lane, scope, n_records, len(dead), packed)


def bury(connection: sqlite3.Connection, record_ids: Iterable[int]) -> None:
    """Take records out of force; a segment that has no other ones goes at once."""
    by_segment: dict[int, list[int]] = {}
    for record_id in record_ids:
        by_segment.setdefault(record_id >> NUMBER_BITS, []).append(record_id)
    for id_, buried in by_segment.items():
        row = connection.execute(f"SELECT {_COLUMNS} FROM segment s WHERE s.id = ?", (id_,)).fetchone()  # noqa: S608
        segment = Segment(*row)
        connection.executemany("DELETE FROM record WHERE id = ?", ((record_id,) for record_id in buried))
        dead = set() if segment.dead is None else set(unpack(segment.dead))
        dead.update(record_id - segment.base for record_id in buried)
        if len(dead) == segment.n_records:
            drop(connection, segment)
        else:
            connection.execute(
                "UPDATE segment SET dead = ?, n_dead = ? WHERE id = ?", (pack(sorted(dead)), len(dead), id_)
            )


def drop(connection: sqlite3.Connection, segment: Segment) -> None:
    """Remove a segment whose records have no rows any more."""
    connection.execute("DELETE FROM posting WHERE id >= ? AND id < ?", posting_keys(segment.id))
    connection.execute("DELETE FROM segment WHERE id = ?", (segment.id,))

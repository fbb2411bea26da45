"""Compaction and retention: what is not needed any more goes, in one transaction."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from fastci_ml.evidence.store import schema
from fastci_ml.evidence.store.compaction import compact_scope
from fastci_ml.evidence.store.postings import unpack
from fastci_ml.evidence.store.segments import all_segments, bury
from fastci_ml.records.evidence_kinds import TRUNK_SCOPE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSummary:
    """What a compaction or a prune did.

    Attributes
    ----------
    n_records : int
        Records in force that were dropped for their age.
    n_segments : int
        Segments that were rewritten.
    n_freed_bytes : int
        By how much the file shrank.
    """

    n_records: int
    n_segments: int
    n_freed_bytes: int


def expire(
    connection: sqlite3.Connection, *, older_than_us: int, drop_trunk_older_than_us: int | None
) -> int:
    """Take old records out of force, within the caller's transaction; returns how many."""
    rows = connection.execute(
        "SELECT id FROM placed_record "
        "WHERE (scope <> :trunk AND recorded_us < :older) OR (scope = :trunk AND recorded_us < :of_trunk)",
        {"trunk": TRUNK_SCOPE, "older": older_than_us, "of_trunk": drop_trunk_older_than_us},
    ).fetchall()
    bury(connection, [record_id for (record_id,) in rows])
    connection.execute("DELETE FROM bundle WHERE started_us < ?", (older_than_us,))
    return len(rows)


def compact_all(connection: sqlite3.Connection) -> int:
    """Rewrite each lane and scope as one segment, and drop what nothing refers to.

    Returns
    -------
    int
        Segments that were rewritten.
    """
    scopes = sorted({(segment.lane, segment.scope) for segment in all_segments(connection)})
    n_segments = sum(compact_scope(connection, lane, scope) for lane, scope in scopes)
    _sweep(connection)
    _give_back(connection)
    return n_segments


def _give_back(connection: sqlite3.Connection) -> None:
    """Shrink the file by its free pages, within the caller's transaction."""
    n_before = -1
    (n_free,) = connection.execute("PRAGMA freelist_count").fetchone()
    while n_free not in (0, n_before):
        # SQLite frees a page at each step of this statement, and Python's module takes one step only.
        connection.execute("PRAGMA incremental_vacuum")
        n_before = n_free
        (n_free,) = connection.execute("PRAGMA freelist_count").fetchone()


def _sweep(connection: sqlite3.Connection) -> None:
    # What no record in force can have stood on: each was made by a merge that would have seen it again.
    connection.execute(
        "CREATE TEMP TABLE oldest AS "
        "SELECT lane, min(recorded_us) AS recorded_us FROM placed_record GROUP BY lane"
    )
    for table in ("edge", "import_unit"):
        connection.execute(
            f"DELETE FROM {table} WHERE NOT EXISTS "  # noqa: S608
            f"(SELECT 1 FROM temp.oldest o WHERE o.lane = {table}.lane AND o.recorded_us <= {table}.seen_us)"
        )
    connection.execute("DROP TABLE temp.oldest")
    connection.execute("CREATE TEMP TABLE used (role, thing, PRIMARY KEY (role, thing)) WITHOUT ROWID")
    for segment in all_segments(connection):
        keys = connection.execute(
            "SELECT id FROM posting WHERE id >= ? AND id < ?", schema.posting_keys(segment.id)
        )
        connection.executemany(
            "INSERT OR IGNORE INTO temp.used VALUES (?, ?)",
            ((schema.role_of(key), schema.thing_of(key)) for (key,) in keys),
        )
    for table in ("test", "origin", "traits"):
        connection.execute(f"DELETE FROM {table} WHERE id NOT IN (SELECT {table} FROM record)")  # noqa: S608
    connection.execute(
        "DELETE FROM unit_version WHERE id NOT IN (SELECT thing FROM temp.used WHERE role = ?) "
        "AND id NOT IN (SELECT unit_version FROM import_unit)",
        (schema.UNIT,),
    )
    _sweep_files(connection)
    connection.execute("DROP TABLE temp.used")
    connection.execute(
        "DELETE FROM lane WHERE id NOT IN (SELECT lane FROM segment) AND id NOT IN (SELECT lane FROM edge) "
        "AND id NOT IN (SELECT lane FROM import_unit)"
    )


def _sweep_files(connection: sqlite3.Connection) -> None:
    stood_on: set[int] = set()
    for (sources,) in connection.execute("SELECT sources FROM origin WHERE sources <> x''"):
        stood_on.update(unpack(sources))
    blocks = connection.execute("SELECT id FROM file_version WHERE blocks IS NOT NULL").fetchall()
    connection.executemany(
        "UPDATE file_version SET blocks = NULL WHERE id = ?",
        [row for row in blocks if row[0] not in stood_on],
    )
    connection.execute(
        "DELETE FROM file_version WHERE blocks IS NULL "
        "AND id NOT IN (SELECT thing FROM temp.used WHERE role IN (?, ?))",
        (schema.READ, schema.LISTING),
    )
    connection.execute(
        "DELETE FROM file WHERE id NOT IN (SELECT file FROM file_version) "
        "AND id NOT IN (SELECT file FROM unit_version) "
        "AND id NOT IN (SELECT thing FROM temp.used WHERE role = ?) AND id NOT IN (SELECT file FROM test) "
        "AND id NOT IN (SELECT importer FROM edge) AND id NOT IN (SELECT imported FROM edge) "
        "AND id NOT IN (SELECT file FROM import_unit) AND id NOT IN (SELECT unit_file FROM import_unit)",
        (schema.ROOT,),
    )

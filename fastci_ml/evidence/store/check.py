"""Is the store sound? SQLite's own check, and what must hold between our tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.store import schema
from fastci_ml.evidence.store.connection import SQLITE_ERRORS
from fastci_ml.evidence.store.force import Claim, claim_of, in_force
from fastci_ml.evidence.store.postings import DamagedListError, unpack
from fastci_ml.evidence.store.segments import Segment, all_segments

_MAX_PROBLEMS = 20


def problems_of(connection: sqlite3.Connection) -> list[str]:
    """What is wrong, a line each, at most twenty; empty for a sound store."""
    found: list[str] = []
    try:
        for problem in _problems(connection):
            found.append(problem)
            if len(found) == _MAX_PROBLEMS:
                break
    except (*SQLITE_ERRORS, EvidenceError) as error:
        found.append(f"cannot be read further: {error}")
    return found


def _problems(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})").fetchall()
    if rows != [("ok",)]:
        # What SQLite itself finds broken is not worth looking into further.
        yield from (line for (text,) in rows for line in str(text).splitlines())
        return
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"table {table}: row {row} refers to a {parent} that is not there"
    n_units, n_ids = connection.execute("SELECT count(*), count(DISTINCT id) FROM unit_version").fetchone()
    if n_units != n_ids:
        yield f"table unit_version: {n_units} rows have {n_ids} ids"
    segments = all_segments(connection)
    yield from _problems_of_rows(connection, segments)
    yield from _problems_of_force(connection)
    things = _things(connection)
    for segment in segments:
        yield from _problems_of_postings(connection, segment, things)


def _problems_of_rows(connection: sqlite3.Connection, segments: list[Segment]) -> Iterator[str]:
    n_rows = 0
    for segment in segments:
        rows = connection.execute(
            "SELECT id FROM record WHERE id > ? AND id <= ?", (segment.base, segment.base + segment.n_records)
        )
        alive = {record_id - segment.base for (record_id,) in rows}
        dead = set() if segment.dead is None else set(unpack(segment.dead))
        n_rows += len(alive)
        if (
            len(dead) != segment.n_dead
            or alive | dead != set(range(1, segment.n_records + 1))
            or alive & dead
        ):
            yield (
                f"segment {segment.id}: {len(alive)} records in force and {len(dead)} dead, "
                f"expected {segment.n_records} in all, {segment.n_dead} dead"
            )
    (n_records,) = connection.execute("SELECT count(*) FROM record").fetchone()
    if n_records != n_rows:
        yield f"table record: {n_records - n_rows} rows belong to no segment"


def _problems_of_force(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute(
        "SELECT r.test, r.lane, r.scope, r.recorded_us, r.gaps IS NULL, r.id, o.commit_sha "
        "FROM placed_record r JOIN origin o ON o.id = r.origin ORDER BY r.id"
    )
    claims: dict[tuple[int, int, str], list[Claim]] = {}
    for test, lane, scope, recorded_us, is_complete, id_, commit in rows:
        claims.setdefault((test, lane, scope), []).append(
            claim_of(recorded_us, is_complete, id_, commit, scope)
        )
    for (test, lane, scope), found in claims.items():
        expected = in_force(found)
        if len(expected) != len(found):
            yield f"test {test}, lane {lane}, scope {scope}: {len(found)} records, expected {len(expected)}"


def _things(connection: sqlite3.Connection) -> dict[int, frozenset[int]]:
    """By role, the ids that postings may speak of."""
    units, files, versions = (
        frozenset(id_ for (id_,) in connection.execute(f"SELECT id FROM {table}"))  # noqa: S608
        for table in ("unit_version", "file", "file_version")
    )
    return {schema.UNIT: units, schema.READ: versions, schema.LISTING: versions, schema.ROOT: files}


def _problems_of_postings(
    connection: sqlite3.Connection, segment: Segment, things: dict[int, frozenset[int]]
) -> Iterator[str]:
    rows = connection.execute(
        "SELECT id, ids FROM posting WHERE id >= ? AND id < ?", schema.posting_keys(segment.id)
    )
    for key, blob in rows:
        role, thing = schema.role_of(key), schema.thing_of(key)
        place = f"segment {segment.id}, role {role}, thing {thing}"
        if role not in things or thing not in things[role]:
            yield f"{place}: unknown"
            continue
        try:
            ids = unpack(blob)
        except DamagedListError as error:
            yield f"{place}: {error}"
            continue
        if not ids or ids[0] < 1 or ids[-1] > segment.n_records or any(map(int.__ge__, ids, ids[1:])):
            yield f"{place}: numbers are not ascending from 1 to {segment.n_records}"

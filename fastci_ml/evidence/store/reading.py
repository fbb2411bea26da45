"""Records as they were written, put together again from their row and the posting lists."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from fastci_ml.evidence.store import schema
from fastci_ml.evidence.store.batch import MergedBundle
from fastci_ml.evidence.store.postings import has
from fastci_ml.evidence.store.texts import (
    Text,
    facts_from_json,
    from_text,
    gaps_from_json,
    kind_from_code,
    names_from_json,
    provenance_from_json,
    split_node_id,
    to_text,
)
from fastci_ml.records.evidence import EvidenceRecord, FileSeen, UnitSeen
from fastci_ml.records.evidence_kinds import Gap

_MASK = (1 << schema.NUMBER_BITS) - 1
_FROM_RECORD = (
    "FROM placed_record r JOIN lane l ON l.id = r.lane JOIN test t ON t.id = r.test "
    "JOIN file tf ON tf.id = t.file JOIN origin o ON o.id = r.origin "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHead:
    """A record without what its test touched.

    Attributes
    ----------
    record_id : int
        As in `Touched`.
    node_id, lane, scope, commit, recorded_us, backend, outcome, gaps
        As in `EvidenceRecord`.
    sources_id : int
        Which of `EvidenceStore.sources` it stands on.
    """

    record_id: int
    node_id: str
    lane: str
    scope: str
    commit: str
    recorded_us: int
    backend: str
    outcome: str
    gaps: tuple[tuple[Gap, str], ...]
    sources_id: int


def read_children(connection: sqlite3.Connection, bundle_id: str) -> set[str]:
    """Ids of the bundles that name another one their parent."""
    rows = connection.execute(
        "SELECT id, provenance FROM bundle WHERE instr(provenance, ?)", (f'"{bundle_id}"',)
    )
    return {id_ for id_, provenance in rows if provenance_from_json(provenance).parent == bundle_id}


def read_bundle(connection: sqlite3.Connection, bundle_id: str) -> MergedBundle | None:
    """A bundle as it was merged last."""
    row = connection.execute(
        "SELECT name, digest, provenance, gaps, n_bytes FROM bundle WHERE id = ?", (bundle_id,)
    ).fetchone()
    if row is None:
        return None
    name, digest, provenance, gaps, n_bytes = row
    return MergedBundle(
        provenance=provenance_from_json(provenance),
        name=from_text(name),
        digest=digest,
        gaps=gaps_from_json(gaps),
        n_bytes=n_bytes,
    )


def read_heads(connection: sqlite3.Connection, lane: str | None) -> Iterator[RecordHead]:
    """Records in force of a lane, or of all, by record id."""
    # All rows at once: an open cursor would keep others from writing.
    rows = connection.execute(
        "SELECT r.id, tf.path, t.rest, l.name, r.scope, o.commit_sha, r.recorded_us, o.backend, r.outcome, "
        f"r.gaps, o.id {_FROM_RECORD} WHERE :lane IS NULL OR l.name = :lane ORDER BY r.id",
        {"lane": None if lane is None else to_text(lane)},
    ).fetchall()
    return (
        RecordHead(
            record_id=record_id,
            node_id=from_text(path) + from_text(rest),
            lane=from_text(name),
            scope=scope,
            commit=commit,
            recorded_us=recorded_us,
            backend=backend,
            outcome=outcome,
            gaps=gaps_from_json(gaps),
            sources_id=origin,
        )
        for record_id, path, rest, name, scope, commit, recorded_us, backend, outcome, gaps, origin in rows
    )


def read_records(
    connection: sqlite3.Connection, node_id: str, lane: str | None, scope: str | None
) -> list[EvidenceRecord]:
    """Records in force of a test, newest first."""
    path, rest = split_node_id(node_id)
    rows = connection.execute(
        "SELECT r.id, l.name, r.scope, o.commit_sha, r.recorded_us, o.backend, r.outcome, r.gaps, r.facts, "
        f"a.environ, a.native_readers {_FROM_RECORD} JOIN traits a ON a.id = r.traits "
        "WHERE tf.path = :path AND t.rest = :rest AND (:lane IS NULL OR l.name = :lane) "
        "AND (:scope IS NULL OR r.scope = :scope) ORDER BY r.recorded_us DESC, r.id DESC",
        {
            "path": to_text(path),
            "rest": to_text(rest),
            "lane": None if lane is None else to_text(lane),
            "scope": scope,
        },
    ).fetchall()
    found = []
    for (
        id_,
        lane_name,
        scope_name,
        commit,
        recorded_us,
        backend,
        outcome,
        gaps,
        facts,
        environ,
        native,
    ) in rows:
        segment, number = id_ >> schema.NUMBER_BITS, id_ & _MASK
        found.append(
            EvidenceRecord(
                node_id=node_id,
                lane=from_text(lane_name),
                scope=scope_name,
                commit=commit,
                recorded_us=recorded_us,
                backend=backend,
                units=_units(connection, segment, number),
                reads=_files(connection, segment, schema.READ, number),
                listings=_files(connection, segment, schema.LISTING, number),
                roots=frozenset(_roots(connection, segment, number)),
                environ=frozenset(names_from_json(environ)),
                native_readers=names_from_json(native),
                gaps=gaps_from_json(gaps),
                facts=facts_from_json(outcome, recorded_us, facts),
            )
        )
    return found


def _units(connection: sqlite3.Connection, segment: int, number: int) -> frozenset[UnitSeen]:
    # Every list of the segment is looked through: the way back is asked for one test at a time, by a person,
    # and an index for it would double the store.
    rows = connection.execute(
        "SELECT id, ids FROM posting WHERE id >= ? AND id < ?", schema.posting_keys(segment, schema.UNIT)
    )
    executed = {schema.thing_of(key) for key, ids in rows if has(ids, number)}
    versions = connection.execute(
        "SELECT f.path, v.name, v.kind, v.fingerprint, v.id FROM unit_version v JOIN file f ON f.id = v.file"
    )
    return frozenset(
        UnitSeen(
            path=from_text(path),
            name=from_text(name),
            kind=kind_from_code(kind),
            fingerprint=fingerprint.hex(),
        )
        for path, name, kind, fingerprint, version in versions
        if version in executed
    )


def _files(connection: sqlite3.Connection, segment: int, role: int, number: int) -> frozenset[FileSeen]:
    rows: Iterator[tuple[Text, bytes, bytes]] = connection.execute(
        "SELECT f.path, v.blob, p.ids FROM posting p JOIN file_version v ON v.id = p.id - :first "
        "JOIN file f ON f.id = v.file WHERE p.id >= :first AND p.id < :end",
        _keys(segment, role),
    )
    return frozenset(
        FileSeen(path=from_text(path), blob=blob.hex() or None)
        for path, blob, ids in rows
        if has(ids, number)
    )


def _roots(connection: sqlite3.Connection, segment: int, number: int) -> list[str]:
    rows: Iterator[tuple[Text, bytes]] = connection.execute(
        "SELECT f.path, p.ids FROM posting p JOIN file f ON f.id = p.id - :first "
        "WHERE p.id >= :first AND p.id < :end",
        _keys(segment, schema.ROOT),
    )
    return [from_text(path) for path, ids in rows if has(ids, number)]


def _keys(segment: int, role: int) -> dict[str, int]:
    # By name: of the first releases of 3.12 a number in a statement that is used twice makes a warning.
    first, end = schema.posting_keys(segment, role)
    return {"first": first, "end": end}

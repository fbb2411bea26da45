"""Adding a batch: one new segment for each lane and scope, and an end to what its records supersede."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import starmap

from fastci_ml.evidence.store import schema
from fastci_ml.evidence.store.batch import MergeBatch, MergedBundle, WriteSummary
from fastci_ml.evidence.store.compaction import compact_overdue
from fastci_ml.evidence.store.dictionary import Dictionary
from fastci_ml.evidence.store.draft import Draft
from fastci_ml.evidence.store.force import Claim, claim_of, in_force
from fastci_ml.evidence.store.postings import pack
from fastci_ml.evidence.store.segments import add_segment, bury
from fastci_ml.evidence.store.texts import (
    facts_to_json,
    gaps_to_json,
    provenance_from_json,
    to_json,
    to_text,
)
from fastci_ml.records.evidence_kinds import UNTRUSTED_SCOPE, needs_trust


@dataclass(slots=True)
class _Verdict:
    """What becomes of the records of a draft, by number, and of what is stored, by record id."""

    tests: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    superseded: list[int] = field(default_factory=list)


def add_batch(
    connection: sqlite3.Connection, batch: MergeBatch, drafts: Mapping[tuple[str, str], Draft]
) -> WriteSummary:
    """Write a batch within the transaction that the caller has begun.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction for writing.
    batch : MergeBatch
        Its records are not looked at.
    drafts : mapping of (str, str) to Draft
        Records of the batch, by lane and scope.
    """
    new = [bundle for bundle in batch.bundles if not is_merged(connection, bundle)]
    if batch.bundles and not new:
        # Another merge has had the same bundles since the caller looked.
        return WriteSummary()
    names = Dictionary(connection)
    is_settled = any(_was_untrusted(connection, bundle) for bundle in new)
    _add_bundles(connection, new, batch.merged_us)
    sources = sorted(
        {names.file_version_with(path, blob, blocks) for (path, blob), blocks in batch.file_versions.items()}
    )
    packed = pack(sources) if sources else b""
    n_records = n_superseded = n_outdated = 0
    for (lane, scope), draft in drafts.items():
        verdict = _judge(connection, names, names.lane(lane), scope, draft)
        if is_settled and needs_trust(scope):
            bury(connection, _untrusted_copies(connection, names.lane(lane), draft, verdict))
        bury(connection, verdict.superseded)
        if len(verdict.dead) < len(draft.rows):
            _add_segment(connection, names, names.lane(lane), scope, draft, verdict, packed)
        n_superseded += len(verdict.superseded)
        n_outdated += len(verdict.dead)
        n_records += len(draft.rows) - len(verdict.dead)
    _add_imports(connection, names, batch, _seen_us(batch, drafts))
    n_compacted = sum(compact_overdue(connection, names.lane(lane), scope) for lane, scope in drafts)
    return WriteSummary(
        n_bundles=len(new),
        n_records=n_records,
        n_superseded=n_superseded,
        n_outdated=n_outdated,
        n_compacted=n_compacted,
    )


def is_merged(connection: sqlite3.Connection, bundle: MergedBundle) -> bool:
    """Whether the bundle, as it is now, was merged before, or a state of it that is trusted more."""
    row = connection.execute(
        "SELECT digest, provenance FROM bundle WHERE id = ?", (bundle.provenance.bundle_id,)
    ).fetchone()
    if row is None:
        return False
    stored, given = provenance_from_json(row[1]).scope, bundle.provenance.scope
    if needs_trust(stored) != needs_trust(given):
        return needs_trust(stored)
    return bool(row[0] == bundle.digest)


def _was_untrusted(connection: sqlite3.Connection, bundle: MergedBundle) -> bool:
    """Whether a bundle that is believed now was merged before, and not believed."""
    row = connection.execute(
        "SELECT provenance FROM bundle WHERE id = ?", (bundle.provenance.bundle_id,)
    ).fetchone()
    is_stored = row is not None and provenance_from_json(row[0]).scope == UNTRUSTED_SCOPE
    return is_stored and needs_trust(bundle.provenance.scope)


def _untrusted_copies(
    connection: sqlite3.Connection, lane: int, draft: Draft, verdict: _Verdict
) -> list[int]:
    """Records that a draft holds again, of an earlier merge that did not believe their bundle."""
    return [
        record_id
        for row, test in zip(draft.rows, verdict.tests, strict=True)
        for (record_id,) in connection.execute(
            "SELECT id FROM placed_record WHERE test = ? AND lane = ? AND scope = ? AND recorded_us = ?",
            (test, lane, UNTRUSTED_SCOPE, row.recorded_us),
        )
    ]


def _add_bundles(connection: sqlite3.Connection, bundles: Iterable[MergedBundle], merged_us: int) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO bundle (id, name, digest, merged_us, started_us, provenance, gaps, n_bytes) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                bundle.provenance.bundle_id,
                to_text(bundle.name),
                bundle.digest,
                merged_us,
                bundle.provenance.started_us,
                to_json(asdict(bundle.provenance)),
                gaps_to_json(bundle.gaps),
                bundle.n_bytes,
            )
            for bundle in bundles
        ),
    )


def _judge(
    connection: sqlite3.Connection, names: Dictionary, lane: int, scope: str, draft: Draft
) -> _Verdict:
    verdict = _Verdict()
    claims: dict[int, list[Claim]] = {}
    for number, row in enumerate(draft.rows, 1):
        test = names.test(row.node_id)
        verdict.tests.append(test)
        # What is new has ids below 0, so that it is told from what is stored.
        claim = claim_of(row.recorded_us, row.is_complete, -number, row.commit, scope)
        claims.setdefault(test, []).append(claim)
    for test, new in claims.items():
        stored = connection.execute(
            "SELECT r.recorded_us, r.gaps IS NULL, r.id, o.commit_sha, r.scope "
            "FROM placed_record r JOIN origin o ON o.id = r.origin "
            "WHERE test = ? AND lane = ? AND scope = ? ORDER BY r.id",
            (test, lane, scope),
        )
        given = [*starmap(claim_of, stored), *new]
        kept = {claim.id for claim in in_force(given)}
        for claim in given:
            if claim.id not in kept:
                if claim.id < 0:
                    verdict.dead.append(-claim.id)
                else:
                    verdict.superseded.append(claim.id)
    verdict.dead.sort()
    return verdict


def _add_segment(
    connection: sqlite3.Connection,
    names: Dictionary,
    lane: int,
    scope: str,
    draft: Draft,
    verdict: _Verdict,
    sources: bytes,
) -> None:
    segment = add_segment(connection, lane, scope, len(draft.rows), verdict.dead)
    dead = frozenset(verdict.dead)
    origins: dict[tuple[str, str], int] = {}
    traits: dict[tuple[frozenset[str], tuple[str, ...]], int] = {}

    def rows() -> Iterator[tuple[object, ...]]:
        for number, (row, test) in enumerate(zip(draft.rows, verdict.tests, strict=True), 1):
            if number in dead:
                continue
            origin = (row.commit, row.backend)
            if origin not in origins:
                origins[origin] = names.origin(*origin, sources)
            trait = (row.environ, row.native_readers)
            if trait not in traits:
                traits[trait] = names.traits(to_json(sorted(row.environ)), to_json(row.native_readers))
            yield (
                segment.base + number,
                test,
                origins[origin],
                traits[trait],
                row.recorded_us,
                row.facts.outcome,
                gaps_to_json(row.gaps),
                facts_to_json(row.facts, row.recorded_us),
            )

    connection.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows())
    # In the order of their keys, so that the tree only grows at its end; units of a file get close ids.
    units = {
        names.unit_version(unit): draft.units[unit]
        for unit in sorted(draft.units, key=lambda unit: (unit.path, unit.name))
    }
    lists: dict[int, dict[int, array[int]]] = {
        schema.UNIT: units,
        schema.READ: {names.file_version(f.path, f.blob): ids for f, ids in draft.reads.items()},
        schema.LISTING: {names.file_version(f.path, f.blob): ids for f, ids in draft.listings.items()},
        schema.ROOT: {names.file(path): ids for path, ids in draft.roots.items()},
    }
    connection.executemany(
        "INSERT INTO posting (id, ids) VALUES (?, ?)",
        (
            (schema.posting_key(segment.id, role, thing), pack(things[thing]))
            for role, things in lists.items()
            for thing in sorted(things)
        ),
    )


def _seen_us(batch: MergeBatch, drafts: Mapping[tuple[str, str], Draft]) -> int:
    """A time that no record which stands on these imports is after.

    The time of the merge, since a parent's imports may come in another batch than its children's tests; and
    what is in the batch, since clocks of other machines may be ahead.
    """
    times = [row.recorded_us for draft in drafts.values() for row in draft.rows]
    started = [bundle.provenance.started_us for bundle in batch.bundles]
    return max([batch.merged_us, *started, *times])


def _add_imports(connection: sqlite3.Connection, names: Dictionary, batch: MergeBatch, seen_us: int) -> None:
    connection.executemany(
        "INSERT INTO edge (lane, importer, imported, seen_us) VALUES (?, ?, ?, ?) "
        "ON CONFLICT DO UPDATE SET seen_us = max(seen_us, excluded.seen_us)",
        [
            (names.lane(lane), names.file(importer), names.file(imported), seen_us)
            for lane, importer, imported in batch.edges
        ],
    )
    connection.executemany(
        "INSERT INTO import_unit (lane, file, unit_file, unit_version, seen_us) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT DO UPDATE SET seen_us = max(seen_us, excluded.seen_us)",
        [
            (names.lane(lane), names.file(path), names.file(unit.path), names.unit_version(unit), seen_us)
            for lane, path, unit in batch.import_units
        ],
    )

"""The evidence store: what each test was seen to touch, by lane and scope.

One file, written by one process at a time and read by any number. It keeps a rollback journal, not a
write-ahead log, which does not work on network disks. Every change is one transaction: a process may be
killed at any moment, and the next one finds the store as it was before, or after.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from fastci_ml.evidence.store import check, query, reading, schema, sources, summary, upkeep
from fastci_ml.evidence.store.batch import MergeBatch, MergedBundle, WriteSummary
from fastci_ml.evidence.store.connection import (
    SQLITE_ERRORS,
    connect,
    explained,
    reading_state,
    translated,
    writing,
)
from fastci_ml.evidence.store.draft import drafts_of
from fastci_ml.evidence.store.reading import RecordHead
from fastci_ml.evidence.store.sources import Sources
from fastci_ml.evidence.store.summary import StoreSummary
from fastci_ml.evidence.store.texts import provenance_from_json
from fastci_ml.evidence.store.touched import Touched, node_ids_of
from fastci_ml.evidence.store.upkeep import UpkeepSummary
from fastci_ml.evidence.store.writing import add_batch
from fastci_ml.records.evidence import EvidenceRecord, UnitSeen
from fastci_ml.sources.blocks.block import Block


class EvidenceStore:
    """Runtime evidence in one SQLite file; use `open`, and close it, best by ``with``.

    Scopes never mix: a record replaces only older ones of its own lane and scope, and a query names the
    scopes that it looks at.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path, *, create: bool = False, read_only: bool = False) -> Self:
        """Open the store.

        Parameters
        ----------
        path : Path
            Its file.
        create : bool
            Make it, and its folder, where it is missing.
        read_only : bool
            Never write, not even to upgrade an older schema.

        Raises
        ------
        EvidenceError
            If it is missing, damaged, foreign, of a version that we cannot use, or not accessible. It is
            left as it is.
        """
        return cls(path, connect(path, create=create, read_only=read_only))

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One state of the store for several questions; others can write when it is left."""
        with translated(self.path), reading_state(self._connection):
            yield

    def has_bundle(self, bundle_id: str, digest: str | None = None, *, scope: str | None = None) -> bool:
        """Whether a bundle was merged; with `digest`, as it is now; with `scope`, under that one."""
        with self.snapshot():
            row = self._connection.execute(
                "SELECT digest, provenance FROM bundle WHERE id = ?", (bundle_id,)
            ).fetchone()
            if row is None or digest not in (None, row[0]):
                return False
            return scope is None or provenance_from_json(row[1]).scope == scope

    def bundle(self, bundle_id: str) -> MergedBundle | None:
        """A bundle as it was merged last; None where it was not."""
        with self.snapshot():
            return reading.read_bundle(self._connection, bundle_id)

    def children_of(self, bundle_id: str) -> set[str]:
        """Bundles that were merged with one, of processes below its own."""
        with self.snapshot():
            return reading.read_children(self._connection, bundle_id)

    def write(self, batch: MergeBatch) -> WriteSummary:
        """Add a batch: all of it, or nothing.

        Raises
        ------
        EvidenceError
            If the file cannot be written, or another process writes for more than a minute.
        ValueError
            If a fingerprint or blob id is not of hexadecimal digits, or this store is within a `snapshot`.
        """
        # Records are gone through before others are kept from writing.
        drafts = drafts_of(batch.records)
        self._refuse_within_snapshot()
        with translated(self.path), writing(self._connection):
            return add_batch(self._connection, batch, drafts)

    def affected(
        self, changes: Mapping[tuple[str, str], Collection[str]], *, lane: str, scopes: Sequence[str]
    ) -> Touched[tuple[str, str]]:
        """Records that executed a version of a unit which is not at the head.

        Parameters
        ----------
        changes : mapping of (str, str) to collection of str
            By path and name of a unit, its fingerprints at the head; none where it is missing there.
        lane : str
            Records of this lane.
        scopes : sequence of str
            Records of any of these scopes.

        Returns
        -------
        Touched of (str, str)
            By path and name of the unit.
        """
        with self.snapshot():
            return query.by_changes(self._connection, changes, lane, scopes)

    def tests_of_units(
        self, units: Iterable[tuple[str, str]], *, lane: str, scopes: Sequence[str]
    ) -> Touched[tuple[str, str]]:
        """Records that executed a unit, in whatever version, by path and name."""
        with self.snapshot():
            return query.by_units(self._connection, units, lane, scopes)

    def tests_of_files(
        self, paths: Iterable[str], *, lane: str, scopes: Sequence[str]
    ) -> Touched[tuple[str, str | None]]:
        """Records that opened a file for reading, by path and the blob id that it had then."""
        with self.snapshot():
            return query.by_files(self._connection, schema.READ, paths, lane, scopes)

    def tests_of_listings(
        self, paths: Iterable[str], *, lane: str, scopes: Sequence[str]
    ) -> Touched[tuple[str, str | None]]:
        """Records that listed a directory, by path and the blob id of its names."""
        with self.snapshot():
            return query.by_files(self._connection, schema.LISTING, paths, lane, scopes)

    def tests_of_modules(self, paths: Iterable[str], *, lane: str, scopes: Sequence[str]) -> Touched[str]:
        """Records that executed any unit of a file, by path."""
        with self.snapshot():
            return query.by_modules(self._connection, paths, lane, scopes)

    def tests_of_roots(self, paths: Iterable[str], *, lane: str, scopes: Sequence[str]) -> Touched[str]:
        """Records whose import closure starts at a file, by path."""
        with self.snapshot():
            return query.by_roots(self._connection, paths, lane, scopes)

    def node_ids(self, record_ids: Sequence[int]) -> list[str]:
        """Tests of records, in their order.

        Raises
        ------
        EvidenceError
            If a record is no more, because another process has written since it was found.
        """
        with self.snapshot():
            return node_ids_of(self._connection, record_ids)

    def record(self, node_id: str, *, lane: str, scope: str) -> EvidenceRecord | None:
        """Newest record of a test; None where it has none."""
        found = self.records_of(node_id, lane=lane, scope=scope)
        return found[0] if found else None

    def records_of(
        self, node_id: str, *, lane: str | None = None, scope: str | None = None
    ) -> list[EvidenceRecord]:
        """Records in force of a test, of any lane and scope where none is given; newest first."""
        with self.snapshot():
            return reading.read_records(self._connection, node_id, lane, scope)

    def records(self, lane: str | None = None) -> Iterator[RecordHead]:
        """Records in force without what they touched, by record id."""
        with self.snapshot():
            return reading.read_heads(self._connection, lane)

    def sources(self, *, lane: str, scopes: Sequence[str]) -> list[Sources]:
        """Files, by blob id, that records in force stand on."""
        with self.snapshot():
            return sources.read_sources(self._connection, lane, scopes)

    def blocks(self, path: str, blob: str) -> tuple[Block, ...] | None:
        """Blocks of a file as it was; None where they were never merged."""
        with self.snapshot():
            return sources.read_blocks(self._connection, path, blob)

    def edges(self, lane: str) -> list[tuple[str, str]]:
        """Paths of importing and imported files, sorted."""
        with self.snapshot():
            return sources.read_edges(self._connection, lane)

    def import_units(self, lane: str) -> list[tuple[str, UnitSeen]]:
        """By path of a module, units that were executed while it was imported; sorted."""
        with self.snapshot():
            return sources.read_import_units(self._connection, lane)

    def summary(self) -> StoreSummary:
        """The store in figures."""
        with self.snapshot():
            return summary.summarize(self._connection)

    def compact(self) -> UpkeepSummary:
        """Rewrite the store as small as it gets; records in force stay as they are."""
        return self._keep_up(older_than_us=None, drop_trunk_older_than_us=None)

    def prune(self, *, older_than_us: int, drop_trunk_older_than_us: int | None = None) -> UpkeepSummary:
        """Drop what is old, and compact.

        Parameters
        ----------
        older_than_us : int
            Microseconds since the epoch, UTC. Records of other scopes than trunk that are older go, and the
            names of bundles: those, if merged again, are taken for new.
        drop_trunk_older_than_us : int or None
            Records of trunk that are older go too. Their tests are then unknown, and run with every change.
        """
        return self._keep_up(older_than_us=older_than_us, drop_trunk_older_than_us=drop_trunk_older_than_us)

    def _keep_up(self, *, older_than_us: int | None, drop_trunk_older_than_us: int | None) -> UpkeepSummary:
        self._refuse_within_snapshot()
        connection = self._connection
        with translated(self.path):
            n_before = summary.n_bytes(connection)
            n_records = 0
            with writing(connection):
                if older_than_us is not None:
                    n_records = upkeep.expire(
                        connection,
                        older_than_us=older_than_us,
                        drop_trunk_older_than_us=drop_trunk_older_than_us,
                    )
                n_segments = upkeep.compact_all(connection)
            return UpkeepSummary(
                n_records=n_records,
                n_segments=n_segments,
                n_freed_bytes=n_before - summary.n_bytes(connection),
            )

    def _refuse_within_snapshot(self) -> None:
        if self._connection.in_transaction:
            raise ValueError("within a snapshot nothing is written")

    def check(self) -> list[str]:
        """What is wrong with the store, a line each; empty for a sound one."""
        try:
            with reading_state(self._connection):
                return check.problems_of(self._connection)
        except SQLITE_ERRORS as error:
            return [str(explained(self.path, error))]

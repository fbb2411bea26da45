"""Ids of what postings speak of, inside of one transaction: found, or given."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fastci_ml.evidence.store.texts import (
    Text,
    blocks_to_blob,
    kind_to_code,
    split_node_id,
    to_digits,
    to_text,
)
from fastci_ml.records.evidence import UnitSeen
from fastci_ml.sources.blocks.block import Block


class Dictionary:
    """Ids by what they stand for.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction for writing, which this object must not outlive.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lanes: dict[str, int] = {}
        self._files: dict[str, int] = {}
        self._versions: dict[tuple[str, str | None], int] = {}
        self._units: dict[int, dict[tuple[Text, bytes, int], int]] = {}
        (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM unit_version").fetchone()
        self._last_unit: int = last

    def lane(self, name: str) -> int:
        """Id of a lane."""
        return self._id(self._lanes, name, "lane", "name")

    def file(self, path: str) -> int:
        """Id of a file."""
        return self._id(self._files, path, "file", "path")

    def test(self, node_id: str) -> int:
        """Id of a test; not remembered, since each is asked for once."""
        file, rest = split_node_id(node_id)
        return self._find("test", {"file": self.file(file), "rest": to_text(rest)})

    def _id(self, known: dict[str, int], text: str, table: str, column: str) -> int:
        found = known.get(text)
        if found is None:
            found = known[text] = self._find(table, {column: to_text(text)})
        return found

    def _find(self, table: str, values: dict[str, object]) -> int:
        # Names of tables and columns are ours.
        where = " AND ".join(f"{name} = ?" for name in values)
        given = tuple(values.values())
        row = self._connection.execute(f"SELECT id FROM {table} WHERE {where}", given).fetchone()  # noqa: S608
        if row is not None:
            if not isinstance(row[0], int):
                raise sqlite3.DatabaseError(f"table {table}: an id that is no number")
            return row[0]
        marks = ", ".join("?" * len(values))
        cursor = self._connection.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})",  # noqa: S608
            given,
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def file_version(self, path: str, blob: str | None) -> int:
        """Id of a content of a file; of the unknown content for None."""
        found = self._versions.get((path, blob))
        if found is None:
            digits = b"" if blob is None else to_digits(blob)
            found = self._find("file_version", {"file": self.file(path), "blob": digits})
            self._versions[path, blob] = found
        return found

    def file_version_with(self, path: str, blob: str, blocks: Sequence[Block]) -> int:
        """Id of a content of a file, whose blocks are kept: those of the last release that merged it."""
        version = self.file_version(path, blob)
        self._connection.execute(
            "UPDATE file_version SET blocks = :blocks WHERE id = :id AND blocks IS NOT :blocks",
            {"blocks": blocks_to_blob(blocks), "id": version},
        )
        return version

    def unit_version(self, unit: UnitSeen) -> int:
        """Id of a unit as it was executed."""
        file = self.file(unit.path)
        units = self._units.get(file)
        if units is None:
            rows = self._connection.execute(
                "SELECT name, fingerprint, kind, id FROM unit_version WHERE file = ?", (file,)
            )
            units = self._units[file] = {(name, print_, kind): id_ for name, print_, kind, id_ in rows}
        key = (to_text(unit.name), to_digits(unit.fingerprint), kind_to_code(unit.kind))
        found = units.get(key)
        if found is None:
            self._last_unit += 1
            found = units[key] = self._last_unit
            self._connection.execute(
                "INSERT INTO unit_version (file, name, fingerprint, kind, id) VALUES (?, ?, ?, ?, ?)",
                (file, *key, found),
            )
        return found

    def origin(self, commit: str, backend: str, sources: bytes) -> int:
        """Id of what records of one merge have in common."""
        return self._find("origin", {"commit_sha": commit, "backend": backend, "sources": sources})

    def traits(self, environ: str, native_readers: str) -> int:
        """Id of what many tests have in common, both as JSON."""
        return self._find("traits", {"environ": environ, "native_readers": native_readers})

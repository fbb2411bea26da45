"""Files as they were when records were made, and what was seen of imports."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from fastci_ml.evidence.store.postings import unpack
from fastci_ml.evidence.store.texts import blocks_from_blob, from_text, kind_from_code, to_digits, to_text
from fastci_ml.records.evidence import UnitSeen
from fastci_ml.sources.blocks.block import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Files that records of one merge, commit and back end stand on.

    Attributes
    ----------
    sources_id : int
        As in `RecordHead`.
    commit : str
        Full sha; may be empty.
    versions : dict of str to list of str
        By path, the blob ids that it had; more than one where the merge spanned several commits.
    """

    sources_id: int
    commit: str
    versions: dict[str, list[str]]


def read_sources(connection: sqlite3.Connection, lane: str, scopes: Sequence[str]) -> list[Sources]:
    """What records in force of a lane and scopes stand on, by id."""
    marks = ", ".join("?" * len(scopes))
    origins = connection.execute(
        "SELECT o.id, o.commit_sha, o.sources FROM origin o WHERE o.id IN "  # noqa: S608
        "(SELECT r.origin FROM placed_record r "
        f"JOIN lane l ON l.id = r.lane WHERE l.name = ? AND r.scope IN ({marks})) ORDER BY o.id",
        (to_text(lane), *scopes),
    ).fetchall()
    rows = connection.execute(
        "SELECT v.id, f.path, v.blob FROM file_version v JOIN file f ON f.id = v.file "
        "WHERE v.blocks IS NOT NULL"
    )
    known = {id_: (from_text(path), blob.hex()) for id_, path, blob in rows}
    found = []
    for id_, commit, packed in origins:
        versions: dict[str, list[str]] = {}
        for version in unpack(packed) if packed else ():
            path, blob = known[version]
            versions.setdefault(path, []).append(blob)
        found.append(Sources(sources_id=id_, commit=commit, versions=versions))
    return found


def read_blocks(connection: sqlite3.Connection, path: str, blob: str) -> tuple[Block, ...] | None:
    """Blocks of a file version; None where they were never merged."""
    row = connection.execute(
        "SELECT v.blocks FROM file_version v JOIN file f ON f.id = v.file WHERE f.path = ? AND v.blob = ?",
        (to_text(path), to_digits(blob)),
    ).fetchone()
    return None if row is None or row[0] is None else blocks_from_blob(row[0])


def read_edges(connection: sqlite3.Connection, lane: str) -> list[tuple[str, str]]:
    """Importing and imported file of a lane, sorted."""
    rows = connection.execute(
        "SELECT a.path, b.path FROM edge e JOIN lane l ON l.id = e.lane JOIN file a ON a.id = e.importer "
        "JOIN file b ON b.id = e.imported WHERE l.name = ?",
        (to_text(lane),),
    )
    return sorted((from_text(importer), from_text(imported)) for importer, imported in rows)


def read_import_units(connection: sqlite3.Connection, lane: str) -> list[tuple[str, UnitSeen]]:
    """By path of a module, units that were executed while it was imported; sorted."""
    rows = connection.execute(
        "SELECT m.path, f.path, v.name, v.kind, v.fingerprint FROM import_unit i "
        "JOIN lane l ON l.id = i.lane JOIN file m ON m.id = i.file JOIN file f ON f.id = i.unit_file "
        "JOIN unit_version v ON v.file = i.unit_file AND v.id = i.unit_version WHERE l.name = ?",
        (to_text(lane),),
    )
    found = [
        (
            from_text(module),
            UnitSeen(
                path=from_text(path),
                name=from_text(name),
                kind=kind_from_code(kind),
                fingerprint=fingerprint.hex(),
            ),
        )
        for module, path, name, kind, fingerprint in rows
    ]
    return sorted(found, key=lambda item: (item[0], item[1].path, item[1].name, item[1].fingerprint))

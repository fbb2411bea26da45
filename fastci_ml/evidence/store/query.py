"""Questions of the planner: which records executed, read or listed something."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from fastci_ml.evidence.store import schema
from fastci_ml.evidence.store.segments import Segment, segments_in
from fastci_ml.evidence.store.texts import from_text, to_digits, to_text
from fastci_ml.evidence.store.touched import Touched

T = TypeVar("T")
UnitName = tuple[str, str]
FileBlob = tuple[str, str | None]

# Old releases of SQLite take 999 parameters in a statement.
_N_PAIRS = 300
_N_THINGS = 900


def by_units(
    connection: sqlite3.Connection, units: Iterable[UnitName], lane: str, scopes: Sequence[str]
) -> Touched[UnitName]:
    """Records that executed units, in whatever version."""
    return _by_unit_versions(connection, dict.fromkeys(units, frozenset()), lane, scopes)


def by_changes(
    connection: sqlite3.Connection,
    changes: Mapping[UnitName, Collection[str]],
    lane: str,
    scopes: Sequence[str],
) -> Touched[UnitName]:
    """Records that executed a version of a unit that is not one of those at the head."""
    at_head = {unit: frozenset(map(to_digits, prints)) for unit, prints in changes.items()}
    return _by_unit_versions(connection, at_head, lane, scopes)


def _by_unit_versions(
    connection: sqlite3.Connection,
    at_head: Mapping[UnitName, frozenset[bytes]],
    lane: str,
    scopes: Sequence[str],
) -> Touched[UnitName]:
    things: dict[int, UnitName] = {}
    for some in _slices(list(at_head), _N_PAIRS):
        values = ", ".join(["(?, ?)"] * len(some))
        given = [to_text(text) for unit in some for text in unit]
        rows = connection.execute(
            f"WITH wanted (path, name) AS (VALUES {values}) "  # noqa: S608
            "SELECT w.path, w.name, v.fingerprint, v.id FROM wanted w CROSS JOIN file f ON f.path = w.path "
            "CROSS JOIN unit_version v ON v.file = f.id AND v.name = w.name",
            given,
        )
        for path, name, fingerprint, version in rows:
            unit = (from_text(path), from_text(name))
            if fingerprint not in at_head[unit]:
                things[version] = unit
    return _touched(connection, schema.UNIT, things, lane, scopes)


def by_files(
    connection: sqlite3.Connection, role: int, paths: Iterable[str], lane: str, scopes: Sequence[str]
) -> Touched[FileBlob]:
    """Records that read or listed a path, by the version of it that they saw."""
    things: dict[int, FileBlob] = {}
    for some in _slices(list(dict.fromkeys(paths)), _N_THINGS):
        rows = connection.execute(
            "SELECT f.path, v.blob, v.id FROM file f JOIN file_version v ON v.file = f.id "  # noqa: S608
            f"WHERE f.path IN ({_marks(some)})",
            [to_text(path) for path in some],
        )
        things.update((version, (from_text(path), blob.hex() or None)) for path, blob, version in rows)
    return _touched(connection, role, things, lane, scopes)


def by_modules(
    connection: sqlite3.Connection, paths: Iterable[str], lane: str, scopes: Sequence[str]
) -> Touched[str]:
    """Records that executed any unit of a file."""
    things: dict[int, str] = {}
    for some in _slices(list(dict.fromkeys(paths)), _N_THINGS):
        rows = connection.execute(
            "SELECT f.path, v.id FROM file f JOIN unit_version v ON v.file = f.id "  # noqa: S608
            f"WHERE f.path IN ({_marks(some)})",
            [to_text(path) for path in some],
        )
        things.update((version, from_text(path)) for path, version in rows)
    return _touched(connection, schema.UNIT, things, lane, scopes)


def by_roots(
    connection: sqlite3.Connection, paths: Iterable[str], lane: str, scopes: Sequence[str]
) -> Touched[str]:
    """Records whose import closure starts at a file."""
    things: dict[int, str] = {}
    for some in _slices(list(dict.fromkeys(paths)), _N_THINGS):
        rows = connection.execute(
            f"SELECT path, id FROM file WHERE path IN ({_marks(some)})",  # noqa: S608
            [to_text(path) for path in some],
        )
        things.update((id_, from_text(path)) for path, id_ in rows)
    return _touched(connection, schema.ROOT, things, lane, scopes)


def _touched(
    connection: sqlite3.Connection, role: int, things: Mapping[int, T], lane: str, scopes: Sequence[str]
) -> Touched[T]:
    segments = segments_in(connection, lane, scopes) if things else []
    lists: dict[T, list[tuple[int, bytes]]] = {}
    for thing, place, blob in _lists(connection, segments, role, sorted(things)):
        lists.setdefault(things[thing], []).append((place, blob))
    return Touched(segments, lists)


def _lists(
    connection: sqlite3.Connection, segments: Sequence[Segment], role: int, things: Sequence[int]
) -> Iterator[tuple[int, int, bytes]]:
    for place, segment in enumerate(segments):
        for some in _slices(things, _N_THINGS):
            rows = connection.execute(
                f"SELECT id, ids FROM posting WHERE id IN ({_marks(some)})",  # noqa: S608
                [schema.posting_key(segment.id, role, thing) for thing in some],
            )
            for key, blob in rows:
                yield schema.thing_of(key), place, blob


def _slices(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(things), size):
        yield things[first : first + size]


def _marks(things: Sequence[object]) -> str:
    return ", ".join("?" * len(things))

"""SQLite files of other programs, or of strangers: opened so that reading them is all that can happen.

What such a file may hold beside rows: views and computed columns that call functions, virtual tables, and
queries without end behind the name of a table. None of them is needed here, so all are refused.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from fastci_ml.errors import EvidenceError, ReportError
from fastci_ml.sources.regular_files import open_regular

_MAGIC = b"SQLite format 3\0"
# Before release 5 the file of coverage.py was text, and said so.
_OLD_COVERAGE = b"!coverage.py:"
# What lies beside a database whose last writer was cut off, or still writes.
_UNFINISHED = ("-wal", "-journal")
_MAX_VALUE_BYTES = 64 << 20
_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
_SCHEMA = "SELECT name, type, sql FROM sqlite_master"
_PRAGMAS = ("user_version", "quick_check", "table_xinfo")

Tables = Mapping[str, Sequence[str]]


@contextmanager
def open_foreign(path: Path, what: str) -> Iterator[sqlite3.Connection]:
    """Open a file for reading, with nothing written beside it.

    Parameters
    ----------
    path : Path
        The file. If its writer was cut off, a copy is opened, so that what it wrote last is seen.
    what : str
        What it should be, for messages.

    Raises
    ------
    EvidenceError
        If it is no SQLite file; also for every error of SQLite while it is open.
    """
    _check_kind(path, what)
    with tempfile.TemporaryDirectory(prefix="fastci-import-") as folder:
        try:
            target = _settled(path, Path(folder))
            # Python's own wrapper would decode with the rules of UTF-8; tools write what they were given.
            with closing(sqlite3.connect(target, uri=True)) as connection:
                connection.text_factory = _text
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.execute("PRAGMA cell_size_check = ON")
                # They are expressions, which a check of the tables would compute for every row.
                connection.execute("PRAGMA ignore_check_constraints = ON")
                connection.set_authorizer(_authorize)
                yield connection
        except sqlite3.Error as error:
            raise EvidenceError(f"{path}: cannot be read as {what}: {error}") from error
        except OSError as error:
            raise EvidenceError(f"{path}: cannot be read: {error}") from error


def check_tables(connection: sqlite3.Connection, path: Path, tables: Tables, what: str) -> None:
    """Refuse a file that lacks one of the tables, has something else in its place, or is damaged there."""
    kinds = {name: (kind, sql) for name, kind, sql in connection.execute(_SCHEMA)}
    for table, columns in tables.items():
        kind, sql = kinds.get(table, (None, None))
        if kind is None:
            raise EvidenceError(f"{path}: no table {table!r}, expected {what}")
        if kind != "table" or not str(sql).upper().startswith("CREATE TABLE"):
            raise EvidenceError(f"{path}: {table!r} is no plain table, expected {what}")
        # The last value tells columns that are computed from those that are kept.
        known = {row[1]: row[6] for row in connection.execute(f"PRAGMA table_xinfo({table})")}
        for column in columns:
            if known.get(column) != 0:
                raise EvidenceError(
                    f"{path}: table {table!r} has no plain column {column!r}, expected {what}"
                )
        # Nothing else of the file is looked at: what it holds beside is not ours to compute.
        found = connection.execute(f"PRAGMA quick_check({table})").fetchone()
        if found != ("ok",):
            raise EvidenceError(f"{path}: damaged: {found[0] if found else 'no answer'}")


def _check_kind(path: Path, what: str) -> None:
    try:
        with open_regular(path) as stream:
            head = stream.read(len(_MAGIC))
    except ReportError as error:
        raise EvidenceError(str(error)) from error
    except OSError as error:
        raise EvidenceError(f"{path}: cannot be read: {error}") from error
    if head.startswith(_OLD_COVERAGE):
        raise EvidenceError(
            f"{path}: data of coverage.py before 5, expected {what}", hint="pip install --upgrade coverage"
        )
    if head != _MAGIC:
        raise EvidenceError(f"{path}: begins with {head[:16]!r}, expected {what}, an SQLite file")


def _settled(path: Path, folder: Path) -> str:
    """Address of the file, or of a copy in which what its writer left unfinished can be settled."""
    unfinished = [
        other
        for other in (path.with_name(path.name + suffix) for suffix in _UNFINISHED)
        if other.is_file() and other.stat().st_size
    ]
    if not unfinished:
        # Without locks, and without the files that SQLite would make beside it.
        return f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    for file in (path, *unfinished):
        shutil.copyfile(file, folder / file.name)
    return f"{(folder / path.name).as_uri()}?mode=rw"


def _authorize(
    action: int, first: str | None, _second: str | None, _base: str | None, view: str | None
) -> int:
    # The last argument names the view or trigger that asks, and none may.
    if view is not None:
        return sqlite3.SQLITE_DENY
    is_allowed = action in _ALLOWED or (action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS)
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")

"""Opening the store's file, and what SQLite's errors mean to a person."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.store import schema

# How long one process waits for another's transaction; a module constant, so that a test need not wait.
BUSY_TIMEOUT_S = 60.0
_CACHE_KIB = 64 << 10


def connect(path: Path, *, create: bool, read_only: bool) -> sqlite3.Connection:
    """Open the store's file, make or upgrade it where allowed.

    Raises
    ------
    EvidenceError
        If there is none, or it is no store of ours, damaged, of a version that we cannot use, or not
        accessible. The file is never changed then.
    """
    if path.is_dir():
        raise EvidenceError(
            f"{path}: found a folder, expected the file of the evidence store", hint=f"rmdir {_quoted(path)}"
        )
    if not path.exists():
        if read_only or not create:
            raise EvidenceError(f"{path}: no such file, so there is no evidence yet", hint="fastci-ml merge")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EvidenceError(f"{path.parent}: cannot be made: {error}") from error
    mode = "ro" if read_only else "rwc" if create else "rw"
    with translated(path):
        try:
            return _opened(path, mode)
        except sqlite3.OperationalError as error:
            if not read_only or error.sqlite_errorname != "SQLITE_READONLY_ROLLBACK":
                raise
        # A writer was killed. Reading undoes what it left, for which the file must be open for writing.
        undoing = _connection(path, "rw")
        try:
            undoing.execute("PRAGMA user_version")
        finally:
            undoing.close()
        return _opened(path, mode)


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    connection = _connection(path, mode)
    try:
        _prepare(connection, path, create=mode == "rwc", read_only=mode == "ro")
    except BaseException:
        connection.close()
        raise
    return connection


def _connection(path: Path, mode: str) -> sqlite3.Connection:
    # As an address: it takes any path, and the mode. Transactions are begun by ourselves.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None
    )


def _prepare(connection: sqlite3.Connection, path: Path, *, create: bool, read_only: bool) -> None:
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    found = _version(connection, path)
    if found == schema.VERSION:
        return
    if found is None and (read_only or not create):
        raise EvidenceError(f"{path}: an empty file, so there is no evidence yet", hint="fastci-ml merge")
    if read_only:
        raise EvidenceError(
            f"{path}: schema {found}, expected {schema.VERSION}; it is opened for reading only",
            hint="fastci-ml merge",
        )
    if found is None:
        # Before the first table, or never. So the transaction of a compaction can shrink the file, too.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    with writing(connection):
        # Asked again: another process may have been here before us.
        found = _version(connection, path)
        if found is None:
            for statement in schema.statements(schema.TABLES):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        else:
            for version in range(found, schema.VERSION):
                schema.UPGRADES[version](connection)
        connection.execute(f"PRAGMA user_version = {schema.VERSION}")


def _version(connection: sqlite3.Connection, path: Path) -> int | None:
    """Version of the schema; None for an empty file."""
    # In one state of the file: another process may make the tables just now.
    with reading_state(connection):
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (n_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == 0 and version == 0 and n_tables == 0:
        return None
    if application != schema.APPLICATION_ID:
        raise EvidenceError(
            f"{path}: an SQLite file of another program (application id {application:#x}), expected "
            f"{schema.APPLICATION_ID:#x}",
            hint=_aside(path),
        )
    oldest = min(schema.UPGRADES, default=schema.VERSION)
    if version > schema.VERSION:
        raise EvidenceError(
            f"{path}: schema {version}, expected {schema.VERSION}; a later fastci-ml wrote it",
            hint="pip install --upgrade fastci-ml",
        )
    if version < oldest:
        raise EvidenceError(f"{path}: schema {version}, expected {oldest} or later", hint=_aside(path))
    return int(version)


# The second where SQLite's own message quotes a damaged name, which the interpreter then cannot decode.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction for writing: all of it, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some errors SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def reading_state(connection: sqlite3.Connection) -> Iterator[None]:
    """One state of the store for several statements: between them another process may compact."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Errors of SQLite, as what was found and what to type."""
    try:
        yield
    except SQLITE_ERRORS as error:
        raise explained(path, error) from error


def explained(path: Path, error: Exception) -> EvidenceError:
    """What an error of SQLite means."""
    name: str = getattr(error, "sqlite_errorname", "")
    folder = _quoted(path.parent)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return EvidenceError(
            f"{path}: another process has kept it for {BUSY_TIMEOUT_S:g} s: {error}",
            hint=f"wait for it, then repeat the command; who it is: fuser -v {_quoted(path)}",
        )
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return EvidenceError(
            f"{path}: not written, the store is as before: {error} (disk full, a limit on file sizes, or "
            "the disk failed)",
            hint=f"df -h {folder}; ulimit -f",
        )
    if name == "SQLITE_READONLY_ROLLBACK":
        return EvidenceError(
            f"{path}: a process was killed while it wrote, and undoing that needs write access: {error}",
            hint=f"ls -ld {folder} {_quoted(path)}",
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return EvidenceError(f"{path}: no access: {error}", hint=f"ls -ld {folder} {_quoted(path)}")
    if name.startswith("SQLITE_NOTADB"):
        return EvidenceError(f"{path}: no SQLite file, expected the evidence store", hint=_aside(path))
    return EvidenceError(f"{path}: damaged, or not of the schema that it states: {error}", hint=_aside(path))


def _aside(path: Path) -> str:
    return f"mv {_quoted(path)} {_quoted(path.with_name(path.name + '.aside'))} && fastci-ml merge"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))

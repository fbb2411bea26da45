"""Upgrade a local MLflow database on request: with a backup, as a whole or not at all.

The file is locked, copied twice, and the second copy is migrated and checked. Only then do its pages go back
into the file, in one SQLite transaction. Whatever dies before leaves the file as it was; a process that is
killed while the pages go back leaves a journal, from which the next to open the file restores it. A rename
would be simpler, but who has the old file open would go on writing into what nobody reads any more.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fastci_ml.errors import RegistryError
from fastci_ml.learn.registry.database import BUSY_S, check_integrity, database_error, read_revision
from fastci_ml.learn.registry.revisions import known_revisions, migrate
from fastci_ml.records.progress import ProgressHook, silent

# What trainings and outcomes leave; no migration may make less of it.
_EVIDENCE = (
    "experiments",
    "runs",
    "metrics",
    "params",
    "tags",
    "registered_models",
    "registered_model_tags",
    "registered_model_aliases",
    "model_versions",
    "model_version_tags",
    "logged_models",
    "logged_model_metrics",
)
_PAGES_A_STEP = 256
_STEPS = ("lock the database", "back it up", "migrate a copy", "check the copy", "write it back")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What an upgrade did.

    Attributes
    ----------
    path : Path
        The database.
    before, after : str
        Its revisions; equal where nothing was to be done.
    backup : Path or None
        The database as it was; None where nothing was to be done.
    """

    path: Path
    before: str
    after: str
    backup: Path | None


def upgrade_database(path: Path, *, now: datetime, progress: ProgressHook = silent) -> Upgrade:
    """Bring a database of an earlier MLflow to the revision of the installed one.

    Parameters
    ----------
    path : Path
        The SQLite file.
    now : datetime
        Stands in the name of the backup, which is kept beside the file.
    progress : ProgressHook
        Called before each step, and with each 256 pages that went back.

    Raises
    ------
    RegistryError
        If there is no database, it is of a later release, it is in use, or a step fails; the message says
        how the file is left, and where the backup is.
    """
    before, expected = read_revision(path), known_revisions()[-1]
    if before is None:
        raise RegistryError(f"{path}: no such database", hint="fastci-ml train   # makes one")
    if before not in known_revisions():
        raise RegistryError(
            f"{path}: schema revision {before} is not known here, so there is no way from it to {expected}",
            hint="pip install --upgrade mlflow",
        )
    if before == expected:
        return Upgrade(path=path, before=before, after=before, backup=None)
    path = path.resolve()
    progress(_STEPS[0], 0, len(_STEPS))
    with _locked(path) as connection:
        if _revision_of(connection) != before:
            raise RegistryError(
                f"{path}: upgraded by another process meanwhile, nothing is done", hint="fastci-ml models"
            )
        progress(_STEPS[1], 1, len(_STEPS))
        backup = _back_up(path, connection, f"{before}-{now:%Y%m%dT%H%M%S}")
        with _told(path, backup), _copy_to_migrate(path, connection) as copy:
            progress(_STEPS[2], 2, len(_STEPS))
            migrate(copy)
            progress(_STEPS[3], 3, len(_STEPS))
            with contextlib.closing(sqlite3.connect(copy)) as migrated:
                _check_migrated(copy, migrated, expected, _counts(connection))
                progress(_STEPS[4], 4, len(_STEPS))
                migrated.backup(
                    connection,
                    pages=_PAGES_A_STEP,
                    progress=lambda _, left, total: progress("pages", total - left, total),
                )
    # Reports of upgrades that succeeded and changed nothing are why this is looked at once more.
    after = read_revision(path)
    if after != expected:
        raise RegistryError(
            f"{path}: schema revision is {after} after the upgrade, expected {expected}",
            hint=f"cp {backup} {path}",
        )
    progress("upgraded", len(_STEPS), len(_STEPS))
    return Upgrade(path=path, before=before, after=after, backup=backup)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Connection beside which nobody reads or writes, until it is closed or its process dies."""
    # `rw` says that the file is to be there: SQLite would make one.
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_S)
        ) as connection:
            # The lock of a transaction ends with it, and an open one would be in the way of the pages that go
            # back; in this mode the lock stays.
            connection.execute("pragma locking_mode = exclusive")
            connection.execute("begin exclusive")
            connection.execute("commit")
            yield connection
    except sqlite3.Error as error:
        raise database_error(path, error) from error


@contextlib.contextmanager
def _told(path: Path, backup: Path) -> Iterator[None]:
    """Say of any failure that the file is as it was."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (CommandError, MlflowException, SQLAlchemyError, RegistryError, OSError, sqlite3.Error) as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RegistryError(
            f"{path}: not upgraded, it is as it was (backup: {backup}): {text}",
            hint="set tracking_uri to another database in [tool.fastci], or install the MLflow that made it",
        ) from error


def _back_up(path: Path, connection: sqlite3.Connection, name: str) -> Path:
    """Copy the database beside it under a name of its own, and read the copy through."""
    backup = path.with_name(f"{path.name}.{name}.bak")
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.bak")
    try:
        with contextlib.closing(sqlite3.connect(fresh)) as copied:
            connection.backup(copied)
            check_integrity(path, copied)
            if _counts(copied) != _counts(connection):
                raise RegistryError(f"{fresh}: the backup holds other rows than {path}: nothing is upgraded")
        shutil.copymode(path, fresh)
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        if backup.exists():
            raise RegistryError(
                f"{backup}: is there already: nothing is upgraded", hint="fastci-ml models upgrade"
            )
        fresh.rename(backup)  # nobody else gives this name: we hold the lock
    except (OSError, sqlite3.Error) as error:
        raise RegistryError(
            f"{path}: no backup can be made, so nothing is upgraded: {error}", hint=f"df -h {path.parent}"
        ) from error
    finally:
        fresh.unlink(missing_ok=True)
    return backup


@contextlib.contextmanager
def _copy_to_migrate(path: Path, connection: sqlite3.Connection) -> Iterator[Path]:
    """Copy that is removed in the end; those that killed upgrades left go as well."""
    for left in _files(path.parent, f".{path.name}.", "*.upgrade*"):
        left.unlink()  # nobody's: we hold the lock
    copy = path.with_name(f".{path.name}.{secrets.token_hex(8)}.upgrade")
    try:
        with contextlib.closing(sqlite3.connect(copy)) as copied:
            connection.backup(copied)
        yield copy
    finally:
        for file in _files(path.parent, copy.name, "*"):
            file.unlink()


def _files(folder: Path, start: str, rest: str) -> list[Path]:
    return list(folder.glob(glob.escape(start) + rest))


def _check_migrated(
    copy: Path, migrated: sqlite3.Connection, expected: str, counts: Mapping[str, int]
) -> None:
    found = _revision_of(migrated)
    if found != expected:
        raise RegistryError(f"the migrations ended without an error at revision {found}, expected {expected}")
    check_integrity(copy, migrated)
    after = _counts(migrated)
    less = [
        f"{table} ({n} rows, now {after.get(table, 0)})"
        for table, n in counts.items()
        if after.get(table, 0) < n
    ]
    if less:
        raise RegistryError(f"the migrations would lose rows of {', '.join(less)}")


def _revision_of(connection: sqlite3.Connection) -> str:
    return ", ".join(str(row[0]) for row in connection.execute("select version_num from alembic_version"))


def _counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Rows of each table of evidence that is there."""
    found = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    return {
        table: connection.execute(f"select count(*) from {table}").fetchone()[0]  # noqa: S608  names of ours
        for table in _EVIDENCE
        if table in found
    }

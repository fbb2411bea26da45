"""Open a store with MLflow: quietly, within seconds, and only where MLflow changes nothing unasked."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fastci_ml.errors import RegistryError
from fastci_ml.learn.registry.database import check_open, database_error, read_revision
from fastci_ml.learn.registry.reach import is_database, is_sqlite, registry_error, shown, sqlite_path
from fastci_ml.learn.registry.revisions import ask_revision, check_revision, create_database

if TYPE_CHECKING:
    from mlflow import MlflowClient

# MLflow's own defaults wait for minutes: seven tries of two minutes. What a user sets wins.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # It logs the traceback of each error that it raises as well, and we tell those in a line.
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    # stdout is the answer of our commands.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


@contextlib.contextmanager
def open_client(uri: str, *, upgrade: str) -> Iterator[MlflowClient]:
    """Client of a store; every failure of it becomes a RegistryError.

    Parameters
    ----------
    uri : str
        The store; an SQLite file is made where there is none.
    upgrade : str
        Command that upgrades the database, for the hint.

    Raises
    ------
    RegistryError
        If MLflow is not installed, the store is of another release, or it fails while it is used.
    """
    with quiet_mlflow():
        failures = import_mlflow(uri)
        from mlflow import MlflowClient

        try:
            if is_sqlite(uri):
                _prepare(sqlite_path(uri), upgrade)
            elif is_database(uri):
                found = ask_revision(uri)
                if found is not None:
                    # A backup of it is not ours to make, so neither is the upgrade.
                    command = "after a backup, where the database lies: mlflow db upgrade DATABASE_URI"
                    check_revision(shown(uri), found, upgrade=command)
            yield MlflowClient(tracking_uri=uri, registry_uri=uri)
        except failures as error:
            of_sqlite = _of_sqlite(error) if is_sqlite(uri) else None
            if of_sqlite is not None:
                raise database_error(sqlite_path(uri), of_sqlite) from error
            raise registry_error(uri, error) from error


def _of_sqlite(error: BaseException | None) -> sqlite3.Error | None:
    """What SQLite said, below what SQLAlchemy and MLflow made of it."""
    while error is not None:
        original = getattr(error, "orig", error)
        if isinstance(original, sqlite3.OperationalError) or type(original) is sqlite3.DatabaseError:
            return original
        error = error.__cause__
    return None


@contextlib.contextmanager
def quiet_mlflow() -> Iterator[None]:
    """Give MLflow our settings, where the user gives none."""
    # MLflow reads them at each request, so they are set for as long as we talk to it.
    added = {key: value for key, value in _ENVIRONMENT.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            os.environ.pop(key, None)


def import_mlflow(uri: str) -> tuple[type[Exception], ...]:
    """Load MLflow; the errors of it and of what it stands on.

    Raises
    ------
    RegistryError
        If it is not installed.
    """
    try:
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise RegistryError("MLflow is not installed", hint="pip install mlflow") from error
    # Errors of requests are OSErrors; a database may lack its driver.
    failures: tuple[type[Exception], ...] = (MlflowException, OSError, ImportError)
    if is_database(uri):
        from alembic.util import CommandError
        from sqlalchemy.exc import SQLAlchemyError

        failures = (*failures, CommandError, SQLAlchemyError)
    return failures


def _prepare(path: Path, upgrade: str) -> None:
    """Make the database where there is none, and refuse one that MLflow would change unasked."""
    found = read_revision(path)
    if found is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        create_database(path)
    else:
        check_revision(str(path), found, upgrade=f"{upgrade}   # keeps a backup")
    check_open(path)

"""Outcomes that wait for the registry: one JSON file each, sent later, never lost, never counted twice."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastci_ml.errors import DataError, FastCIError

if TYPE_CHECKING:
    from fastci_ml.learn.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushReport:
    """What a flush did.

    Attributes
    ----------
    n_sent : int
        Records that the registry took.
    failures : mapping of Path to FastCIError
        Files that stay, and why.
    """

    n_sent: int
    failures: Mapping[Path, FastCIError]


class Spool:
    """A folder of waiting outcome records.

    Parameters
    ----------
    directory : Path
        Made by the first `add`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def add(self, record: Mapping[str, Any]) -> Path:
        """Keep a record; one with the same ``outcome_id`` is replaced.

        Raises
        ------
        DataError
            If it has no ``outcome_id``, or the folder cannot be written.
        """
        outcome_id = record.get("outcome_id")
        if not isinstance(outcome_id, str) or not outcome_id:
            raise DataError(f"outcome record: outcome_id is {outcome_id!r}, expected text")
        # An id may hold anything, so the file is named by its digest.
        path = self.directory / f"{hashlib.sha256(outcome_id.encode()).hexdigest()}.json"
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with fresh.open("w", encoding="utf-8") as file:
                json.dump(record, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise DataError(f"{self.directory}: the outcome cannot be kept: {error.strerror}") from error
        return path

    def files(self) -> list[Path]:
        """Waiting records, by name."""
        # Hidden files are records that are being written.
        return sorted(path for path in self.directory.glob("*.json") if not path.name.startswith("."))

    def flush(self, registry: Registry) -> FlushReport:
        """Send every record; one that fails stays, and the others still get their turn.

        Raises
        ------
        RegistryError
            If the registry is away: then nothing was tried.
        """
        files = self.files()
        if files:
            registry.check()
        n_sent = 0
        failures: dict[Path, FastCIError] = {}
        for path in files:
            try:
                registry.log_outcome(_read(path))
            except FastCIError as error:
                failures[path] = error
            else:
                path.unlink(missing_ok=True)  # another flush may have sent it too: it counts once
                n_sent += 1
        return FlushReport(n_sent=n_sent, failures=failures)


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no outcome record: {error}") from error
    if not isinstance(record, dict):
        raise DataError(f"{path}: {type(record).__name__} at the top, expected an object")
    return record

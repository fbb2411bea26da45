"""``run.json``: what a CI knows of a run and its reports do not say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fastci_ml.errors import ReportError
from fastci_ml.records.changes import ChangeStatus, FileChange

NAME = "run.json"
SCHEMA = "fastci.run/1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = ("run_id", "job", "shard", "lane", "base", "head")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What is known of a run before its reports are read.

    Attributes
    ----------
    run_id, job, shard, lane, base, head : str
        Empty when not stated.
    started_us, finished_us : int or None
        Microseconds since 1970; None when not stated.
    changes : tuple of FileChange or None
        Files that the run's change touched; None when not stated.
    """

    run_id: str = ""
    job: str = ""
    shard: str = ""
    lane: str = ""
    base: str = ""
    head: str = ""
    started_us: int | None = None
    finished_us: int | None = None
    changes: tuple[FileChange, ...] | None = None


def read_run_file(path: Path) -> RunInfo:
    """Read one ``run.json``.

    Raises
    ------
    ReportError
        Names the key at fault. A run without `run_id` is refused: its reports could not be told from others.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ReportError(f"{path}: no readable JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ReportError(f"{path}: schema {found}, expected {SCHEMA}")
    texts = {key: _take(path, document, key, str, "") for key in _TEXTS}
    if not texts["run_id"]:
        raise ReportError(f"{path}: no run_id")
    started_us, finished_us = (_time_us(path, document, key) for key in ("started_at", "finished_at"))
    if started_us is not None and finished_us is not None and finished_us < started_us:
        raise ReportError(f"{path}: finished_at lies before started_at")
    entries = document.get("changes")
    changes = None
    if entries is not None:
        entries = _take(path, document, "changes", list, [])
        changes = tuple(_change(path, place, entry) for place, entry in enumerate(entries))
    return RunInfo(**texts, started_us=started_us, finished_us=finished_us, changes=changes)


def parse_time_us(text: str) -> int:
    """Microseconds since 1970 of an ISO 8601 time, UTC where it has no zone; ValueError if it is none."""
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _take(path: Path, document: dict[str, Any], key: str, kind: type, default: Any) -> Any:
    value = document.get(key)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise ReportError(f"{path}: {key} is {type(value).__name__}, expected {kind.__name__}")
    return value


def _time_us(path: Path, document: dict[str, Any], key: str) -> int | None:
    text = _take(path, document, key, str, None)
    if text is None:
        return None
    try:
        return parse_time_us(text)
    except ValueError as error:
        raise ReportError(f"{path}: {key} is {text!r}, expected an ISO 8601 time") from error


def _change(path: Path, place: int, entry: object) -> FileChange:
    name = f"changes[{place}]"
    if not isinstance(entry, dict):
        raise ReportError(f"{path}: {name} is {type(entry).__name__}, expected an object")
    file = _take(path, entry, "path", str, "")
    if not file:
        raise ReportError(f"{path}: {name} has no path")
    letter = _take(path, entry, "status", str, "M")
    try:
        status = ChangeStatus(letter[:1])  # git writes a similarity behind R and C
    except ValueError as error:
        raise ReportError(
            f"{path}: {name} has status {letter!r}, expected one of {', '.join(ChangeStatus)}"
        ) from error
    return FileChange(
        path=file,
        old_path=_take(path, entry, "old_path", str, ""),
        status=status,
        n_added=_count(path, entry, "n_added"),
        n_deleted=_count(path, entry, "n_deleted"),
    )


def _count(path: Path, entry: dict[str, Any], key: str) -> float:
    value = entry.get(key)
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise ReportError(f"{path}: {key} is {value!r}, expected a count or null")
    return float(value)

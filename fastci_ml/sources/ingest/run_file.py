"""``run.json``: what a CI knows of a run and its reports do not say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from fastci_ml.errors import ReportError
from fastci_ml.records.changes import ChangeStatus, FileChange
from fastci_ml.records.ids import NodeId, parse_project, read_collected
from fastci_ml.sources.failures.run_logs import RunLogs, parse_run_logs
from fastci_ml.sources.ingest.list_caps import find_cap
from fastci_ml.sources.regular_files import read_regular

NAME = "run.json"
SCHEMA = "fastci.run/1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = ("run_id", "job", "shard", "lane", "base", "head")
# A hundred times what the largest known suite and a pull request of 3,000 files need.
_MOST_BYTES = 1 << 26
_MOST_LETTERS = 1000
MOST_SHARDS = 100_000
MOST_ATTEMPTS = 100_000


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
    attempt : int or None
        Which attempt of the CI at the job this is, from 1; None when not stated.
    n_shards : int or None
        Shards that the job has; None when not stated.
    project : str or None
        Folder from the top of the repository that the ids start at; None when not stated.
    selected : tuple of NodeId or None
        Tests that were to run, as pytest prints them there; None when not stated.
    change_doubt : str
        Why `changes` may be a part of what changed; empty where nothing speaks for that.
    notes : tuple of str
        What was odd, for a person.
    logs : tuple of RunLogs
        Logs of the processes of its tests.
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
    attempt: int | None = None
    n_shards: int | None = None
    project: str | None = None
    selected: tuple[NodeId, ...] | None = None
    change_doubt: str = ""
    notes: tuple[str, ...] = ()
    logs: tuple[RunLogs, ...] = ()

    def describe(self) -> str:
        """Name the run in words, as far as it is told from others.

        Examples
        --------
        >>> RunInfo(run_id="7", job="unit", shard="2/4", attempt=2).describe()
        'run 7, job unit, shard 2/4, attempt 2'
        """
        words = [f"run {self.run_id}"]
        words += [f"{name} {value}" for name, value in (("job", self.job), ("shard", self.shard)) if value]
        if (self.attempt or 1) > 1:
            words.append(f"attempt {self.attempt}")
        return ", ".join(words)


def read_run_file(path: Path) -> RunInfo:
    """Read one ``run.json``.

    Raises
    ------
    ReportError
        Names the key at fault. A run without `run_id` is refused: its reports could not be told from others.
    """
    content = read_regular(path, _MOST_BYTES)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = str(error) if content.strip() else "the file is empty"
        raise ReportError(f"{path}: no readable JSON: {reason}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ReportError(f"{path}: schema {found}, expected {SCHEMA}")
    texts = {key: _text(path, document, key) or "" for key in _TEXTS}
    if not texts["run_id"]:
        raise ReportError(f"{path}: no run_id")
    started_us, finished_us = (_time_us(path, document, key) for key in ("started_at", "finished_at"))
    if started_us is not None and finished_us is not None and finished_us < started_us:
        raise ReportError(f"{path}: finished_at lies before started_at")
    changes, change_doubt = _changes(path, document)
    selected, notes = _selected(path, document)
    return RunInfo(
        **texts,
        started_us=started_us,
        finished_us=finished_us,
        changes=changes,
        attempt=_whole(path, document, "attempt", MOST_ATTEMPTS),
        n_shards=_whole(path, document, "n_shards", MOST_SHARDS),
        project=_project(path, document),
        selected=selected,
        change_doubt=change_doubt,
        notes=notes,
        logs=parse_run_logs(path, document.get("logs")),
    )


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


def _text(path: Path, document: dict[str, Any], key: str) -> str | None:
    """Text that becomes part of a key: nobody means one of a thousand letters."""
    text: str | None = _take(path, document, key, str, None)
    if text is not None and len(text) > _MOST_LETTERS:
        raise ReportError(f"{path}: {key} has {len(text):,} letters, expected at most {_MOST_LETTERS:,}")
    return text


def _whole(path: Path, document: dict[str, Any], key: str, most: int) -> int | None:
    value = document.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ReportError(f"{path}: {key} is {value!r}, expected a whole number from 1 to {most:,}")
    return value


def _project(path: Path, document: dict[str, Any]) -> str | None:
    text = _text(path, document, "project")
    try:
        return None if text is None else parse_project(text)
    except ValueError as error:
        raise ReportError(f"{path}: {error}") from error


def _time_us(path: Path, document: dict[str, Any], key: str) -> int | None:
    text = _text(path, document, key)
    if text is None:
        return None
    try:
        return parse_time_us(text)
    except (ValueError, OverflowError) as error:
        raise ReportError(f"{path}: {key} is {text!r}, expected an ISO 8601 time") from error


def _selected(path: Path, document: dict[str, Any]) -> tuple[tuple[NodeId, ...] | None, tuple[str, ...]]:
    """Tests that were to run, and a note where the file that lists them cannot be used."""
    value = document.get("selected")
    if value is None:
        return None, ()
    if isinstance(value, list):
        odd = next((one for one in value if not isinstance(one, str) or not one), None)
        if odd is not None:
            raise ReportError(f"{path}: selected has {odd!r}, expected node ids")
        return tuple(map(NodeId, dict.fromkeys(value))), ()
    if not isinstance(value, str):
        raise ReportError(
            f"{path}: selected is {type(value).__name__}, expected a list or the name of a file"
        )
    name = PurePosixPath(value)
    # A file of strangers says which to open: nothing but what came with it.
    if name.is_absolute() or ".." in name.parts or "\0" in value:
        raise ReportError(f"{path}: selected is {value!r}, expected the name of a file beside it")
    # The reports are as good without the list, so its loss is no reason to leave them out.
    try:
        ids = read_collected(read_regular(path.parent / name, _MOST_BYTES).decode("utf-8", "surrogateescape"))
    except ReportError as error:
        return None, (f"the list of selected tests cannot be used: {error}",)
    if not ids:
        return None, (f"{path.parent / name}: no test in the list of selected tests, so it is unknown",)
    return tuple(map(NodeId, dict.fromkeys(ids))), ()


def _changes(path: Path, document: dict[str, Any]) -> tuple[tuple[FileChange, ...] | None, str]:
    """Files of the change, and why there may be more."""
    entries = _take(path, document, "changes", list, None)
    n_changed = document.get("n_changed_files")
    if isinstance(n_changed, bool) or not (n_changed is None or isinstance(n_changed, int)):
        raise ReportError(f"{path}: n_changed_files is {n_changed!r}, expected a count or null")
    if entries is None:
        return None, ""
    changes = tuple(_change(path, place, entry) for place, entry in enumerate(entries))
    if n_changed is not None:
        is_whole = n_changed == len(changes)
        return changes, "" if is_whole else f"lists {len(changes):,} files of {n_changed:,} that changed"
    cap = find_cap(len(changes))
    return changes, cap and f"lists {len(changes):,} files, as a list does that was cut off ({cap})"


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

"""Which logs a ``run.json`` or the command line names, and which test they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fastci_ml.errors import ReportError
from fastci_ml.records.ids import NodeId, with_project

# In place of a test: logs of the whole run.
WHOLE_RUN = ""


@dataclass(frozen=True, slots=True)
class RunLogs:
    """Files and folders of logs.

    Attributes
    ----------
    names : tuple of (str, tuple of str)
        Node id as pytest prints it there, or `WHOLE_RUN`, and the names of its logs.
    folder : Path
        Where the names start. No part of what is said of a run: a folder may be moved.
    """

    names: tuple[tuple[str, tuple[str, ...]], ...]
    folder: Path = field(repr=False)


def logs_by_test(logs: Sequence[RunLogs], project: str) -> dict[str, tuple[Path, ...]]:
    """Logs by node id from the top of the repository, or by `WHOLE_RUN`."""
    found: dict[str, tuple[Path, ...]] = {}
    for one in logs:
        for test, names in one.names:
            key = with_project(NodeId(test), project) if test else WHOLE_RUN
            found[key] = (*found.get(key, ()), *(one.folder / name for name in names))
    return found


def parse_run_logs(path: Path, value: object) -> tuple[RunLogs, ...]:
    """The key ``logs`` of a run.json.

    Parameters
    ----------
    path : Path
        The run.json, for messages and as the place where names start.
    value : object
        A name, a list of names, or an object of these by test. Strangers say which to open: nothing but what
        came with the file.

    Raises
    ------
    ReportError
        Names what was found and what was expected.
    """
    if value is None:
        return ()
    by_test = value if isinstance(value, dict) else {WHOLE_RUN: value}
    names = tuple((test, _names(path, test, one)) for test, one in by_test.items())
    return (RunLogs(names, path.parent),)


def _names(path: Path, test: str, value: object) -> tuple[str, ...]:
    key = f"logs[{test!r}]" if test else "logs"
    listed = value if isinstance(value, list) else [value]
    for name in listed:
        if not isinstance(name, str) or not name:
            raise ReportError(
                f"{path}: {key} is {name!r}, expected a name of a file or folder beside it, or a list of them"
            )
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or "\0" in name:
            raise ReportError(f"{path}: {key} is {name!r}, expected a file or folder beside it")
    return tuple(listed)

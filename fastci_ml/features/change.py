"""What a change looks like as a whole: size, spread, kinds, and the record of its files.

The record of a file is folded over time like that of a test: read at the start of a run, updated at its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.features.schema import CHANGE_FEATURES
from fastci_ml.records.changes import FileChange, FileKind, file_kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_CHANGE = len(CHANGE_FEATURES)

# A change of more files than this says nothing about any one of them: a mass edit, a vendored drop.
MAX_FILES_FOR_RECORD = 500


class FileRecord:
    """How often a file (or folder) was changed, in how many of those runs a test failed, and which tests.

    Attributes
    ----------
    n_changes, n_failed_runs : int
        Finished runs whose change touched the file, and those among them with a failure.
    n_failures : dict of int to int
        Test code -> its failures in those runs.
    """

    __slots__ = ("_arrays", "n_changes", "n_failed_runs", "n_failures")

    def __init__(self, n_changes: int = 0, n_failed_runs: int = 0) -> None:
        self.n_changes = n_changes
        self.n_failed_runs = n_failed_runs
        self.n_failures: dict[int, int] = {}
        self._arrays: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None

    def add(self, failed: Sequence[int]) -> None:
        """Count one more run whose change touched the file, and the tests that failed in it."""
        self.n_changes += 1
        if failed:
            self.n_failed_runs += 1
            self._arrays = None
            for code in failed:
                self.n_failures[code] = self.n_failures.get(code, 0) + 1

    def failures(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Codes of the tests that failed, in no order, and how often."""
        if self._arrays is None:
            codes = np.fromiter(self.n_failures.keys(), dtype=np.int64)
            self._arrays = codes, np.fromiter(self.n_failures.values(), dtype=np.float32)
        return self._arrays


class ChangeRecords:
    """The records of all files and folders, by lane.

    Keys are ``(lane, path)``; a folder's path ends in ``/``.
    """

    def __init__(self) -> None:
        self.records: dict[tuple[int, str], FileRecord] = {}

    def known(self, lane: int, paths: Iterable[str]) -> list[FileRecord]:
        """Records of those paths that have one."""
        found = (self.records.get((lane, path)) for path in paths)
        return [record for record in found if record is not None]

    def update(self, lane: int, files: tuple[FileChange, ...], failed: NDArray[np.int64]) -> None:
        """Fold in the change of a run that has ended, and the codes of the tests that failed in it."""
        if len(files) > MAX_FILES_FOR_RECORD:
            return
        codes = failed.tolist()
        for path in [*changed_paths(files), *changed_folders(files)]:
            self.records.setdefault((lane, path), FileRecord()).add(codes)


def changed_paths(files: tuple[FileChange, ...]) -> list[str]:
    """Every old and new path, each once, in order."""
    return list(dict.fromkeys(path for file in files for path in file.paths))


def changed_folders(files: tuple[FileChange, ...]) -> list[str]:
    """Folder of every path, each once, in order; ends in ``/``, the root is ``/``."""
    return list(dict.fromkeys(folder_of(path) for path in changed_paths(files)))


def folder_of(path: str) -> str:
    """Folder of a path, with its ``/``; the root is ``/``."""
    return path.rpartition("/")[0] + "/"


def change_features(
    files: tuple[FileChange, ...] | None, lane: int, records: ChangeRecords
) -> NDArray[np.float32]:
    """Values of `CHANGE_FEATURES`, shape (N_CHANGE,); all NaN where the change is unknown."""
    values = np.full(N_CHANGE, np.nan, dtype=np.float32)
    if files is None:
        return values
    n_files = len(files)
    lines = [n for file in files for n in (file.n_added, file.n_deleted) if not math.isnan(n)]
    kinds = [file_kind(file.path) for file in files]
    known = records.known(lane, changed_paths(files))
    values[:] = (
        n_files,
        sum(lines) if lines or not n_files else math.nan,
        len(changed_folders(files)),
        *(kinds.count(kind) / max(1, n_files) for kind in (FileKind.TEST, FileKind.SOURCE, FileKind.CONFIG)),
        max((record.n_changes for record in known), default=0),
        max((record.n_failed_runs / record.n_changes for record in known), default=math.nan),
    )
    return values

"""How near a test stands to a change: its own file, names, folders, and failing together in the past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.features.change import ChangeRecords, changed_folders, changed_paths
from fastci_ml.features.schema import AFFINITY_FEATURES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastci_ml.features.names import NameIndex
    from fastci_ml.records.changes import FileChange

N_AFFINITY = len(AFFINITY_FEATURES)


def affinity_features(
    files: tuple[FileChange, ...] | None,
    lane: int,
    tests: NDArray[np.int64],
    names: NameIndex,
    records: ChangeRecords,
    out: NDArray[np.float32],
) -> None:
    """Write `AFFINITY_FEATURES` of `tests` for a change.

    Parameters
    ----------
    files : tuple of FileChange or None
        The change; None leaves NaN, an empty change gives 0.
    lane : int
        Lane of the run.
    tests : int64, shape (k,)
        Test codes.
    names, records
        What is known of tests and files when the run starts.
    out : float32, shape (N_AFFINITY, k)
        Filled.
    """
    if files is None:
        out[:] = np.nan
        return
    paths, folders = changed_paths(files), changed_folders(files)
    near = names.near(tests)
    out[0] = near.own_file(paths)
    out[1] = near.name_affinity(paths)
    out[2] = near.folder_affinity(folders)
    n_codes = int(tests.max()) + 1 if len(tests) else 0
    out[3] = _cofail_rate(records, lane, paths, n_codes)[tests]
    out[4] = _cofail_rate(records, lane, folders, n_codes)[tests]


def _cofail_rate(
    records: ChangeRecords, lane: int, paths: Sequence[str], n_codes: int
) -> NDArray[np.float32]:
    """Highest (failures with a path) / (changes of it + 1) of each test, shape (n_codes,)."""
    best = np.zeros(n_codes, dtype=np.float32)
    for record in records.known(lane, paths):
        codes, n_failures = record.failures()
        is_inside = codes < n_codes
        codes, n_failures = codes[is_inside], n_failures[is_inside]
        best[codes] = np.maximum(best[codes], n_failures / np.float32(record.n_changes + 1))
    return best

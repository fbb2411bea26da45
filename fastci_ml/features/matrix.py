"""The features of every row of a log, each as it could be known when its run started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.features.fold import N_HISTORY, derive
from fastci_ml.features.schema import N_FEATURES
from fastci_ml.features.state import FeatureState
from fastci_ml.records.progress import ProgressHook, silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastci_ml.features.log import RunLog

__all__ = ["FeatureState", "build_matrix", "run_events"]

# Rows whose sums are turned into rates at once: few enough to be in the cache still.
_DERIVE_ROWS = 8_192


def run_events(log: RunLog) -> Iterator[tuple[bool, int]]:
    """Starts and ends of the runs in the order of time.

    Yields
    ------
    (is_start, run)
        A run that ends at the very moment at which another starts is not known to it: ends come first only
        when they are earlier. Ends after the last start are not given.
    """
    by_end = np.lexsort((np.arange(log.n_runs), log.finished_us)).tolist()
    finished, started = log.finished_us.tolist(), log.started_us.tolist()
    n_ended = 0
    for run in range(log.n_runs):
        while n_ended < log.n_runs and finished[by_end[n_ended]] < started[run]:
            yield False, by_end[n_ended]
            n_ended += 1
        yield True, run


def build_matrix(log: RunLog, progress: ProgressHook = silent) -> NDArray[np.float32]:
    """Features of every row.

    Parameters
    ----------
    log : RunLog
        The history.
    progress : ProgressHook
        Told the number of runs done.

    Returns
    -------
    float32, shape (n_rows, N_FEATURES)
        Column-major: a feature is contiguous. No row has seen what ended at or after the start of its run.
    """
    state = FeatureState()
    runs = state.coded(log)
    # The history block is written for every row; the rest stays NaN where the change is unknown.
    columns = np.empty((N_FEATURES, log.n_rows), dtype=np.float32)
    columns[N_HISTORY:] = np.nan
    n_derived = 0
    for is_start, run in run_events(log):
        if is_start:
            rows, tests = runs.started(run)
            state.start_run(tests, runs.lanes[run], runs.changes[run], columns[:, rows])
            if rows.stop - n_derived >= _DERIVE_ROWS:
                derive(columns[:N_HISTORY, n_derived : rows.stop])
                n_derived = rows.stop
            progress("features", run + 1, log.n_runs)
        else:
            state.end_run(runs, run)
    derive(columns[:N_HISTORY, n_derived:])
    return columns.T

"""Cut a history by time, so that nothing is judged by a model that could have seen it.

Runs are never torn apart: tests of one run share its faults. And runs overlap: one that was still going when
a later slice begins had no result yet, so it belongs to neither slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastci_ml.features.log import RunLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """Runs of one history, in time order.

    Attributes
    ----------
    fit : ndarray of int64
        Runs that grow the trees.
    calibrate : ndarray of int64
        Later runs, which turn raw scores into risks.
    test : ndarray of int64
        Last runs, which judge.
    """

    fit: NDArray[np.int64]
    calibrate: NDArray[np.int64]
    test: NDArray[np.int64]


def split_by_time(log: RunLog, fractions: Sequence[float]) -> list[NDArray[np.int64]]:
    """Cut the runs of a log into slices, oldest first.

    Parameters
    ----------
    log : RunLog
        Runs in order of their start.
    fractions : sequence of float
        Share of the runs of each slice; positive, with a sum of 1.

    Returns
    -------
    list of ndarray of int64
        Ascending runs of each slice. Every run of a slice has finished when the first run of a later slice
        starts: runs that had not are left out, so slices can hold fewer runs than asked for, or none.

    Raises
    ------
    ValueError
        If the fractions are not positive with a sum of 1.
    """
    shares = np.asarray(fractions, dtype=np.float64)
    if not len(shares) or (shares <= 0).any() or abs(shares.sum() - 1.0) > 1e-9:
        raise ValueError(f"fractions {list(fractions)}: expected positive numbers with a sum of 1")
    ends = np.round(np.cumsum(shares) * log.n_runs).astype(np.int64)
    starts = np.concatenate([[0], ends[:-1]])
    slices = []
    for start, end in zip(starts, ends, strict=True):
        runs = np.arange(start, end)
        if end < log.n_runs:
            runs = runs[log.finished_us[start:end] <= log.started_us[end]]
        slices.append(runs)
    return slices


def split_for_training(log: RunLog, *, calibrate: float = 0.15, test: float = 0.15) -> Slices:
    """Cut into `Slices`: the oldest runs fit, then the shares `calibrate` and `test` of all runs.

    Raises
    ------
    ValueError
        If the shares leave nothing to fit.
    """
    fit_runs, calibrate_runs, test_runs = split_by_time(log, (1.0 - calibrate - test, calibrate, test))
    return Slices(fit=fit_runs, calibrate=calibrate_runs, test=test_runs)


def rows_of_runs(log: RunLog, runs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Rows of some runs, shape (n_rows,)."""
    mask = np.zeros(log.n_runs, dtype=bool)
    mask[runs] = True
    return np.repeat(mask, np.diff(log.offsets))

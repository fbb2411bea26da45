"""Which rows teach the ranker, and what they say."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastci_ml.features.log import FAILED, PASSED, UNCLEAR, RunLog


def training_rows(log: RunLog) -> NDArray[np.bool_]:
    """Rows that say something about the code, shape (n_rows,).

    A row without a clear verdict (skipped, infrastructure, flaky, ...) is left out rather than counted as a
    pass: a test that fails by infrastructure in half of its runs has not been seen to pass in them. Nor does
    a failure teach whose test passed on the same commit and lane in another run: it is flaky (EVALUATION 3).
    """
    rows: NDArray[np.bool_] = (log.verdicts != UNCLEAR) & ~_flaky_failures(log)
    return rows


def _flaky_failures(log: RunLog) -> NDArray[np.bool_]:
    """Failures of tests that also passed on the same commit; a run of an unknown commit is not compared."""
    names = {head: code for code, head in enumerate(sorted({*log.heads} - {""}))}
    heads = np.array([names.get(head, -1) for head in log.heads], dtype=np.int64)[log.run_of_row]
    # A test code stands for one lane, so lanes are apart already.
    places = heads * log.n_tests + log.tests
    has_passed = np.isin(places, places[(log.verdicts == PASSED) & (heads >= 0)])
    flaky: NDArray[np.bool_] = (log.verdicts == FAILED) & (heads >= 0) & has_passed
    return flaky


def labels(log: RunLog) -> NDArray[np.float64]:
    """1 for a failure of class ``test``, else 0, shape (n_rows,); meaningless outside `training_rows`."""
    has_failed: NDArray[np.bool_] = log.verdicts == FAILED
    return has_failed.astype(np.float64)

"""Which rows teach the ranker, and what they say."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastci_ml.features.log import FAILED, UNCLEAR, RunLog


def training_rows(log: RunLog) -> NDArray[np.bool_]:
    """Rows that say something about the code, shape (n_rows,).

    A row without a clear verdict (skipped, infrastructure, flaky, ...) is left out rather than counted as a
    pass: a test that fails by infrastructure in half of its runs has not been seen to pass in them
    (EVALUATION 3).
    """
    rows: NDArray[np.bool_] = log.verdicts != UNCLEAR
    return rows


def labels(log: RunLog) -> NDArray[np.float64]:
    """1 for a failure of class ``test``, else 0, shape (n_rows,); meaningless outside `training_rows`."""
    has_failed: NDArray[np.bool_] = log.verdicts == FAILED
    return has_failed.astype(np.float64)

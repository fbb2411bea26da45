"""A log in the codes of a state, laid out so that each run is a few views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.features.log import FAILED, UNCLEAR, RunLog

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CodedRuns:
    """The rows of a log, ready for the fold.

    Parameters
    ----------
    log : RunLog
        The history.
    tests : int32, shape (n_tests,)
        The state's code of each test code of the log.
    lanes : int64, shape (n_runs,)
        The state's code of the lane of each run.
    """

    def __init__(self, log: RunLog, tests: NDArray[np.int32], lanes: NDArray[np.int64]) -> None:
        self._codes = tests[log.tests]
        verdicts, durations_s = log.verdicts, log.durations_s
        if np.any(tests[1:] < tests[:-1]):
            # A state that knew some of the tests before has codes of another order than the log's.
            order = np.lexsort((self._codes, log.run_of_row))
            self._codes, verdicts, durations_s = self._codes[order], verdicts[order], durations_s[order]
        is_clear = verdicts != UNCLEAR
        counts = np.add.reduceat(np.append(is_clear, False), log.offsets) if log.n_runs else []
        self._clear_offsets = np.concatenate([[0], np.cumsum(counts[: log.n_runs])]).astype(int).tolist()
        # Runs whose every verdict is clear share one view between their start and their end.
        self._clear_codes = self._codes if is_clear.all() else self._codes[is_clear]
        self._durations_s = durations_s[is_clear].astype(np.float32)
        is_failed = verdicts[is_clear] == FAILED
        rows = np.flatnonzero(is_failed)
        bounds = np.searchsorted(rows, self._clear_offsets)
        starts = np.repeat(self._clear_offsets[:-1], np.diff(bounds)) if log.n_runs else rows
        self._failed = rows - starts
        self._failed_offsets = bounds.tolist()
        self._offsets = log.offsets.tolist()
        self.lanes: list[int] = lanes.tolist()
        self.changes = log.changes
        self.finished_us: list[int] = log.finished_us.tolist()
        self._last: tuple[int, NDArray[np.int32]] = (-1, self._codes[:0])

    def started(self, run: int) -> tuple[slice, NDArray[np.int32]]:
        """Rows of a run and the codes of its tests, ascending."""
        rows = slice(self._offsets[run], self._offsets[run + 1])
        codes = self._codes[rows]
        self._last = (run, codes)
        return rows, codes

    def ended(self, run: int) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float32]]:
        """Codes of the tests with a clear verdict, places of those that failed, durations in seconds."""
        rows = slice(self._clear_offsets[run], self._clear_offsets[run + 1])
        codes = self._clear_codes[rows]
        # The same object as at the start lets the fold keep what it gathered then.
        if self._last[0] == run and len(self._last[1]) == len(codes):
            codes = self._last[1]
        failed = self._failed[self._failed_offsets[run] : self._failed_offsets[run + 1]]
        return codes, failed, self._durations_s[rows]

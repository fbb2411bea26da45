"""A log in the codes of a state, laid out so that each run is a few views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.features.log import FAILED, UNCLEAR, RunLog
from fastci_ml.records.outcomes import LONGEST_S

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CodedRuns:
    """The rows of a log, ready for the fold.

    Parameters
    ----------
    log : RunLog
        The history.
    tests : int64, shape (n_tests,)
        The state's code of each test code of the log.
    lanes : int64, shape (n_runs,)
        The state's code of the lane of each run.
    """

    def __init__(self, log: RunLog, tests: NDArray[np.int64], lanes: NDArray[np.int64]) -> None:
        is_same = np.array_equal(tests, np.arange(len(tests)))
        self._codes = log.tests.astype(np.int64) if is_same else tests.take(log.tests)
        verdicts, durations_s = log.verdicts, log.durations_s
        if np.any(tests[1:] < tests[:-1]):
            # A state that knew some of the tests before has codes of another order than the log's.
            order = np.lexsort((self._codes, log.run_of_row))
            self._codes, verdicts, durations_s = self._codes[order], verdicts[order], durations_s[order]
        # Runs whose every verdict is clear share one view between their start and their end.
        self._clear_codes, offsets = self._codes, log.offsets
        is_clear = verdicts != UNCLEAR
        if not is_clear.all():
            offsets = np.concatenate([[0], np.cumsum(is_clear)])[offsets]
            self._clear_codes = self._codes[is_clear]
            verdicts, durations_s = verdicts[is_clear], durations_s[is_clear]
        self._clear_offsets: list[int] = offsets.tolist()
        self._failed = _Places(verdicts == FAILED, offsets)
        is_unknown = ~((durations_s >= 0) & (durations_s <= LONGEST_S))  # NaN too
        self._durations_s = np.where(is_unknown, 0, durations_s).astype(np.float32)
        self._unknown = _Places(is_unknown, offsets)
        self._offsets = log.offsets.tolist()
        self.lanes: list[int] = lanes.tolist()
        self.changes = log.changes
        self.finished_us: list[int] = log.finished_us.tolist()
        self._last: tuple[int, NDArray[np.int64]] = (-1, self._codes[:0])

    def started(self, run: int) -> tuple[slice, NDArray[np.int64]]:
        """Rows of a run and the codes of its tests, ascending."""
        rows = slice(self._offsets[run], self._offsets[run + 1])
        codes = self._codes[rows]
        self._last = (run, codes)
        return rows, codes

    def ended(
        self, run: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """What `HistoryFold.update` takes: codes with a clear verdict, failed, durations, unknown ones."""
        rows = slice(self._clear_offsets[run], self._clear_offsets[run + 1])
        codes = self._clear_codes[rows]
        # The same object as at the start lets the fold keep what it gathered then.
        if self._last[0] == run and len(self._last[1]) == len(codes):
            codes = self._last[1]
        return codes, self._failed.of(run), self._durations_s[rows], self._unknown.of(run)


class _Places:
    """Places within their run of the rows that are marked; few, so kept by place."""

    def __init__(self, is_marked: NDArray[np.bool_], offsets: NDArray[np.int64]) -> None:
        rows = np.flatnonzero(is_marked)
        bounds = np.searchsorted(rows, offsets)
        self._places = rows - np.repeat(offsets[:-1], np.diff(bounds))
        self._bounds: list[int] = bounds.tolist()

    def of(self, run: int) -> NDArray[np.int64]:
        return self._places[self._bounds[run] : self._bounds[run + 1]]

"""The history fold: a few numbers for each test, read at the start of a run and updated at its end.

Reading and updating are apart because CI runs overlap: what a run can know is what had *ended* when it
started. One definition serves training (`features.matrix`) and the CI pre-step (`features.state`).

The arrays are laid out so that a run costs about forty numpy calls whatever its size; a run whose test codes
are consecutive works on views and copies nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.features.schema import HISTORY_FEATURES

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_HISTORY = len(HISTORY_FEATURES)

# Rows of the state. The first fifteen features of the schema stand in the same places, so that reading is one
# copy and one subtraction; `derive` turns the sums among them into means.
_RUNS, _PASS_STREAK = 0, 1
_COUNTED = slice(0, 2)  # go up with every run
_NEW_FAILS, _FAIL_STREAK, _LAST, _FAILS = 2, 3, 4, 5
_PASSED = slice(3, 5)  # 0 after a pass
_DECAYED = slice(6, 9)  # each divided by its gain: a failure then adds 1, as it does to the count before them
_FAILURES = slice(5, 9)
_DURATION_UNKNOWN, _DURATION_SUM, _DURATION_LAST = 9, 10, 11
_COPIED = slice(0, 12)
_LAST_FAIL, _LAST_RUN, _FIRST_RUN = 12, 13, 14  # on the lane's clock of finished runs
_CLOCKED = slice(12, 15)
_N_STATE = 15
_FAIL_RATE, _NEW_FAIL_RATE, _MODULE, _RUN_N_TESTS, _LANE = 15, 16, 17, 18, 19

_DECAYS = np.array([[0.5], [0.8], [0.95]], dtype=np.float32)
_GROUP_DECAY = 0.8
_ONE = np.float32(1)  # a Python 1 costs each small call a conversion


class _Taken:
    """State of the tests of one run: views of the fold's where the codes are consecutive, else a copy."""

    __slots__ = (
        "block",
        "clocked",
        "copied",
        "counted",
        "decayed",
        "failures",
        "is_view",
        "passed",
        "rows",
        "tests",
    )

    def __init__(self, tests: NDArray[np.int64], block: NDArray[np.float32], *, is_view: bool) -> None:
        self.tests = tests
        self.is_view = is_view
        self.block = block
        self.rows = list(block)
        self.counted, self.decayed, self.passed = block[_COUNTED], block[_DECAYED], block[_PASSED]
        self.copied, self.clocked = block[_COPIED], block[_CLOCKED]
        self.failures = self.rows[_FAILURES]


class _Seen:
    """Modules of the tests of one run.

    Attributes
    ----------
    groups : int64, shape (k,)
        Module of each test.
    counts : int64, shape (n_groups,)
        Tests of each module in the run.
    has_run : bool, shape (n_groups,)
        Modules with a test in the run.
    """

    __slots__ = ("counts", "groups", "has_run", "tests")

    def __init__(self, tests: NDArray[np.int64], groups: NDArray[np.int64], n_groups: int) -> None:
        self.tests = tests
        self.groups = groups
        self.counts = np.bincount(groups, minlength=n_groups)
        self.has_run = self.counts > 0


class HistoryFold:
    """State of every test at one moment.

    Parameters
    ----------
    groups : int64, shape (n_tests,)
        Module of each test: what `module_fail_decay_80` is counted over.
    n_lanes : int
        Number of lanes; each has its own clock.

    Notes
    -----
    The clock counts finished runs of a lane, so "runs since" is scale-free: no feature depends on how many
    runs a day a project has.
    """

    def __init__(self, groups: NDArray[np.int64], n_lanes: int) -> None:
        self._groups = np.empty(0, dtype=np.int64)
        self._state = np.empty((_N_STATE, 0), dtype=np.float32)
        self._group_decay = np.empty(0, dtype=np.float32)
        self._clock = np.empty(0, dtype=np.float32)
        self._lane_decay = np.empty(0, dtype=np.float32)
        self.extend(groups, n_lanes)

    def extend(self, groups: NDArray[np.int64], n_lanes: int) -> None:
        """Make room for tests and lanes that are new; `groups` and `n_lanes` are the whole new lists."""
        n_old, n_new = self._state.shape[1], len(groups)
        fresh = np.zeros((_N_STATE, n_new - n_old), dtype=np.float32)
        fresh[[_LAST, _LAST_FAIL, _LAST_RUN, _FIRST_RUN, _DURATION_LAST]] = np.nan
        self._state = np.concatenate([self._state, fresh], axis=1)
        self._groups = np.asarray(groups, dtype=np.int64)
        n_groups = int(self._groups.max()) + 1 if n_new else 0
        self._group_decay = _pad(self._group_decay, n_groups, np.nan)
        self._has_new_groups = True
        self._n_never_ran = int(np.isnan(self._state[_FIRST_RUN]).sum())
        self._clock = _pad(self._clock, n_lanes, 0)
        self._lane_decay = _pad(self._lane_decay, n_lanes, np.nan)
        self._taken: _Taken | None = None
        # Groups of the last run: CI runs repeat the same tests.
        self._seen: _Seen | None = None

    def read(self, tests: NDArray[np.int64], lane: int, out: NDArray[np.float32]) -> None:
        """Write what is known of `tests` now; `derive` completes it.

        Parameters
        ----------
        tests : int64, shape (k,)
            Test codes, ascending.
        lane : int
            Lane of the run.
        out : float32, shape (N_HISTORY, k)
            Filled, in the order of `HISTORY_FEATURES`.
        """
        state, groups = self._take(tests), self._groups_of(tests).groups
        out[_COPIED] = state.copied
        np.subtract(self._clock[lane], state.clocked, out=out[_CLOCKED])
        self._group_decay.take(groups, out=out[_MODULE], mode="clip")
        out[_RUN_N_TESTS] = len(tests)
        out[_LANE] = self._lane_decay[lane]

    @property
    def n_lanes(self) -> int:
        """Number of lanes that there is room for."""
        return len(self._clock)

    def runs_since_run(self, tests: NDArray[np.int64], lane: int) -> NDArray[np.float32]:
        """The feature of that name alone, shape (k,); `tests` in any order."""
        age: NDArray[np.float32] = self._clock[lane] - self._state[_LAST_RUN, tests]
        return age

    def update(
        self,
        tests: NDArray[np.int64],
        lane: int,
        failed: NDArray[np.int64],
        durations_s: NDArray[np.float32],
        unknown: NDArray[np.int64],
    ) -> None:
        """Fold in a run that has ended.

        Parameters
        ----------
        tests : int64, shape (k,)
            Codes of the tests with a clear verdict, ascending.
        lane : int
            Lane of the run.
        failed : int64, shape (n_failed,)
            Places in `tests` of those that failed. Failures are few: what they change is cheap by place.
        durations_s : float32, shape (k,)
            Seconds; 0 where unknown.
        unknown : int64, shape (n_unknown,)
            Places in `tests` of those without a known duration.
        """
        state = self._take(tests)
        rows, clock = state.rows, self._clock[lane]
        counted, decayed = state.counted, state.decayed
        counted += _ONE
        decayed *= _DECAYS
        if len(failed):
            rows[_NEW_FAILS][failed] += (
                rows[_LAST][failed] == 0
            )  # not after NaN: a first failure is no change
            streaks = rows[_FAIL_STREAK][failed] + _ONE
            for row in state.failures:
                row[failed] += _ONE
            state.passed[:] = 0
            rows[_FAIL_STREAK][failed] = streaks
            rows[_LAST][failed] = 1
            rows[_PASS_STREAK][failed] = 0
            rows[_LAST_FAIL][failed] = clock
        else:
            state.passed[:] = 0
        total_s, last_s = rows[_DURATION_SUM], rows[_DURATION_LAST]
        total_s += durations_s
        if len(unknown):
            before_s = last_s[unknown]
            last_s[:] = durations_s
            last_s[unknown] = before_s
            rows[_DURATION_UNKNOWN][unknown] += _ONE
        else:
            last_s[:] = durations_s
        if self._n_never_ran:
            is_first = np.isnan(rows[_FIRST_RUN])
            rows[_FIRST_RUN][is_first] = clock
            self._n_never_ran -= int(is_first.sum())
        rows[_LAST_RUN][:] = clock
        self._update_groups(tests, failed)
        if len(tests):
            before = max(0.0, float(self._lane_decay[lane]))  # NaN before the first run: 0
            share = len(failed) / len(tests)
            self._lane_decay[lane] = before * _GROUP_DECAY + share * (1 - _GROUP_DECAY)
        self._clock[lane] += 1
        if not state.is_view:
            self._state[:, tests] = state.block
            self._taken = None

    def _update_groups(self, tests: NDArray[np.int64], failed: NDArray[np.int64]) -> None:
        """Decayed failing share of each module that ran."""
        seen = self._groups_of(tests)
        decay = self._group_decay
        if self._has_new_groups:
            decay[seen.has_run & np.isnan(decay)] = 0
            self._has_new_groups = bool(np.isnan(decay).any())
        np.multiply(decay, _GROUP_DECAY, out=decay, where=seen.has_run)
        if len(failed):
            of_failed = seen.groups[failed]
            gains = (1 - _GROUP_DECAY) / seen.counts[of_failed]
            decay += np.bincount(of_failed, gains, minlength=len(decay))

    def _take(self, tests: NDArray[np.int64]) -> _Taken:
        """State of some tests; kept for the `update` that mostly follows the `read` of the same run."""
        taken = self._taken
        if taken is not None and (
            taken.tests is tests or (taken.is_view and _is_same_range(taken.tests, tests))
        ):
            return taken
        if _is_range(tests):
            block = self._state[:, int(tests[0]) : int(tests[-1]) + 1]
            self._taken = _Taken(tests, block, is_view=True)
        else:
            self._taken = _Taken(tests, self._state.take(tests, axis=1, mode="clip"), is_view=False)
        return self._taken

    def _groups_of(self, tests: NDArray[np.int64]) -> _Seen:
        seen = self._seen
        if seen is not None and (seen.tests is tests or _is_same_range(seen.tests, tests)):
            return seen
        self._seen = _Seen(tests, self._groups.take(tests), len(self._group_decay))
        return self._seen

    def to_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Everything that the fold remembers, by name; `from_arrays` takes it back."""
        return {
            "state": self._state,
            "group_decay": self._group_decay,
            "clock": self._clock,
            "lane_decay": self._lane_decay,
        }

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, NDArray[np.float32]], groups: NDArray[np.int64], n_lanes: int
    ) -> HistoryFold:
        """Restore a fold.

        Raises
        ------
        ValueError
            If an array is missing, or its shape or dtype does not fit.
        """
        fold = cls(groups, n_lanes)
        for name, own in fold.to_arrays().items():
            given = arrays.get(name)
            if given is None or given.shape != own.shape or given.dtype != own.dtype:
                found = "missing" if given is None else f"{given.dtype} {given.shape}"
                raise ValueError(f"{name} is {found}, expected {own.dtype} {own.shape}")
            own[...] = given
        fold._n_never_ran = int(np.isnan(fold._state[_FIRST_RUN]).sum())
        return fold


def derive(history: NDArray[np.float32]) -> None:
    """Turn the sums that `HistoryFold.read` wrote into rates and means, in place.

    Parameters
    ----------
    history : float32, shape (N_HISTORY, n)
        Any number of runs side by side: this half has no state, so it is done once over many.
    """
    runs, fails, new_fails = history[_RUNS], history[_FAILS], history[_NEW_FAILS]
    with np.errstate(invalid="ignore", divide="ignore"):
        np.divide(fails + np.float32(0.01), runs + np.float32(0.5), out=history[_FAIL_RATE])
        np.divide(new_fails, runs - fails + np.float32(1), out=history[_NEW_FAIL_RATE])
        mean_s, last_s = history[_DURATION_SUM], history[_DURATION_LAST]
        # Without a known duration 0 / 0 is NaN, and so is the trend of a test too fast to measure.
        np.divide(mean_s, runs - history[_DURATION_UNKNOWN], out=mean_s)
        np.divide(last_s, mean_s, out=last_s)
        np.divide(fails - new_fails, fails + np.float32(1), out=history[_DURATION_UNKNOWN])
    history[_DECAYED] *= 1 - _DECAYS


def _is_range(tests: NDArray[np.int64]) -> bool:
    """Whether ascending codes are consecutive."""
    return len(tests) > 0 and int(tests[-1]) - int(tests[0]) + 1 == len(tests)


def _is_same_range(ours: NDArray[np.int64], theirs: NDArray[np.int64]) -> bool:
    return len(ours) == len(theirs) and _is_range(ours) and _is_range(theirs) and bool(ours[0] == theirs[0])


def _pad(array: NDArray[np.float32], length: int, value: float) -> NDArray[np.float32]:
    tail = np.full(max(0, length - len(array)), value, dtype=array.dtype)
    return np.concatenate([array, tail])

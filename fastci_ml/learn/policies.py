"""Simple policies: one-line rules that order tests by their history, and that a model has to beat.

Each rule also exists divided by the expected duration (``failure-rate/duration``): risk per second, which is
the greedy answer where time is the budget. Shortest first is such a rule already and has no second form.

Scores say nothing about ties, and there are many (most tests never failed). The caller breaks them: at random
where policies are compared, by node id where a plan is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from fastci_ml.features.columns import in_schema_order
from fastci_ml.features.schema import feature_index

# JUnit files print milliseconds, so a test of 0 s is one below half of that; dividing by less would let noise
# in the clock decide the order.
MIN_DURATION_S = 1e-3
# Where no test of a run has a known duration, all last equally long and any figure would do.
_ANY_DURATION_S = 1.0
# Decayed weight and count of failures of a test that never failed: without these, duration could not order
# such tests. Both from the first tries on real histories (docs/metrics.md).
_DECAY_FLOOR, _COUNT_FLOOR = 0.002, 0.01
_RATE_PRIOR_FAILS, _RATE_PRIOR_RUNS = 0.01, 0.5
_BETA_FAILS, _BETA_PASSES = 0.5, 5.0
BY_DURATION = "/duration"

_Matrix = npt.NDArray[np.float32]
_Scores = npt.NDArray[np.float64]
# As text: `np.random` is loaded when it is first named, and `rank` does without it.
_Rule = Callable[[_Matrix, "np.random.Generator"], _Scores]


def expected_durations(X: _Matrix) -> _Scores:
    """Seconds that each test of a run is expected to take.

    Parameters
    ----------
    X : float32, shape (n_tests, N_FEATURES)
        Features of the tests of one run.

    Returns
    -------
    float64, shape (n_tests,)
        The mean over past runs; the median of the other tests' means where there is none (1 where no test of
        the run has one); at least `MIN_DURATION_S`.
    """
    means = _column(X, "duration_mean_s")
    is_known = np.isfinite(means)
    usual = _median(means[is_known]) if is_known.any() else _ANY_DURATION_S
    return np.maximum(np.where(is_known, means, usual), MIN_DURATION_S)


def _median(values: _Scores) -> float:
    # `np.median` would load `numpy.ma`, which `rank` does without.
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _column(X: _Matrix, name: str) -> _Scores:
    return X[:, feature_index(name)].astype(np.float64)


def _random(X: _Matrix, rng: np.random.Generator) -> _Scores:
    return rng.random(len(X))


def _recently_failed(X: _Matrix, _: np.random.Generator) -> _Scores:
    return _column(X, "fail_decay_80")


def _failure_count(X: _Matrix, _: np.random.Generator) -> _Scores:
    return _column(X, "n_fails")


def _last_failure(X: _Matrix, _: np.random.Generator) -> _Scores:
    # A reciprocal orders like the age itself, and can be divided by a duration.
    age_runs = _column(X, "runs_since_fail")
    return np.where(np.isnan(age_runs), 0.0, 1.0 / np.maximum(age_runs, 1.0))


def _oldest_run(X: _Matrix, _: np.random.Generator) -> _Scores:
    age_runs = _column(X, "runs_since_run")
    return np.where(np.isnan(age_runs), np.inf, age_runs)


def _shortest(X: _Matrix, _: np.random.Generator) -> _Scores:
    return 1.0 / expected_durations(X)


def _thompson(X: _Matrix, rng: np.random.Generator) -> _Scores:
    fails = _column(X, "n_fails")
    return rng.beta(fails + _BETA_FAILS, _column(X, "n_runs") - fails + _BETA_PASSES)


def _failure_rate(X: _Matrix, _: np.random.Generator) -> _Scores:
    return (_column(X, "n_fails") + _RATE_PRIOR_FAILS) / (_column(X, "n_runs") + _RATE_PRIOR_RUNS)


_RULES: dict[str, _Rule] = {
    "random": _random,
    "recently-failed": _recently_failed,
    "failure-count": _failure_count,
    "last-failure": _last_failure,
    "oldest-run": _oldest_run,
    "shortest": _shortest,
    "thompson": _thompson,
    "failure-rate": _failure_rate,
}
# Added to the rule's score before it is divided by the duration; the other rules never give 0.
_FLOORS = {"recently-failed": _DECAY_FLOOR, "failure-count": _COUNT_FLOOR, "last-failure": _DECAY_FLOOR}

# Plain rules first, in the order in which tables show them.
_NAMES = (*_RULES, *(name + BY_DURATION for name in _RULES if name != "shortest"))


@dataclass(frozen=True, slots=True)
class SimplePolicy:
    """A rule that scores the tests of one run from their features alone.

    Parameters
    ----------
    name : str
        A key of `POLICIES`.

    Raises
    ------
    ValueError
        If there is no such policy.
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in _NAMES:
            raise ValueError(f"no policy {self.name!r}; there are {', '.join(_NAMES)}")

    @property
    def is_random(self) -> bool:
        """Whether two calls of `score` differ, ties apart, so that one order is not enough to judge it."""
        return self.name.removesuffix(BY_DURATION) in ("random", "thompson")

    def score(self, X: _Matrix, rng: np.random.Generator) -> _Scores:
        """Score the tests of one run.

        Parameters
        ----------
        X : float32, shape (n_tests, N_FEATURES)
            Features of the tests of one run, read at its start; a frame's columns are taken by name.
        rng : numpy.random.Generator
            Drawn from by ``random`` and ``thompson`` only.

        Returns
        -------
        float64, shape (n_tests,)
            Higher first; never NaN, and infinite for tests that never ran under ``oldest-run``.
        """
        X = in_schema_order(X)
        base, separator, _ = self.name.partition(BY_DURATION)
        risks = _RULES[base](X, rng)
        return (risks + _FLOORS.get(base, 0.0)) / expected_durations(X) if separator else risks


POLICIES: MappingProxyType[str, SimplePolicy] = MappingProxyType(
    {name: SimplePolicy(name) for name in _NAMES}
)

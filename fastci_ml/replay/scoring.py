"""Scores of every policy on one run after the other: orders, ties, repeats."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastci_ml.features.log import FAILED, UNCLEAR, RunLog
from fastci_ml.features.schema import feature_index
from fastci_ml.learn.policies import BY_DURATION, SimplePolicy, expected_durations
from fastci_ml.metrics.ordering import score_orders
from fastci_ml.replay.protocol import Protocol

NAPFD_SHARE = 0.5
RECALL_SHARES = (0.1, 0.2, 0.5)
METRICS = ("apfd", "apfdc", "napfd_50", *(f"recall_{100 * share:.0f}" for share in RECALL_SHARES))
MODEL = "lightgbm"
OPTIMAL = "optimal"

_Floats = npt.NDArray[np.float64]
_Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One policy's scores, run by run.

    Attributes
    ----------
    name : str
        As tables show it.
    kind : str
        ``simple``, ``model`` or ``optimal``.
    scores : float64, shape (n_scored, n_metrics)
        All failures; columns as `METRICS`.
    new_scores : float64, shape (n_scored, n_metrics)
        Pass-to-fail failures only; NaN in runs without one.
    """

    name: str
    kind: str
    scores: _Floats
    new_scores: _Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The tests of one run that say something: what was known before it, and how it went.

    Attributes
    ----------
    run : int
        Index of the run.
    X : float32, shape (n_tests, N_FEATURES)
        Features at its start.
    has_failed, is_new_failure : bool, shape (n_tests,)
        Whether the test failed, and whether it did after passing in its run before.
    costs_s : float64, shape (n_tests,)
        Seconds that it took; the expected ones where they are unknown.
    n_imputed : int
        How many are unknown.
    raw_scores : float64, shape (n_tests,), or None
        Of the model.
    """

    run: int
    X: _Matrix
    has_failed: npt.NDArray[np.bool_]
    is_new_failure: npt.NDArray[np.bool_]
    costs_s: _Floats
    n_imputed: int
    raw_scores: _Floats | None

    @classmethod
    def of(cls, log: RunLog, X: _Matrix, run: int, raw_scores: _Floats | None) -> RunView:
        """Look at one run; `raw_scores` has one number for each row of the log."""
        rows = log.rows(run)
        rows = np.arange(rows.start, rows.stop)[log.verdicts[rows] != UNCLEAR]
        X_run = X[rows]
        has_failed = log.verdicts[rows] == FAILED
        costs_s = log.durations_s[rows]
        is_unknown = np.isnan(costs_s)
        return cls(
            run=run,
            X=X_run,
            has_failed=has_failed,
            is_new_failure=has_failed & (X_run[:, feature_index("last_verdict")] == 0),
            costs_s=np.where(is_unknown, expected_durations(X_run), costs_s),
            n_imputed=int(np.count_nonzero(is_unknown)),
            raw_scores=None if raw_scores is None else raw_scores[rows],
        )

    def model_scores(self) -> Mapping[str, _Floats]:
        """Scores of the model: the raw order, and risk per expected second."""
        if self.raw_scores is None:
            return {}
        risks = 0.5 * (1.0 + np.tanh(0.5 * self.raw_scores))
        return {MODEL: self.raw_scores, MODEL + BY_DURATION: risks / expected_durations(self.X)}

    def optimal_order(self, is_fault: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
        """Failing first, shortest of them first: no order has a higher APFD, APFDc or recall."""
        order: npt.NDArray[np.intp] = np.lexsort((self.costs_s, ~is_fault))
        return order


class ScoreTable:
    """Fills, run by run, the scores of every contender.

    Parameters
    ----------
    simple : sequence of SimplePolicy
        In the order of the table.
    has_model : bool
        Whether the runs come with raw scores.
    n_scored : int
        How many runs will come.
    protocol : Protocol
        Seed and repeats.
    """

    def __init__(
        self, *, simple: Sequence[SimplePolicy], has_model: bool, n_scored: int, protocol: Protocol
    ) -> None:
        self._simple = simple
        self._protocol = protocol
        models = (MODEL, MODEL + BY_DURATION) if has_model else ()
        self._kinds = {
            **{policy.name: "simple" for policy in simple},
            **dict.fromkeys(models, "model"),
            OPTIMAL: "optimal",
        }
        self._all = {name: np.full((n_scored, len(METRICS)), np.nan) for name in self._kinds}
        self._new = {name: np.full((n_scored, len(METRICS)), np.nan) for name in self._kinds}
        self.n_failures = np.zeros(n_scored, dtype=np.int64)
        self.n_new_failures = np.zeros(n_scored, dtype=np.int64)
        self.n_imputed = 0

    def add(self, place: int, view: RunView) -> None:
        """Score one run."""
        self.n_failures[place] = np.count_nonzero(view.has_failed)
        self.n_new_failures[place] = np.count_nonzero(view.is_new_failure)
        self.n_imputed += view.n_imputed
        for policy in self._simple:
            rng = self._rng(view.run, policy.name)
            n_orders = self._protocol.n_random_repeats if policy.is_random else self._protocol.n_repeats
            n_draws = n_orders if policy.is_random else 1
            scores = np.stack([policy.score(view.X, rng) for _ in range(n_draws)])
            self._put(place, policy.name, view, _orders(scores, n_orders, rng))
        for name, model_scores in view.model_scores().items():
            rng = self._rng(view.run, name)
            self._put(place, name, view, _orders(model_scores[None], self._protocol.n_repeats, rng))
        for found, is_fault in ((self._all, view.has_failed), (self._new, view.is_new_failure)):
            found[OPTIMAL][place] = _mean_scores(view.optimal_order(is_fault), is_fault, view.costs_s)

    def contenders(self) -> tuple[Contender, ...]:
        """Everyone, in the order of the table."""
        return tuple(
            Contender(name=name, kind=kind, scores=self._all[name], new_scores=self._new[name])
            for name, kind in self._kinds.items()
        )

    def _put(self, place: int, name: str, view: RunView, orders: npt.NDArray[np.intp]) -> None:
        self._all[name][place] = _mean_scores(orders, view.has_failed, view.costs_s)
        if view.is_new_failure.any():
            self._new[name][place] = _mean_scores(orders, view.is_new_failure, view.costs_s)

    def _rng(self, run: int, name: str) -> np.random.Generator:
        # A stream of its own for each run and policy: leaving policies out changes no figure.
        return np.random.default_rng([self._protocol.seed, run, zlib.crc32(name.encode())])


def _orders(scores: _Floats, n_orders: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Orders by score, highest first, ties at random; scores of shape (1 or n_orders, n_tests)."""
    shape = (n_orders, scores.shape[1])
    return np.lexsort((rng.random(shape), -np.broadcast_to(scores, shape)), axis=-1)


def _mean_scores(orders: npt.NDArray[np.intp], is_fault: npt.NDArray[np.bool_], costs_s: _Floats) -> _Floats:
    """Mean over the orders of each of `METRICS`."""
    found = score_orders(orders, is_fault, costs_s, napfd_share=NAPFD_SHARE, recall_shares=RECALL_SHARES)
    means: _Floats = np.column_stack([found.apfd, found.apfdc, found.napfd, found.recall]).mean(axis=0)
    return means

"""Train a model bundle on a history: floors, slices, three fits, figures, card.

The same recipe is judged and shipped, one slice apart. A first ranker learns from the oldest runs and its
scores on the next slice give the calibration; a second learns from both and is judged, with that calibration,
on the last slice. What ships is a third ranker that learned from everything, with the calibration of the
second on the last slice. Shipping the second itself keeps scores and calibration of one model, but leaves
the newest runs out of the trees: on the histories at hand that lost up to .04 of APFD, for calibration slopes
that were .06 closer to 1 (docs/decisions/0004).
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastci_ml.errors import TooLittleDataError
from fastci_ml.features.columns import in_schema_order
from fastci_ml.features.log import RunLog
from fastci_ml.features.state import FeatureState
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.calibration import Calibration, fit_calibration
from fastci_ml.learn.card import describe_history, describe_slices, training_warnings
from fastci_ml.learn.evaluation import order_figures, risk_figures
from fastci_ml.learn.labels import labels, training_rows
from fastci_ml.learn.ranker import RiskRanker
from fastci_ml.learn.splits import rows_of_runs, split_for_training
from fastci_ml.records.progress import ProgressHook, silent

_VERSIONED = ("fastci-ml", "lightgbm", "numpy", "scikit-learn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """Least data to train on. Below, a simple policy orders as well and does not pretend to know a risk.

    Attributes
    ----------
    n_runs : int
        Runs with a clear verdict.
    n_failing_runs : int
        Runs in which a test failed: failures of one run share its fault, so many in one run count little.
    n_failures : int
        Failing (run, test) rows.
    n_passes : int
        Passing (run, test) rows: what always fails teaches as little as what always passes.
    """

    n_runs: int = 15
    n_failing_runs: int = 5
    n_failures: int = 15
    n_passes: int = 15


DEFAULT_FLOORS = Floors()


def fit_ranker(
    X: NDArray[np.float32],
    y: NDArray[np.float64],
    *,
    runs: NDArray[np.int64],
    seed: int = 0,
    n_jobs: int = 1,
    floors: Floors = DEFAULT_FLOORS,
) -> RiskRanker:
    """Fit the ranker that bundles hold.

    Parameters
    ----------
    X : ndarray of float32, shape (n, n_features)
        Features, columns as in the schema.
    y : ndarray of float64, shape (n,)
        1 failed, 0 passed.
    runs : ndarray of int64, shape (n,)
        Run of each row.
    seed, n_jobs : int
        As for `RiskRanker`.
    floors : Floors
        Least data.

    Raises
    ------
    TooLittleDataError
        Below a floor, or where no feature tells failures from passes; the message gives the figures.
    """
    _check_floors(y, runs, floors)
    ranker = RiskRanker(seed=seed, n_jobs=n_jobs).fit(X, y, runs=runs)
    _check_learned(ranker, len(y))
    return ranker


def train(
    log: RunLog,
    X: NDArray[np.float32],
    *,
    created_at: datetime,
    name: str = "fastci-risk",
    seed: int = 0,
    n_jobs: int = 1,
    progress: ProgressHook = silent,
    floors: Floors = DEFAULT_FLOORS,
) -> ModelBundle:
    """Train a bundle.

    Parameters
    ----------
    log : RunLog
        The history.
    X : array or frame of float32, shape (n_rows, n_features)
        `build_matrix` of it; a frame's columns are taken by name.
    created_at : datetime
        With a time zone; stands in the card.
    name : str
        Name of the model; stands in the card.
    seed, n_jobs : int
        As for `RiskRanker`; the seed also breaks ties in the figures.
    progress : ProgressHook
        Told of each step.
    floors : Floors
        Least data.

    Returns
    -------
    ModelBundle
        Equal arguments give equal bundles, byte for byte once saved.

    Raises
    ------
    TooLittleDataError
        Below a floor.
    """
    X = in_schema_order(X)
    y, is_clear, run_of_row = labels(log), training_rows(log), log.run_of_row
    _check_floors(y[is_clear], run_of_row[is_clear], floors)
    slices = split_for_training(log)
    recipe = _Recipe(log=log, X=X, y=y, is_clear=is_clear, seed=seed, n_jobs=n_jobs)
    progress("training", 0, 4)
    first = recipe.fit(slices.fit)
    calibration = recipe.calibrate(first, slices.calibrate)
    progress("training", 1, 4)
    second = recipe.fit(np.concatenate([slices.fit, slices.calibrate]))
    metrics = {
        "calibrate": recipe.figures(first, Calibration(), slices.calibrate),
        "test": recipe.figures(second, calibration, slices.test),
    }
    progress("training", 2, 4)
    shipped = recipe.fit(np.arange(log.n_runs))
    assert shipped is not None  # the floors hold for all runs together
    _check_learned(shipped, int(is_clear.sum()))
    final_calibration = recipe.calibrate(second, slices.test)
    progress("training", 3, 4)
    card = {
        "schema": "fastci.card/1",
        "name": name,
        "created_at": created_at.astimezone(UTC).isoformat(),
        "history": describe_history(log, y, is_clear),
        "slices": describe_slices(log, slices),
        "params": shipped.get_params(),
        "n_trees": shipped.n_trees_,
        "gain": dict(zip(shipped.feature_names, shipped.gain_.tolist(), strict=True)),
        "calibration": final_calibration.kind.value,
        "calibration_lanes": recipe.lane_figures(second, final_calibration, slices.test),
        "metrics": metrics,
        "versions": {name: version(name) for name in _VERSIONED} | {"python": platform.python_version()},
        "warnings": training_warnings(metrics["test"], final_calibration, was_judged=second is not None),
    }
    bundle = ModelBundle(
        model_text=shipped.model_text_,
        calibration=final_calibration,
        state=FeatureState.from_log(log),
        card=card,
    )
    progress("training", 4, 4)
    return bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """The steps that are the same for every slice."""

    log: RunLog
    X: NDArray[np.float32]
    y: NDArray[np.float64]
    is_clear: NDArray[np.bool_]
    seed: int
    n_jobs: int

    def rows(self, runs: NDArray[np.int64]) -> NDArray[np.bool_]:
        return rows_of_runs(self.log, runs) & self.is_clear

    def fit(self, runs: NDArray[np.int64]) -> RiskRanker | None:
        """Ranker of some runs; None where these alone hold one class only."""
        rows = self.rows(runs)
        if not 0 < self.y[rows].sum() < rows.sum():
            return None
        return RiskRanker(seed=self.seed, n_jobs=self.n_jobs).fit(self.X[rows], self.y[rows])

    def calibrate(self, ranker: RiskRanker | None, runs: NDArray[np.int64]) -> Calibration:
        rows = self.rows(runs)
        if ranker is None or not rows.any():
            return Calibration()
        return fit_calibration(ranker.decision_function(self.X[rows]), self.y[rows])

    def figures(
        self, ranker: RiskRanker | None, calibration: Calibration, runs: NDArray[np.int64]
    ) -> dict[str, Any]:
        rows = self.rows(runs)
        if ranker is None or not rows.any():
            return {"n_runs": len(runs), "n_failing_runs": 0, "n_failures": 0}
        raw_scores = np.full(self.log.n_rows, np.nan)
        raw_scores[rows] = ranker.decision_function(self.X[rows])
        figures = order_figures(self.log, self.X, raw_scores, runs, seed=self.seed)
        # An uncalibrated risk is never shown as one, so its quality is nobody's figure.
        if not calibration.is_calibrated:
            return figures
        return figures | risk_figures(self.y[rows], calibration.risk(raw_scores[rows]))

    def lane_figures(
        self, ranker: RiskRanker | None, calibration: Calibration, runs: NDArray[np.int64]
    ) -> dict[str, Any]:
        """What the calibration was checked on, by lane: it says nothing of a lane that it never saw."""
        if ranker is None or not calibration.is_calibrated:
            return {}
        rows = self.rows(runs)
        lanes = np.array(self.log.run_lanes, dtype=object)[self.log.run_of_row]
        figures = {}
        for lane in sorted({self.log.run_lanes[run] for run in runs.tolist()}):
            own = rows & (lanes == lane)
            if own.any():
                figures[lane] = {
                    "n_rows": int(own.sum()),
                    "n_failures": int(self.y[own].sum()),
                    "risk": float(calibration.risk(ranker.decision_function(self.X[own])).mean()),
                    "failure_rate": float(self.y[own].mean()),
                }
        return figures


def _check_floors(y: NDArray[np.float64], runs: NDArray[np.int64], floors: Floors) -> None:
    found = {
        "runs": (len(np.unique(runs)), floors.n_runs),
        "failing runs": (len(np.unique(runs[y == 1])), floors.n_failing_runs),
        "failures": (int(np.sum(y == 1)), floors.n_failures),
        "passes": (int(np.sum(y == 0)), floors.n_passes),
    }
    if all(n >= needed for n, needed in found.values()):
        return
    figures = ", ".join(f"{n} {what} (needed {needed})" for what, (n, needed) in found.items())
    missing = ", ".join(f"{needed - n} {what}" for what, (n, needed) in found.items() if n < needed)
    raise TooLittleDataError(
        f"too little history to train on: {figures}; missing: {missing}", hint="fastci-ml ingest"
    )


def _check_learned(ranker: RiskRanker, n_rows: int) -> None:
    """Refuse trees that hold one value each: every test would score the same."""
    if any(ranker.gain_):
        return
    raise TooLittleDataError(
        f"too little history to train on: in {n_rows:,} results no feature tells failures from passes "
        f"(a leaf holds at least {ranker.min_rows_in_leaf} results)",
        hint="fastci-ml ingest",
    )

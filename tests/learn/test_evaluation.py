from __future__ import annotations

import numpy as np
import pytest

from fastci_ml.features.log import FAILED, RunLog
from fastci_ml.learn.evaluation import order_figures, risk_figures
from fastci_ml.learn.labels import labels
from fastci_ml.learn.policies import POLICIES
from fastci_ml.metrics.ordering import apfd


def test_apfd_of_the_figures_is_that_of_the_orders_one_by_one(log: RunLog, X: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=log.n_rows)  # no ties, so the order is the only one
    runs = np.arange(40, 60)
    figures = order_figures(log, X, scores, runs, seed=0)
    expected = {}
    for run in runs.tolist():
        rows = log.rows(run)
        order = np.argsort(-scores[rows])
        failed = (log.verdicts[rows] == FAILED)[order]
        if failed.any():
            expected[log.run_ids[run]] = apfd((np.flatnonzero(failed) + 1).tolist(), len(order))
    found = {entry["run_id"]: entry["apfd"] for entry in figures["by_run"]}
    assert found == pytest.approx(expected)
    assert figures["apfd"] == pytest.approx(np.mean(list(expected.values())))
    assert figures["n_failing_runs"] == len(expected)


def test_the_best_policy_is_the_best_of_all(log: RunLog, X: np.ndarray) -> None:
    figures = order_figures(log, X, X[:, 0].astype(float), np.arange(50, 60), seed=0)
    assert figures["best_simple_apfd_policy"] in POLICIES
    assert figures["best_simple_apfd"] > 0.7


def test_runs_without_failures_give_no_figures(log: RunLog, X: np.ndarray) -> None:
    figures = order_figures(log, X, X[:, 0].astype(float), np.array([], dtype=np.int64), seed=0)
    assert figures["n_failing_runs"] == 0
    assert np.isnan(figures["apfd"])
    assert figures["by_run"] == []


def test_reliability_bins_hold_every_row_once(log: RunLog) -> None:
    y = labels(log)
    figures = risk_figures(y, np.full(len(y), y.mean()))
    assert sum(part["n_rows"] for part in figures["reliability"]) == len(y)
    assert figures["brier_skill"] == pytest.approx(0.0)

"""Figures of a model on a slice of runs that it has not seen, beside the best simple policies.

Choices as in the replay protocol (EVALUATION 1): failing runs of at least two tests, faults one-to-one with
failing tests, ties broken at random, macro mean over runs. This is the short form for a model card;
`fastci-ml replay` gives every policy with intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastci_ml.features.log import FAILED, UNCLEAR, RunLog
from fastci_ml.learn.policies import POLICIES, expected_durations
from fastci_ml.metrics.calibration import brier_skill_score, calibration_line, top_decile_error
from fastci_ml.metrics.ordering import score_orders

N_TIE_BREAKS = 3
# A macro mean over 400 runs is known to about .01, and more would make training wait for its figures.
MAX_FAILING_RUNS = 400
_N_BINS = 10

_Floats = NDArray[np.float64]
# Scores of the tests of one run, higher first, from their rows in the log and their features.
_Score = Callable[[NDArray[np.int64], NDArray[np.float32]], _Floats]


def order_figures(
    log: RunLog,
    X: NDArray[np.float32],
    raw_scores: _Floats,
    runs: NDArray[np.int64],
    *,
    seed: int,
) -> dict[str, Any]:
    """APFD and APFDc of a model over some runs, with the best simple policy for either in hindsight.

    Parameters
    ----------
    log : RunLog
        The history.
    X : ndarray of float32, shape (n_rows, n_features)
        Features of its rows.
    raw_scores : ndarray of float64, shape (n_rows,)
        Of the model. APFD is that of the order by raw score, APFDc that of the order by risk per expected
        second, as `rank` makes them.
    runs : ndarray of int64
        Runs to look at; of more than `MAX_FAILING_RUNS` failing ones, the newest.
    seed : int
        Breaks ties and drives random policies.

    Returns
    -------
    dict
        Means, ``best_simple_apfd``, ``best_simple_apfdc`` and their policies' names, and ``by_run`` with one
        entry a failing run. Means are NaN where no run failed.
    """
    per_second = {
        "apfd": lambda rows, _: raw_scores[rows],
        # log(risk / seconds): the risk itself would round to 1 where raw scores are high.
        "apfdc": lambda rows, features: (
            -np.logaddexp(0.0, -raw_scores[rows]) - np.log(expected_durations(features))
        ),
    }
    views = [_rows_of(log, int(run)) for run in runs]
    failing = [(run, rows) for run, rows in zip(runs, views, strict=True) if _counts(log, rows)]
    failing = failing[-MAX_FAILING_RUNS:]
    model = {metric: _scores(log, X, failing, score, metric, seed) for metric, score in per_second.items()}
    figures: dict[str, Any] = {
        "n_runs": len(runs),
        "n_failing_runs": len(failing),
        "n_failures": int(sum(np.sum(log.verdicts[rows] == FAILED) for _, rows in failing)),
    }
    for metric, values in model.items():
        figures[metric] = _mean(values)
        best = (
            max((_mean(_policy_scores(log, X, failing, name, metric, seed)), name) for name in POLICIES)
            if failing
            else (float("nan"), "")
        )
        figures[f"best_simple_{metric}"], figures[f"best_simple_{metric}_policy"] = best
    figures["by_run"] = [
        {"run_id": log.run_ids[int(run)], "apfd": apfd, "apfdc": apfdc}
        for (run, _), apfd, apfdc in zip(failing, model["apfd"], model["apfdc"], strict=True)
    ]
    return figures


def risk_figures(y: _Floats, risks: _Floats) -> dict[str, Any]:
    """Whether risks mean what they say.

    Parameters
    ----------
    y : ndarray of float64, shape (n,)
        1 failed, 0 passed.
    risks : ndarray of float64, shape (n,)
        In [0, 1].

    Returns
    -------
    dict
        Brier skill, calibration slope and intercept, error of the top decile (NaN where undefined), and
        ``reliability``: mean risk, failure rate and number of rows in ten bins of equal mass.
    """
    line = calibration_line(y, risks)
    order = np.argsort(risks, kind="stable")
    bins = [part for part in np.array_split(order, _N_BINS) if len(part)]
    return {
        "n_rows": len(y),
        "failure_rate": _mean(y),
        "brier_skill": brier_skill_score(y, risks),
        "calibration_slope": line.slope,
        "calibration_intercept": line.intercept,
        "top_decile_error": top_decile_error(y, risks),
        "reliability": [
            {"risk": float(risks[part].mean()), "failure_rate": float(y[part].mean()), "n_rows": len(part)}
            for part in bins
        ],
    }


def _rows_of(log: RunLog, run: int) -> NDArray[np.int64]:
    """Rows of a run that say something."""
    rows = log.rows(run)
    found: NDArray[np.int64] = rows.start + np.flatnonzero(log.verdicts[rows] != UNCLEAR)
    return found


def _counts(log: RunLog, rows: NDArray[np.int64]) -> bool:
    # One test has one order: such a run would score every policy .5.
    return len(rows) > 1 and bool((log.verdicts[rows] == FAILED).any())


def _scores(
    log: RunLog,
    X: NDArray[np.float32],
    failing: list[tuple[int, NDArray[np.int64]]],
    score: _Score,
    metric: str,
    seed: int,
) -> list[float]:
    rng = np.random.default_rng(seed)
    values = []
    for _, rows in failing:
        features = X[rows]
        expected = expected_durations(features)
        costs = np.where(np.isnan(log.durations_s[rows]), expected, log.durations_s[rows])
        keys = [(rng.random(len(rows)), -score(rows, features)) for _ in range(N_TIE_BREAKS)]
        orders = np.stack([np.lexsort(key) for key in keys])
        scored = score_orders(orders, log.verdicts[rows] == FAILED, costs)
        values.append(float(np.mean(getattr(scored, metric))))
    return values


def _policy_scores(
    log: RunLog,
    X: NDArray[np.float32],
    failing: list[tuple[int, NDArray[np.int64]]],
    name: str,
    metric: str,
    seed: int,
) -> list[float]:
    rng = np.random.default_rng(seed)
    return _scores(log, X, failing, lambda _, features: POLICIES[name].score(features, rng), metric, seed)


def _mean(values: list[float] | _Floats) -> float:
    return float(np.mean(values)) if len(values) else float("nan")

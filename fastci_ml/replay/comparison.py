"""Means over runs, and each policy against the best simple one on the same runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastci_ml.metrics.intervals import Interval, paired_bootstrap
from fastci_ml.replay.prediction import PredictionReplay
from fastci_ml.replay.scoring import METRICS, Contender


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy in a comparison.

    Attributes
    ----------
    name, kind : str
        As in `Contender`.
    means : mapping of str to float
        Metric -> mean over the runs.
    differences : mapping of str to Interval
        Metric -> paired difference to the best simple policy of that metric, with its 95% interval.
    """

    name: str
    kind: str
    means: Mapping[str, float]
    differences: Mapping[str, Interval]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Every policy on one kind of failures.

    Attributes
    ----------
    failures : str
        ``all`` or ``pass_to_fail``.
    n_runs, n_failures : int
        Runs with such a failure, which the means are over, and the failures in them.
    best_simple : mapping of str to str
        Metric -> simple policy with the highest mean, known in hindsight only; empty without simple policies
        or runs.
    rows : tuple of Row
        In the order of the replay.
    """

    failures: str
    n_runs: int
    n_failures: int
    best_simple: Mapping[str, str]
    rows: tuple[Row, ...]


def compare_all_failures(replay: PredictionReplay) -> Comparison:
    """Compare on every failure."""
    scores = [contender.scores for contender in replay.contenders]
    return _compare("all", replay, scores, replay.n_failures)


def compare_new_failures(replay: PredictionReplay) -> Comparison:
    """Compare on pass-to-fail failures only, where repeating old failures does not help."""
    scores = [contender.new_scores for contender in replay.contenders]
    return _compare("pass_to_fail", replay, scores, replay.n_new_failures)


def _compare(
    failures: str,
    replay: PredictionReplay,
    scores: list[npt.NDArray[np.float64]],
    n_failures: npt.NDArray[np.int64],
) -> Comparison:
    has_failure = n_failures > 0
    # (n_runs, n_contenders, n_metrics)
    cube = np.stack(scores, axis=1)[has_failure]
    means = cube.mean(axis=0) if len(cube) else np.full(cube.shape[1:], np.nan)
    simple = [i for i, contender in enumerate(replay.contenders) if contender.kind == "simple"]
    best: dict[str, str] = {}
    differences: list[dict[str, Interval]] = [{} for _ in replay.contenders]
    if simple and len(cube):
        for column, metric in enumerate(METRICS):
            # argmax takes the first of equals: the plainer policy, by the order of the table.
            top = simple[int(np.argmax(means[simple, column]))]
            best[metric] = replay.contenders[top].name
            found = paired_bootstrap(cube[:, :, column], cube[:, top, column], seed=replay.protocol.seed)
            for mine, interval in zip(differences, found, strict=True):
                mine[metric] = interval
    return Comparison(
        failures=failures,
        n_runs=len(cube),
        n_failures=int(n_failures.sum()),
        best_simple=best,
        rows=tuple(
            _row(contender, means[i], differences[i]) for i, contender in enumerate(replay.contenders)
        ),
    )


def _row(contender: Contender, means: npt.NDArray[np.float64], differences: Mapping[str, Interval]) -> Row:
    return Row(
        name=contender.name,
        kind=contender.kind,
        means={metric: float(mean) for metric, mean in zip(METRICS, means, strict=True)},
        differences=differences,
    )

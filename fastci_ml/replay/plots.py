"""Plots of a prediction replay: policies side by side on each run, and how soon failures are caught."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.replay.comparison import Comparison
from fastci_ml.replay.prediction import PredictionReplay
from fastci_ml.replay.scoring import METRICS, RECALL_SHARES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Shapes as well as colours: marks lie on each other, and not everyone sees the colours.
_MARKERS = "ox^svd"
_RECALLS = METRICS[-len(RECALL_SHARES) :]


def draw_run_scores(axes: Axes, replay: PredictionReplay, *, names: Sequence[str], metric: str) -> None:
    """Draw how each policy scored on each failing run.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Drawn on.
    replay : PredictionReplay
        All its scored runs are drawn, in order of their start.
    names : sequence of str
        Policies; one mark each, and a grey line that joins the marks of a run.
    metric : str
        One of `METRICS`, on all failures.

    Raises
    ------
    ValueError
        If the replay has no such policy or metric.
    """
    contenders = {contender.name: contender for contender in replay.contenders}
    _check("metric", [metric], METRICS)
    _check("policy", names, contenders)
    scores = np.stack([contenders[name].scores[:, METRICS.index(metric)] for name in names])
    places = np.arange(1, scores.shape[1] + 1)
    axes.vlines(places, scores.min(axis=0), scores.max(axis=0), color="lightgrey")
    for name, values, marker in zip(names, scores, cycle(_MARKERS), strict=False):
        label = f"{name}, mean {values.mean():.3f}"
        axes.plot(places, values, marker=marker, linestyle="", label=label)
    axes.set(title=f"{metric} of each failing run", xlabel="failing run, oldest first", ylabel=metric)
    axes.set(ylim=(-0.02, 1.02))
    axes.legend()


def draw_catch_curve(axes: Axes, comparison: Comparison, *, names: Sequence[str]) -> None:
    """Draw the share of failures caught against the share of time spent.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Drawn on.
    comparison : Comparison
        Its means are drawn at the budgets of `RECALL_SHARES`; before any time nothing is caught, and at the
        end everything. Between the marks the line is a guess.
    names : sequence of str
        Policies, one line each. The dotted line catches in proportion to time.

    Raises
    ------
    ValueError
        If the comparison has no such policy.
    """
    rows = {row.name: row for row in comparison.rows}
    _check("policy", names, rows)
    shares = [0.0, *RECALL_SHARES, 1.0]
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":", label="in proportion to time")
    for name, marker in zip(names, cycle(_MARKERS), strict=False):
        caught = [0.0, *(rows[name].means[metric] for metric in _RECALLS), 1.0]
        axes.plot(shares, caught, marker=marker, label=name)
    axes.set(title=f"Failures caught, mean over {comparison.n_runs:,} failing runs")
    axes.set(xlabel="share of the run's test time", ylabel="share of its failures caught")
    axes.legend()


def _check(what: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"no {what} {name!r}; there are {', '.join(known)}")

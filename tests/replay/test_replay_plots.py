"""Plots of a replay show the figures of the replay, mark by mark."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastci_ml.features.log import RunLog
from fastci_ml.features.matrix import build_matrix
from fastci_ml.replay.comparison import compare_all_failures
from fastci_ml.replay.plots import draw_catch_curve, draw_run_scores
from fastci_ml.replay.prediction import PredictionReplay, replay_prediction
from fastci_ml.replay.protocol import Protocol
from fastci_ml.replay.scoring import METRICS


@pytest.fixture(scope="module")
def replay(busy_log: RunLog) -> PredictionReplay:
    return replay_prediction(busy_log, build_matrix(busy_log), Protocol())


@pytest.fixture
def axes() -> Axes:
    return Figure().add_subplot()


def test_run_scores_are_drawn_as_scored(replay: PredictionReplay, axes: Axes) -> None:
    names = ["random", "optimal"]
    draw_run_scores(axes, replay, names=names, metric="apfdc")
    scores = {one.name: one.scores[:, METRICS.index("apfdc")] for one in replay.contenders}
    for line, name in zip(axes.get_lines(), names, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), scores[name])
        assert line.get_label() == f"{name}, mean {scores[name].mean():.3f}"


def test_catch_curve_passes_through_the_means_from_nothing_to_everything(
    replay: PredictionReplay, axes: Axes
) -> None:
    comparison = compare_all_failures(replay)
    draw_catch_curve(axes, comparison, names=["random"])
    means = {row.name: row.means for row in comparison.rows}["random"]
    _, line = axes.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), [0, 0.1, 0.2, 0.5, 1])
    expected = [0, means["recall_10"], means["recall_20"], means["recall_50"], 1]
    np.testing.assert_array_equal(line.get_ydata(), expected)


def test_unknown_names_are_told_with_the_known_ones(replay: PredictionReplay, axes: Axes) -> None:
    with pytest.raises(ValueError, match="no policy 'lightgbm'; there are random, "):
        draw_run_scores(axes, replay, names=["lightgbm"], metric="apfd")
    with pytest.raises(ValueError, match="no metric 'speed'; there are apfd, "):
        draw_run_scores(axes, replay, names=["random"], metric="speed")
    with pytest.raises(ValueError, match="no policy 'lightgbm'; there are random, "):
        draw_catch_curve(axes, compare_all_failures(replay), names=["lightgbm"])

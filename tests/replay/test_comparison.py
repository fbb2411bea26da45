"""Means and paired differences, against the scores that they come from."""

from __future__ import annotations

import numpy as np
import pytest

from fastci_ml.features.log import RunLog
from fastci_ml.features.matrix import build_matrix
from fastci_ml.replay.comparison import compare_all_failures, compare_new_failures
from fastci_ml.replay.prediction import PredictionReplay, replay_prediction
from fastci_ml.replay.protocol import Protocol
from fastci_ml.replay.scoring import METRICS


@pytest.fixture(scope="module")
def replay(busy_log: RunLog) -> PredictionReplay:
    return replay_prediction(busy_log, build_matrix(busy_log), Protocol())


def test_best_simple_policy_has_the_highest_mean_of_each_metric(replay: PredictionReplay) -> None:
    comparison = compare_all_failures(replay)
    assert set(comparison.best_simple) == set(METRICS)
    for metric, best in comparison.best_simple.items():
        means = {row.name: row.means[metric] for row in comparison.rows if row.kind == "simple"}
        assert means[best] == max(means.values())


def test_differences_are_paired_with_the_best(replay: PredictionReplay) -> None:
    comparison = compare_all_failures(replay)
    scores = {one.name: one.scores for one in replay.contenders}
    for row in comparison.rows:
        for column, metric in enumerate(METRICS):
            best = comparison.best_simple[metric]
            difference = scores[row.name][:, column] - scores[best][:, column]
            found = row.differences[metric]
            assert found.mean == pytest.approx(difference.mean())
            assert found.low <= found.mean + 1e-12
            assert found.high >= found.mean - 1e-12
            if row.name == best:
                assert (found.low, found.high) == (0, 0)


def test_pass_to_fail_means_are_over_runs_that_have_one(replay: PredictionReplay) -> None:
    comparison = compare_new_failures(replay)
    has_one = replay.n_new_failures > 0
    assert comparison.n_runs == has_one.sum() < len(replay.choice.scored)
    assert comparison.n_failures == replay.n_new_failures.sum()
    for row, contender in zip(comparison.rows, replay.contenders, strict=True):
        assert row.means["apfd"] == pytest.approx(np.nanmean(contender.new_scores[:, 0]))


def test_without_simple_policies_there_is_nothing_to_compare_with(busy_log: RunLog) -> None:
    comparison = compare_all_failures(
        replay_prediction(busy_log, build_matrix(busy_log), Protocol(), policies=[])
    )
    assert comparison.best_simple == {}
    (optimal,) = comparison.rows
    assert optimal.differences == {}
    assert optimal.means["apfd"] > 0.5

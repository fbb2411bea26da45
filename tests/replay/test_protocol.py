"""Which runs are scored, and what a model may have learned from by then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastci_ml.features.log import RunLog
from fastci_ml.replay.protocol import Protocol, choose_runs, training_blocks


@pytest.mark.parametrize("retrain_share", [None, 0.1, 0.03, 0.001, 1.0])
def test_blocks_hold_each_predicted_run_once(busy_log: RunLog, retrain_share: float | None) -> None:
    protocol = Protocol(start_share=0.3, retrain_share=retrain_share)
    blocks = training_blocks(busy_log, protocol)
    assert [run for block in blocks for run in range(block.first, block.last)] == list(range(24, 80))
    if retrain_share is None:
        assert len(blocks) == 1


def test_training_runs_had_ended_before_the_first_predicted_run_started(busy_log: RunLog) -> None:
    for block in training_blocks(busy_log, Protocol()):
        start_us = busy_log.started_us[block.first]
        expected = [run for run in range(busy_log.n_runs) if busy_log.finished_us[run] < start_us]
        assert block.training_runs.tolist() == expected
        # The log overlaps on purpose: were this equal, the test would show nothing.
        assert len(expected) < block.first


def test_run_that_ends_as_the_block_starts_teaches_nothing(make_log: Callable[..., RunLog]) -> None:
    one = {"a": (0, 1.0), "b": (1, 1.0)}
    log = make_log([one] * 4, length_us=[3_600_000_000] * 4)
    (block,) = training_blocks(log, Protocol(start_share=0.5, retrain_share=None))
    assert block.training_runs.tolist() == [0]


def test_every_predicted_run_is_scored_or_counted(busy_log: RunLog) -> None:
    choice = choose_runs(busy_log, Protocol(start_share=0.25))
    assert choice.n_runs == 80
    assert choice.n_predicted == 60
    assert choice.n_predicted == choice.n_too_small + choice.n_passing + len(choice.scored)
    assert choice.scored.min() >= 20


def test_runs_without_choice_or_failure_are_counted_apart(make_log: Callable[..., RunLog]) -> None:
    log = make_log(
        [
            {"a": (1, 1.0), "b": (0, 1.0)},
            {"a": (1, 1.0)},
            {"a": (1, 1.0), "b": (-1, 1.0)},
            {"a": (0, 1.0), "b": (0, 1.0)},
            {"a": (0, 1.0), "b": (1, 1.0), "c": (-1, 1.0)},
        ]
    )
    choice = choose_runs(log, Protocol(start_share=0.2))
    assert choice.scored.tolist() == [4]
    assert (choice.n_too_small, choice.n_passing, choice.n_unclear) == (2, 1, 2)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.3, float("nan")])
def test_start_outside_the_history_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="start_share is"):
        Protocol(start_share=share)


@pytest.mark.parametrize("share", [0.0, 1.1, float("nan")])
def test_retraining_that_never_comes_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="retrain_share is"):
        Protocol(retrain_share=share)

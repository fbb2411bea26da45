"""The replay against hand-worked runs, and its promises: no look-ahead, seeded, each policy on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fastci_ml.errors import TooLittleDataError
from fastci_ml.features.log import RunLog
from fastci_ml.features.matrix import build_matrix
from fastci_ml.features.schema import feature_index
from fastci_ml.learn.policies import POLICIES, expected_durations
from fastci_ml.learn.training import fit_ranker
from fastci_ml.metrics.ordering import apfd, apfdc
from fastci_ml.replay.prediction import PredictionReplay, replay_prediction
from fastci_ml.replay.protocol import Protocol
from fastci_ml.replay.scoring import METRICS


class MeanFailureRanker:
    """The least model there is: scores by the count of failures, offset by the rate it was fitted on."""

    def __init__(self, offset: float) -> None:
        self.offset = offset

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return X[:, feature_index("n_fails")].astype(np.float64) + self.offset


def fit_mean_failure(X: np.ndarray, y: np.ndarray, runs: np.ndarray) -> MeanFailureRanker:
    assert len(X) == len(y) == len(runs)
    return MeanFailureRanker(float(np.mean(y)))


def scores_of(replay: PredictionReplay, name: str) -> np.ndarray:
    (found,) = [one for one in replay.contenders if one.name == name]
    return found.scores


def test_scores_of_a_run_worked_out_by_hand(make_log: Callable[..., RunLog]) -> None:
    # b failed most lately, then c; a and d never did. In the last run c and d fail, d after a pass.
    log = make_log(
        [
            {"a": (0, 4.0), "b": (1, 1.0), "c": (1, 2.0), "d": (0, 1.0)},
            {"a": (0, 4.0), "b": (1, 1.0), "c": (1, 2.0), "d": (0, 1.0)},
            {"a": (0, 4.0), "b": (1, 1.0), "c": (0, 2.0), "d": (0, 1.0)},
            {"a": (0, 4.0), "b": (0, 1.0), "c": (1, 3.0), "d": (1, 1.0)},
        ]
    )
    replay = replay_prediction(log, build_matrix(log), Protocol(start_share=0.75), policies=["shortest"])
    assert replay.choice.scored.tolist() == [3]
    assert replay.n_failures.tolist() == [2]
    assert replay.n_new_failures.tolist() == [2]
    optimal = scores_of(replay, "optimal")[0]
    assert optimal[METRICS.index("apfd")] == apfd([1, 2], 4)
    assert optimal[METRICS.index("apfdc")] == pytest.approx(apfdc([1, 2], [1.0, 3.0, 1.0, 4.0]))
    # b and d tie at one second, so d comes first or second; c is third.
    shortest = scores_of(replay, "shortest")[0]
    first, second = apfd([1, 3], 4), apfd([2, 3], 4)
    assert shortest[0] in [pytest.approx((k * first + (3 - k) * second) / 3) for k in range(4)]


def test_pass_to_fail_leaves_out_repeats_and_new_tests(make_log: Callable[..., RunLog]) -> None:
    log = make_log(
        [
            {"a": (0, 1.0), "b": (1, 1.0)},
            {"a": (0, 1.0), "b": (1, 1.0)},
            {"a": (1, 1.0), "b": (1, 1.0), "new": (1, 1.0)},
            {"b": (1, 1.0), "new": (0, 1.0)},
        ]
    )
    replay = replay_prediction(
        log, build_matrix(log), Protocol(start_share=0.5), policies=["recently-failed"]
    )
    assert replay.n_failures.tolist() == [3, 1]
    assert replay.n_new_failures.tolist() == [1, 0]
    (policy, optimal) = replay.contenders
    # Of the three, b goes first and fails, but was failing before: a is the only fault here.
    assert policy.new_scores[0, 0] <= apfd([2], 3)
    assert optimal.new_scores[0, 0] == apfd([1], 3)
    assert np.isnan(policy.new_scores[1]).all()
    assert np.isnan(optimal.new_scores[1]).all()


def test_no_order_beats_the_optimum(busy_log: RunLog) -> None:
    replay = replay_prediction(busy_log, build_matrix(busy_log), Protocol())
    columns = [i for i, metric in enumerate(METRICS) if metric != "napfd_50"]
    for which in ("scores", "new_scores"):
        best = getattr(replay.contenders[-1], which)[:, columns]
        for contender in replay.contenders:
            mine = getattr(contender, which)[:, columns]
            assert (mine <= best + 1e-12)[~np.isnan(best)].all(), contender.name


def test_random_order_finds_half(busy_log: RunLog) -> None:
    protocol = Protocol(n_random_repeats=400)
    replay = replay_prediction(busy_log, build_matrix(busy_log), protocol, policies=["random"])
    assert scores_of(replay, "random").mean(axis=0)[:2] == pytest.approx([0.5, 0.5], abs=0.02)


def test_policy_scores_do_not_depend_on_the_other_policies(busy_log: RunLog) -> None:
    X = build_matrix(busy_log)
    together = replay_prediction(busy_log, X, Protocol(seed=3), fit=fit_mean_failure)
    for name in ("thompson", "failure-rate"):
        alone = replay_prediction(busy_log, X, Protocol(seed=3), policies=[name])
        assert (scores_of(alone, name) == scores_of(together, name)).all()
    other_seed = replay_prediction(busy_log, X, Protocol(seed=4), policies=["thompson"])
    assert (scores_of(other_seed, "thompson") != scores_of(together, "thompson")).any()


def test_deleting_the_future_changes_no_score(busy_log: RunLog) -> None:
    past = busy_log.select_runs(np.arange(60))
    whole = replay_prediction(
        busy_log, build_matrix(busy_log), Protocol(start_share=24 / 80), fit=fit_mean_failure
    )
    cut = replay_prediction(past, build_matrix(past), Protocol(start_share=24 / 60), fit=fit_mean_failure)
    n = len(cut.choice.scored)
    assert cut.choice.scored.tolist() == whole.choice.scored.tolist()[:n]
    for short, long in zip(cut.contenders, whole.contenders, strict=True):
        np.testing.assert_array_equal(short.scores, long.scores[:n])


def test_results_of_a_run_are_not_among_what_its_order_is_made_from(busy_log: RunLog) -> None:
    rows = busy_log.rows(busy_log.n_runs - 1)
    verdicts, durations_s = busy_log.verdicts.copy(), busy_log.durations_s.copy()
    verdicts[rows] = np.where(verdicts[rows] >= 0, 1 - verdicts[rows], verdicts[rows])
    durations_s[rows] = 99.0
    other_end = replace(busy_log, verdicts=verdicts, durations_s=durations_s)
    np.testing.assert_array_equal(build_matrix(busy_log)[rows], build_matrix(other_end)[rows])


def test_model_learns_only_from_runs_that_ended_and_said_something(busy_log: RunLog) -> None:
    seen: list[tuple[int, set[int]]] = []

    def fit(X: np.ndarray, y: np.ndarray, runs: np.ndarray) -> MeanFailureRanker:
        assert set(np.unique(y)) <= {0, 1}
        seen.append((len(y), set(runs.tolist())))
        return fit_mean_failure(X, y, runs)

    replay = replay_prediction(busy_log, build_matrix(busy_log), Protocol(), policies=[], fit=fit)
    assert replay.n_trainings == len(seen) == 7
    for i, (n_rows, runs) in enumerate(seen):
        start_us = busy_log.started_us[24 + 8 * i]
        assert all(busy_log.finished_us[run] < start_us for run in runs)
        clear = sum(int((busy_log.verdicts[busy_log.rows(run)] >= 0).sum()) for run in runs)
        assert n_rows == clear


def test_model_rows_order_by_raw_score_and_by_risk_per_second(busy_log: RunLog) -> None:
    replay = replay_prediction(
        busy_log, build_matrix(busy_log), Protocol(), policies=["failure-count"], fit=fit_mean_failure
    )
    assert [one.name for one in replay.contenders] == [
        "failure-count",
        "lightgbm",
        "lightgbm/duration",
        "optimal",
    ]
    assert replay.model_absence == ""
    # The model counts failures too, so only ties, broken by another stream, tell the two apart.
    means = [one.scores.mean(axis=0)[0] for one in replay.contenders]
    assert means[1] == pytest.approx(means[0], abs=0.03)
    assert means[2] != means[1]


def test_model_below_its_floor_has_no_row_and_a_reason(busy_log: RunLog) -> None:
    def fit(X: np.ndarray, y: np.ndarray, runs: np.ndarray) -> MeanFailureRanker:
        raise TooLittleDataError(f"{len(y)} rows, expected a million")

    replay = replay_prediction(busy_log, build_matrix(busy_log), Protocol(), fit=fit)
    assert [one.kind for one in replay.contenders] == ["simple"] * len(POLICIES) + ["optimal"]
    assert replay.model_absence.startswith("training 1 of 7: ")
    assert "expected a million" in replay.model_absence


def test_real_model_is_trained_by_the_protocol_and_repeats_itself(busy_log: RunLog) -> None:
    X = build_matrix(busy_log)

    def replay(seed: int) -> PredictionReplay:
        return replay_prediction(
            busy_log,
            X,
            Protocol(retrain_share=0.5, seed=seed),
            policies=["random"],
            fit=lambda X, y, runs: fit_ranker(X, y, runs=runs, seed=seed),
        )

    first, second = replay(1), replay(1)
    assert first.n_trainings == 2
    for name in ("lightgbm", "lightgbm/duration"):
        np.testing.assert_array_equal(scores_of(first, name), scores_of(second, name))
        # Failures of this history repeat, so whatever learned anything beats chance.
        assert scores_of(first, name).mean(axis=0)[0] > scores_of(first, "random").mean(axis=0)[0] + 0.03


def test_unknown_durations_are_the_expected_ones(make_log: Callable[..., RunLog]) -> None:
    nan = float("nan")
    log = make_log(
        [
            {"a": (0, 2.0), "b": (1, 6.0)},
            {"a": (0, nan), "b": (1, 6.0)},
        ]
    )
    X = build_matrix(log)
    replay = replay_prediction(log, X, Protocol(start_share=0.5), policies=["shortest"])
    assert replay.n_imputed == 1
    assert expected_durations(X[2:]).tolist() == [2.0, 6.0]
    assert scores_of(replay, "shortest")[0, METRICS.index("apfdc")] == pytest.approx(apfdc([2], [2.0, 6.0]))


def test_history_without_a_run_to_score_says_where_the_runs_went(make_log: Callable[..., RunLog]) -> None:
    log = make_log([{"a": (0, 1.0), "b": (0, 1.0)}] * 3 + [{"a": (1, 1.0)}])
    with pytest.raises(TooLittleDataError, match=r"of 4 runs 2 lie after the start, 1 of these .* and 1 no"):
        replay_prediction(log, build_matrix(log), Protocol(start_share=0.5))


def test_matrix_of_another_log_is_refused(busy_log: RunLog) -> None:
    with pytest.raises(ValueError, match="X has 1 rows"):
        replay_prediction(busy_log, build_matrix(busy_log)[:1], Protocol())

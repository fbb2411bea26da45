"""Simple policies against their formulas, on matrices small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fastci_ml.features.schema import N_FEATURES, feature_index
from fastci_ml.learn.policies import BY_DURATION, MIN_DURATION_S, POLICIES, SimplePolicy, expected_durations

NAN = float("nan")


def matrix(**columns: list[float]) -> np.ndarray:
    """Feature matrix with the named columns; all others NaN, so that a policy cannot read them unseen."""
    n = len(next(iter(columns.values())))
    X = np.full((n, N_FEATURES), np.nan, dtype=np.float32)
    for name, values in columns.items():
        X[:, feature_index(name)] = values
    return X


@pytest.fixture
def X() -> np.ndarray:
    """Tests: failing of late, failing long ago, never failed, never ran."""
    return matrix(
        n_runs=[10, 20, 30, 0],
        n_fails=[2, 4, 0, 0],
        fail_decay_80=[0.3, 0.01, 0.0, 0.0],
        runs_since_fail=[1, 9, NAN, NAN],
        runs_since_run=[1, 2, 5, NAN],
        duration_mean_s=[4.0, 2.0, 0.0, NAN],
        last_verdict=[1, 0, 0, NAN],
    )


def score(name: str, X: np.ndarray) -> np.ndarray:
    return SimplePolicy(name).score(X, np.random.default_rng(0))


def test_expected_durations_are_means_or_the_median_test_and_never_zero(X: np.ndarray) -> None:
    assert expected_durations(X) == pytest.approx([4.0, 2.0, MIN_DURATION_S, 2.0])


def test_expected_durations_without_any_known_are_equal() -> None:
    assert expected_durations(matrix(duration_mean_s=[NAN, NAN])).tolist() == [1.0, 1.0]
    assert expected_durations(matrix(duration_mean_s=[NAN])[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("recently-failed", [0.3, 0.01, 0, 0]),
        ("recently-failed/duration", [0.302 / 4, 0.012 / 2, 0.002 / MIN_DURATION_S, 0.002 / 2]),
        ("failure-count", [2, 4, 0, 0]),
        ("failure-count/duration", [2.01 / 4, 4.01 / 2, 0.01 / MIN_DURATION_S, 0.01 / 2]),
        ("last-failure", [1, 1 / 9, 0, 0]),
        ("last-failure/duration", [1.002 / 4, (1 / 9 + 0.002) / 2, 0.002 / MIN_DURATION_S, 0.002 / 2]),
        ("oldest-run", [1, 2, 5, np.inf]),
        ("oldest-run/duration", [1 / 4, 2 / 2, 5 / MIN_DURATION_S, np.inf]),
        ("shortest", [1 / 4, 1 / 2, 1 / MIN_DURATION_S, 1 / 2]),
        ("failure-rate", [2.01 / 10.5, 4.01 / 20.5, 0.01 / 30.5, 0.01 / 0.5]),
        (
            "failure-rate/duration",
            [2.01 / 10.5 / 4, 4.01 / 20.5 / 2, 0.01 / 30.5 / MIN_DURATION_S, 0.01 / 0.5 / 2],
        ),
    ],
)
def test_policy_follows_its_formula(name: str, expected: list[float], X: np.ndarray) -> None:
    assert score(name, X) == pytest.approx(expected)


def test_thompson_draws_from_the_beta_of_failures_and_passes(X: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    draws = np.stack([POLICIES["thompson"].score(X, rng) for _ in range(20_000)])
    a, b = np.array([2.5, 4.5, 0.5, 0.5]), np.array([13.0, 21.0, 35.0, 5.0])
    assert draws.mean(axis=0) == pytest.approx(a / (a + b), abs=0.005)
    assert draws.var(axis=0) == pytest.approx(a * b / ((a + b) ** 2 * (a + b + 1)), abs=0.001)


@pytest.mark.parametrize("name", POLICIES)
def test_scores_are_comparable_and_seeded(name: str, X: np.ndarray) -> None:
    scores = score(name, X)
    assert scores.dtype == np.float64
    assert scores.shape == (4,)
    assert not np.isnan(scores).any()
    assert (scores == score(name, X)).all()
    rng = np.random.default_rng(0)
    again = [POLICIES[name].score(X, rng) for _ in range(2)]
    assert POLICIES[name].is_random == bool((again[0] != again[1]).any())


@pytest.mark.parametrize("name", POLICIES)
def test_policy_bears_a_run_without_tests_and_without_history(name: str) -> None:
    assert score(name, matrix(n_runs=[1.0])[:0]).shape == (0,)
    nothing = matrix(n_runs=[0.0] * 3, n_fails=[0.0] * 3, fail_decay_80=[0.0] * 3, duration_mean_s=[NAN] * 3)
    assert not np.isnan(score(name, nothing)).any()


def test_every_rule_but_shortest_has_a_form_per_second() -> None:
    plain = {name for name in POLICIES if BY_DURATION not in name}
    assert {name.removesuffix(BY_DURATION) for name in POLICIES if BY_DURATION in name} == plain - {
        "shortest"
    }


@pytest.mark.parametrize("name", ["", "lightgbm", "shortest/duration", "random/", "random/duration/duration"])
def test_unknown_policy_is_refused_with_the_known_names(name: str) -> None:
    with pytest.raises(ValueError, match="there are random, recently-failed"):
        SimplePolicy(name)

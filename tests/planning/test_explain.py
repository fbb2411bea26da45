"""Reasons say what moved a risk, in words."""

from __future__ import annotations

import numpy as np
import pytest

from fastci_ml.features.schema import FEATURES, N_FEATURES, feature_index
from fastci_ml.planning.explain import feature_words, risk_reasons


def test_the_strongest_effects_come_first_whatever_their_direction() -> None:
    matrix = np.zeros((1, N_FEATURES), dtype=np.float32)
    effects = np.zeros((1, N_FEATURES), dtype=np.float32)
    for name, value, effect in (
        ("runs_since_fail", 2, 0.75),
        ("pass_streak", 9, -1.5),
        ("n_runs", 4, 0.25),
        ("fail_rate", 0.5, 0.125),
    ):
        matrix[0, feature_index(name)] = value
        effects[0, feature_index(name)] = effect
    [reasons] = risk_reasons(matrix, effects)
    assert [reason.text for reason in reasons] == [
        "passed 9 times in a row: lowers the risk (-1.50 log-odds)",
        "last failed 2 CI runs ago: raises the risk (+0.75 log-odds)",
        "ran 4 times before: raises the risk (+0.25 log-odds)",
    ]
    strongest = reasons[0]
    assert {"code": strongest.code, "text": strongest.text, **strongest.details} == {
        "code": "risk",
        "text": reasons[0].text,
        "feature": "pass_streak",
        "value": 9.0,
        "effect": -1.5,
    }


def test_a_test_that_nothing_moves_says_so() -> None:
    nothing = np.zeros((1, N_FEATURES), dtype=np.float32)
    [[reason]] = risk_reasons(nothing, nothing)
    assert reason.code == "base_rate"


def test_an_unknown_value_is_null_and_has_words_of_its_own() -> None:
    matrix = np.full((1, N_FEATURES), np.nan, dtype=np.float32)
    effects = np.zeros((1, N_FEATURES), dtype=np.float32)
    effects[0, feature_index("runs_since_fail")] = -2
    [[reason]] = risk_reasons(matrix, effects)
    assert reason.text == "never failed (runs_since_fail): lowers the risk (-2.00 log-odds)"
    assert reason.details["value"] is None


def test_no_tests_no_reasons() -> None:
    empty = np.empty((0, N_FEATURES), dtype=np.float32)
    assert risk_reasons(empty, empty) == []


@pytest.mark.parametrize("feature", range(N_FEATURES), ids=[feature.name for feature in FEATURES])
def test_every_feature_has_words_for_a_value_and_for_none(feature: int) -> None:
    assert feature_words(feature, 0.5)
    assert feature_words(feature, float("nan"))

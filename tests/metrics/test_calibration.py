"""Calibration figures, against risks whose true calibration is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.metrics.calibration import brier_score, brier_skill_score, calibration_line, top_decile_error


def draw(n: int, slope: float, intercept: float) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes from risks after recalibration by a known line, and the risks as a model would state them."""
    rng = np.random.default_rng(5)
    logit = rng.normal(-2, 1.5, size=n)
    truth = 1 / (1 + np.exp(-(intercept + slope * logit)))
    return (rng.random(n) < truth).astype(int), 1 / (1 + np.exp(-logit))


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.5, -0.3), (2.0, 0.8)])
def test_line_finds_the_slope_and_intercept_that_made_the_outcomes(slope: float, intercept: float) -> None:
    line = calibration_line(*draw(60_000, slope, intercept))
    assert line.slope == pytest.approx(slope, abs=0.06)
    assert line.intercept == pytest.approx(intercept, abs=0.12)


def test_line_agrees_with_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    y, p = draw(2_000, 0.7, 0.2)
    fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1_000).fit(np.log(p / (1 - p))[:, None], y)
    line = calibration_line(y, p)
    assert line.slope == pytest.approx(fitted.coef_[0, 0], abs=1e-4)
    assert line.intercept == pytest.approx(fitted.intercept_[0], abs=1e-4)


@pytest.mark.parametrize(
    ("outcomes", "risks"),
    [([], []), ([0, 0], [0.1, 0.2]), ([0, 1, 0], [0.3] * 3), ([0, 0, 1], [0.1, 0.2, 0.3])],
    ids=["no rows", "one kind", "equal risks", "separated"],
)
def test_line_without_a_maximum_is_nan(outcomes: list[int], risks: list[float]) -> None:
    line = calibration_line(outcomes, risks)
    assert math.isnan(line.slope)
    assert math.isnan(line.intercept)


def test_line_bears_risks_of_exactly_zero_and_one() -> None:
    line = calibration_line([0, 1, 1, 0, 1], [0.0, 0.0, 1.0, 1.0, 0.5])
    assert math.isfinite(line.slope)


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=1))
def test_skill_is_one_when_perfect_and_zero_for_the_base_rate(rows: list[tuple[int, float]]) -> None:
    y = np.array([row[0] for row in rows])
    p = np.array([row[1] for row in rows])
    assert brier_score(y, p) == pytest.approx(sum((a - b) ** 2 for a, b in rows) / len(rows))
    if y.min() == y.max():
        assert math.isnan(brier_skill_score(y, p))
    else:
        assert brier_skill_score(y, y) == 1
        assert brier_skill_score(y, np.full(len(y), y.mean())) == pytest.approx(0)


def test_skill_against_a_given_base_rate() -> None:
    assert brier_skill_score([0, 1], [0.5, 0.5], base_rate=0.0) == pytest.approx(0.5)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.1, 0.5, 0.9])), min_size=1, max_size=60),
    st.randoms(use_true_random=False),
)
def test_top_decile_error_does_not_depend_on_the_order_of_rows(rows, random) -> None:
    shuffled = random.sample(rows, len(rows))
    first = top_decile_error(*zip(*rows, strict=True))
    assert top_decile_error(*zip(*shuffled, strict=True)) == pytest.approx(first)
    assert -1e-12 <= first <= 1


def test_top_decile_holds_a_tenth_of_the_rows() -> None:
    risks = np.arange(100) / 100
    outcomes = (risks >= 0.95).astype(int)
    assert top_decile_error(outcomes, risks) == pytest.approx(abs(risks[90:].mean() - 0.5))
    assert top_decile_error(outcomes, risks, share=1.0) == pytest.approx(abs(risks.mean() - 0.05))


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        brier_score([0, 1], [0.5])
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        brier_score([0, 2], [0.5, 0.5])
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        brier_score([0, 1], [0.5, math.nan])
    with pytest.raises(ValueError, match="base_rate is"):
        brier_skill_score([0, 1], [0.5, 0.5], base_rate=2.0)
    with pytest.raises(ValueError, match="share is"):
        top_decile_error([0], [0.5], share=0.0)

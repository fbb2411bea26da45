from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.errors import ModelError
from fastci_ml.learn.calibration import (
    MIN_ISOTONIC_POSITIVES,
    MIN_POSITIVES,
    Calibration,
    CalibrationKind,
    fit_calibration,
)
from fastci_ml.metrics.calibration import calibration_line


def draw(seed: int, n: int, *, shift: float = -2.0, slope: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n) * 2
    return scores, (rng.random(n) < 1 / (1 + np.exp(-(slope * scores + shift)))).astype(float)


def test_platt_finds_the_line_that_made_the_labels() -> None:
    scores, y = draw(0, 4_000)
    assert MIN_POSITIVES < y.sum() < MIN_ISOTONIC_POSITIVES
    calibration = fit_calibration(scores, y)
    assert calibration.kind is CalibrationKind.PLATT
    assert calibration.slope == pytest.approx(0.5, abs=0.1)
    assert calibration.intercept == pytest.approx(-2.0, abs=0.15)
    later_scores, later = draw(1, 4_000)
    assert calibration_line(later, calibration.risk(later_scores)).slope == pytest.approx(1.0, abs=0.15)


def test_isotonic_above_a_thousand_positives_equals_scikit_learn() -> None:
    from sklearn.isotonic import IsotonicRegression

    scores, y = draw(2, 6_000, shift=-1.0)
    calibration = fit_calibration(scores, y)
    assert calibration.kind is CalibrationKind.ISOTONIC
    reference = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, y)
    grid = np.linspace(-12, 12, 999)
    expected = np.clip(reference.predict(grid), calibration.least, calibration.most)
    np.testing.assert_allclose(calibration.risk(grid), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_failures", [0, 1, MIN_POSITIVES - 1, 60 - MIN_POSITIVES + 1, 59, 60])
def test_below_the_floor_a_model_is_uncalibrated_and_gives_no_risk(n_failures: int) -> None:
    # case 49: too few failures, or too few passes; the model's own sigmoid would look like a probability.
    scores, y = draw(3, 60)
    y[:] = 0
    y[np.argsort(scores)[len(y) - n_failures :]] = 1
    calibration = fit_calibration(scores, y)
    assert not calibration.is_calibrated
    assert calibration.n_positives == n_failures
    assert np.isnan(calibration.risk(scores)).all()
    assert Calibration.from_json(calibration.to_json()) == calibration


@pytest.mark.parametrize("n", [200, 20_000])
def test_no_risk_is_surer_than_the_rows_that_it_was_checked_on(n: int) -> None:
    # case 49: scores that part the classes without an error, and scores far outside what was seen.
    scores = np.linspace(-9, 9, n)
    y = (scores > 5).astype(float)
    calibration = fit_calibration(scores, y)
    assert calibration.kind is (CalibrationKind.PLATT if n == 200 else CalibrationKind.ISOTONIC)
    risks = calibration.risk(np.array([-1e300, -700.0, -9.0, 9.0, 700.0, 1e300]))
    assert risks.min() == pytest.approx(1 / (np.sum(y == 0) + 2))
    assert risks.max() == pytest.approx(1 - 1 / (np.sum(y == 1) + 2))


def test_a_calibration_of_the_first_release_has_no_bounds() -> None:
    document = fit_calibration(*draw(0, 4_000)).to_json()
    del document["least"], document["most"]
    assert (Calibration.from_json(document).least, Calibration.from_json(document).most) == (0.0, 1.0)


def test_scores_that_mislead_give_no_falling_curve() -> None:
    scores, y = draw(4, 2_000)
    assert not fit_calibration(-scores, y).is_calibrated


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), n=st.sampled_from([30, 300, 5_000]), shift=st.floats(-3, 0))
def test_a_higher_score_never_has_a_lower_risk(seed: int, n: int, shift: float) -> None:
    calibration = fit_calibration(*draw(seed, n, shift=shift))
    grid = np.array([-np.inf, -1e300, *np.linspace(-50, 50, 500), 1e300, np.inf])
    risks = calibration.risk(grid)
    if calibration.is_calibrated:
        assert (np.diff(risks) >= 0).all()
        assert ((risks > 0) & (risks < 1)).all()
    else:
        assert np.isnan(risks).all()
    assert Calibration.from_json(calibration.to_json()) == calibration


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "guess"},
        {"slope": -1.0},
        {"slope": float("nan")},
        {"scores": [0.0, 0.0], "risks": [0.1, 0.2]},
        {"scores": [0.0, 1.0], "risks": [0.2, 0.1]},
        {"scores": [0.0, 1.0], "risks": [0.2, 1.1]},
        {"scores": [0.0], "risks": []},
        {"kind": "isotonic"},
        {"scores": None},
        {"least": -0.1},
        {"least": 0.6, "most": 0.5},
        {"most": float("nan")},
    ],
)
def test_a_damaged_calibration_is_refused(change: dict[str, object]) -> None:
    document = Calibration().to_json() | change
    with pytest.raises(ModelError, match="bundle/calibration"):
        Calibration.from_json(document, name="bundle/calibration.json")

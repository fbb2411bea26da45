"""Reasons in words: which features moved a risk the most, and which way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.features.schema import FEATURES
from fastci_ml.records.plans import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

_N_REASONS = 3
# Effects below this many log-odds change a risk by less than a twentieth of itself.
_MIN_EFFECT = 0.05


def feature_words(feature: int, value: float) -> str:
    """What one feature says of a test, in words."""
    known = FEATURES[feature]
    return (
        known.absent or f"{known.name} is unknown" if math.isnan(value) else known.words.format(value=value)
    )


def risk_reasons(matrix: NDArray[np.float32], contributions: NDArray[np.float32]) -> list[tuple[Reason, ...]]:
    """Name the features that moved each test's risk most.

    Parameters
    ----------
    matrix : float32, shape (n_tests, N_FEATURES)
        Features of the tests.
    contributions : float32, shape (n_tests, N_FEATURES)
        What each added to the log-odds.

    Returns
    -------
    list of tuple of Reason, length n_tests
        Up to three each, the strongest first, ties by feature; code ``risk``, or ``base_rate`` where no
        feature moved it. Details: ``feature``, ``value`` (null for NaN) and ``effect`` in log-odds.
    """
    strength = np.abs(contributions)
    # The strongest few by column, without sorting the rest; a stable sort keeps ties in schema order.
    top = np.argsort(-strength, axis=1, kind="stable")[:, :_N_REASONS] if len(matrix) else strength
    rows = np.arange(len(matrix))[:, None]
    values = matrix[rows, top.astype(np.intp)].astype(np.float64).tolist()
    effects = contributions[rows, top.astype(np.intp)].astype(np.float64).tolist()
    made: dict[tuple[int, float, float], Reason] = {}
    reasons = []
    for features, row_values, row_effects in zip(top.tolist(), values, effects, strict=True):
        moved = []
        for feature, value, effect in zip(features, row_values, row_effects, strict=True):
            if abs(effect) >= _MIN_EFFECT:
                # Most tests of a run share their strongest reasons.
                key = (feature, value, effect)
                if key not in made:
                    made[key] = _reason(feature, value, effect)
                moved.append(made[key])
        reasons.append(tuple(moved) or (_BASE_RATE,))
    return reasons


_BASE_RATE = Reason(code="base_rate", text="nothing known of it moves its risk from the usual")


def _reason(feature: int, value: float, effect: float) -> Reason:
    direction = "raises" if effect > 0 else "lowers"
    text = f"{feature_words(feature, value)}: {direction} the risk ({effect:+.2f} log-odds)"
    details = {
        "feature": FEATURES[feature].name,
        "value": None if math.isnan(value) else value,
        "effect": effect,
    }
    return Reason(code="risk", text=text, details=details)

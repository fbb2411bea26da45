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
# A weaker effect changes the odds by less than a fifth; to name it would say more than it does.
_MIN_EFFECT = 0.2


def feature_words(feature: int, value: float) -> str:
    """What one feature says of a test, in words."""
    known = FEATURES[feature]
    if math.isnan(value):
        # With its name, as several features are absent for the same reason.
        return f"{known.absent or 'unknown'} ({known.name})"
    return known.words.format(value=value)


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
        feature changed its odds by a fifth. Details: ``feature``, ``value`` (null for NaN) and ``effect``
        in log-odds.
    """
    n_tests = len(matrix)
    # The strongest few by column; a stable sort keeps ties in schema order.
    top = np.argsort(-np.abs(contributions), axis=1, kind="stable")[:, :_N_REASONS]
    effects = np.take_along_axis(contributions, top, axis=1)
    values = np.take_along_axis(matrix, top, axis=1)
    n_moved = (np.abs(effects) >= _MIN_EFFECT).sum(axis=1).tolist()
    # Most tests of a run share their reasons, so each is made once. As bits, because NaN equals nothing.
    columns = (top.ravel(), values.ravel().view(np.int32), effects.ravel().view(np.int32))
    order = np.lexsort(columns)
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    firsts = order[is_first]
    made = [
        _reason(feature, value, effect)
        for feature, value, effect in zip(
            top.ravel()[firsts].tolist(),
            values.ravel()[firsts].tolist(),
            effects.ravel()[firsts].tolist(),
            strict=True,
        )
    ]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.cumsum(is_first) - 1
    rows = place.reshape(n_tests, -1).tolist() if n_tests else []
    return [tuple([made[i] for i in row[:n]]) or (_BASE_RATE,) for row, n in zip(rows, n_moved, strict=True)]


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

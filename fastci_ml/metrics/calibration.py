"""Whether a predicted probability means what it says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Probabilities of exactly 0 and 1 have no logit; 1e-12 is far below what any history can tell from 0.
_LEAST = 1e-12
_MAX_NEWTON_STEPS = 50
_TOLERANCE = 1e-10


def brier_score(outcomes: npt.ArrayLike, risks: npt.ArrayLike) -> float:
    """Mean squared distance between outcome and risk: ``mean((y - p)^2)``, 0 is perfect.

    Parameters
    ----------
    outcomes : array of 0 and 1, shape (n,)
        1 where the test failed.
    risks : array of float, shape (n,)
        In [0, 1].

    Returns
    -------
    float
        NaN without rows.

    Raises
    ------
    ValueError
        If shapes differ, an outcome is neither 0 nor 1, or a risk lies outside [0, 1].

    Notes
    -----
    Brier, Monthly Weather Review 78(1), 1950.
    """
    y, p = _check(outcomes, risks)
    return float(np.mean((y - p) ** 2)) if len(y) else float("nan")


def brier_skill_score(
    outcomes: npt.ArrayLike, risks: npt.ArrayLike, *, base_rate: float | None = None
) -> float:
    """Brier score against that of a constant: ``1 - brier(p) / brier(base rate)``.

    Parameters
    ----------
    outcomes, risks
        As in `brier_score`.
    base_rate : float, optional
        The constant to beat, in [0, 1], such as the failure rate of the training rows. By default the rate of
        `outcomes` themselves: the best constant in hindsight, so a skill above 0 is harder to get.

    Returns
    -------
    float
        At most 1; above 0 is better than the constant. NaN without rows, or where the constant is perfect.

    Raises
    ------
    ValueError
        As in `brier_score`, or if `base_rate` lies outside [0, 1].

    Examples
    --------
    >>> brier_skill_score([0, 0, 0, 1], [0.1, 0.1, 0.1, 0.7]).__round__(2)
    0.84
    """
    y, p = _check(outcomes, risks)
    if len(y) == 0:
        return float("nan")
    rate = float(y.mean()) if base_rate is None else base_rate
    if not 0 <= rate <= 1:
        raise ValueError(f"base_rate is {rate}, expected a number from 0 to 1")
    constant = brier_score(y, np.full_like(y, rate))
    return 1.0 - brier_score(y, p) / constant if constant > 0 else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationLine:
    """Logistic recalibration ``logit(P(fail)) = intercept + slope * logit(risk)``.

    Attributes
    ----------
    slope : float
        1 is right; below 1 the risks are too extreme, above 1 too timid. NaN where it cannot be fitted.
    intercept : float
        0 is right; NaN where it cannot be fitted.
    """

    slope: float
    intercept: float


def calibration_line(outcomes: npt.ArrayLike, risks: npt.ArrayLike) -> CalibrationLine:
    """Fit the recalibration of Cox by maximum likelihood.

    Parameters
    ----------
    outcomes, risks
        As in `brier_score`.

    Returns
    -------
    CalibrationLine
        NaN where the likelihood has no single finite maximum: outcomes of one kind, equal risks, or risks
        that separate failures from passes completely.

    Raises
    ------
    ValueError
        As in `brier_score`.

    Notes
    -----
    Cox, Biometrika 45, 1958. Newton steps, halved while they would lower the likelihood.
    """
    y, p = _check(outcomes, risks)
    nothing = CalibrationLine(slope=float("nan"), intercept=float("nan"))
    if len(y) == 0 or y.min() == y.max() or p.min() == p.max():
        return nothing
    clipped = np.clip(p, _LEAST, 1 - _LEAST)
    x = np.log(clipped) - np.log1p(-clipped)
    if x[y == 1].min() >= x[y == 0].max() or x[y == 1].max() <= x[y == 0].min():
        return nothing
    design = np.column_stack([np.ones_like(x), x])
    beta = np.array([0.0, 1.0])
    value = _log_likelihood(design @ beta, y)
    for _ in range(_MAX_NEWTON_STEPS):
        fitted = _sigmoid(design @ beta)
        weights = np.maximum(fitted * (1 - fitted), _LEAST)
        step = np.linalg.solve((design * weights[:, None]).T @ design, design.T @ (y - fitted))
        scale = 1.0
        while (
            new_value := _log_likelihood(design @ (beta + scale * step), y)
        ) < value and scale > _TOLERANCE:
            scale /= 2
        beta, value = beta + scale * step, new_value
        if np.max(np.abs(scale * step)) < _TOLERANCE:
            break
    return CalibrationLine(slope=float(beta[1]), intercept=float(beta[0]))


def top_decile_error(outcomes: npt.ArrayLike, risks: npt.ArrayLike, *, share: float = 0.1) -> float:
    """Distance between mean risk and failure rate among the riskiest rows.

    The decile holds an equal mass: `share` of the rows, the riskiest first. Rows tied with its last one share
    the room that is left, so the answer does not depend on the order of the rows.

    Parameters
    ----------
    outcomes, risks
        As in `brier_score`.
    share : float
        Mass of the slice, in (0, 1].

    Returns
    -------
    float
        ``|mean risk - failure rate|``, in [0, 1], 0 is right. NaN without rows.

    Raises
    ------
    ValueError
        As in `brier_score`, or if `share` lies outside (0, 1].

    Examples
    --------
    >>> top_decile_error([1, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0.75] + [0.0] * 9)
    0.25
    """
    y, p = _check(outcomes, risks)
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}, expected a number above 0, at most 1")
    if len(y) == 0:
        return float("nan")
    size = max(1.0, share * len(y))
    last = np.sort(p)[::-1][int(np.ceil(size)) - 1]
    is_above, is_tied = p > last, p == last
    weights = is_above + is_tied * (size - is_above.sum()) / is_tied.sum()
    return float(abs(np.sum(weights * (p - y))) / size)


def _check(
    outcomes: npt.ArrayLike, risks: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    y, p = np.asarray(outcomes, dtype=np.float64), np.asarray(risks, dtype=np.float64)
    if y.ndim != 1 or y.shape != p.shape:
        raise ValueError(f"outcomes {y.shape} and risks {p.shape}: expected one dimension and one length")
    if not np.isin(y, (0.0, 1.0)).all():
        raise ValueError("an outcome is neither 0 nor 1")
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("a risk lies outside 0..1")
    return y, p


def _sigmoid(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    # tanh does not overflow, whatever the sign.
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _log_likelihood(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> float:
    return float(np.sum(y * x - np.logaddexp(0.0, x)))

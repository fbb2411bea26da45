"""Turn raw scores into risks: fitted by scikit-learn, kept as plain numbers, applied with numpy.

Orders use the raw score; the risk is for the figures that people see (EVALUATION 1). Isotonic regression
needs thousands of positives to beat a straight line in log-odds, so below 1,000 it is Platt's sigmoid. Below
a floor the risk is unknown. No risk is surer than the rows that it was checked on: with 1,000 passes none is
below one in 1,002, and none is ever 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastci_ml.errors import ModelError

# Platt has two parameters; with fewer positives than this its slope is noise.
MIN_POSITIVES = 20
MIN_ISOTONIC_POSITIVES = 1_000


class CalibrationKind(StrEnum):
    """How risks are made from raw scores."""

    NONE = "uncalibrated"
    PLATT = "platt"
    ISOTONIC = "isotonic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A map from raw scores to risks that never decreases.

    Attributes
    ----------
    kind : CalibrationKind
        How it was fitted.
    slope, intercept : float
        For `PLATT`: risk is the sigmoid of ``slope * score + intercept``.
    scores, risks : tuple of float
        For `ISOTONIC`: ascending corners, linear between them, level outside.
    n_rows, n_positives : int
        What it was fitted on.
    least, most : float
        Bounds of the risk.
    """

    kind: CalibrationKind = CalibrationKind.NONE
    slope: float = 1.0
    intercept: float = 0.0
    scores: tuple[float, ...] = ()
    risks: tuple[float, ...] = ()
    n_rows: int = 0
    n_positives: int = 0
    least: float = 0.0
    most: float = 1.0

    @property
    def is_calibrated(self) -> bool:
        """Whether the risks were checked against later runs."""
        return self.kind is not CalibrationKind.NONE

    def risk(self, raw_scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability of failing for each raw score; NaN where nothing was fitted."""
        raw_scores = np.asarray(raw_scores, dtype=np.float64)
        if self.kind is CalibrationKind.NONE:
            # The model's own sigmoid may say 1e-15 after a hundred passes: it looks like a probability.
            return np.full(raw_scores.shape, np.nan)
        if self.kind is CalibrationKind.ISOTONIC:
            risks = np.interp(raw_scores, self.scores, self.risks)
        else:  # by tanh, which saturates where exp would overflow
            risks = 0.5 + 0.5 * np.tanh(0.5 * (self.slope * raw_scores + self.intercept))
        bounded: NDArray[np.float64] = np.clip(risks, self.least, self.most)
        return bounded

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; `from_json` takes them back without loss."""
        return {
            "kind": self.kind.value,
            "slope": self.slope,
            "intercept": self.intercept,
            "scores": list(self.scores),
            "risks": list(self.risks),
            "n_rows": self.n_rows,
            "n_positives": self.n_positives,
            "least": self.least,
            "most": self.most,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], *, name: str = "calibration") -> Calibration:
        """Read what `to_json` wrote.

        Raises
        ------
        ModelError
            If a key is missing, a number is none, or the corners do not ascend or leave [0, 1].
        """
        try:
            calibration = cls(
                kind=CalibrationKind(document["kind"]),
                slope=float(document["slope"]),
                intercept=float(document["intercept"]),
                scores=tuple(float(score) for score in document["scores"]),
                risks=tuple(float(risk) for risk in document["risks"]),
                n_rows=int(document["n_rows"]),
                n_positives=int(document["n_positives"]),
                # Bundles of the first release have no bounds.
                least=float(document.get("least", 0.0)),
                most=float(document.get("most", 1.0)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{name}: no calibration: {error!r}", hint="fastci-ml train") from error
        calibration._check(name)
        return calibration

    def _check(self, name: str) -> None:
        scores, risks = np.array(self.scores), np.array(self.risks)
        is_sound = math.isfinite(self.slope) and math.isfinite(self.intercept) and self.slope > 0
        is_sound &= len(scores) == len(risks) and bool(np.isfinite(scores).all())
        is_sound &= bool((np.diff(scores) > 0).all() and (np.diff(risks) >= 0).all())
        is_sound &= bool(((risks >= 0) & (risks <= 1)).all())
        is_sound &= self.kind is not CalibrationKind.ISOTONIC or len(scores) > 0
        is_sound &= 0 <= self.least <= self.most <= 1
        if not is_sound:
            raise ModelError(f"{name}: its numbers are no rising curve", hint="fastci-ml train")


def fit_calibration(raw_scores: NDArray[np.float64], y: NDArray[np.float64]) -> Calibration:
    """Fit on a slice of later runs.

    Parameters
    ----------
    raw_scores : ndarray of float64, shape (n,)
        Of a model that has not seen these rows.
    y : ndarray of float64, shape (n,)
        Labels, 1 failed and 0 passed.

    Returns
    -------
    Calibration
        Uncalibrated below `MIN_POSITIVES` failures or as many passes, and where failures do not score higher
        than passes: a falling curve would turn the order around.
    """
    n_positives = int(np.sum(y == 1))
    n_passes = len(y) - n_positives
    uncalibrated = Calibration(
        n_rows=len(y),
        n_positives=n_positives,
        # Those of Platt's soft targets: what so many rows of one class alone would be worth.
        least=1 / (n_passes + 2),
        most=(n_positives + 1) / (n_positives + 2),
    )
    if min(n_positives, n_passes) < MIN_POSITIVES:
        return uncalibrated
    if n_positives >= MIN_ISOTONIC_POSITIVES:
        from sklearn.isotonic import IsotonicRegression

        curve = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(raw_scores, y)
        return replace(
            uncalibrated,
            kind=CalibrationKind.ISOTONIC,
            scores=tuple(curve.X_thresholds_.tolist()),
            risks=tuple(curve.y_thresholds_.tolist()),
        )
    from sklearn.linear_model import LogisticRegression

    # C=inf is no penalty; Platt's soft targets keep the slope finite where scores separate the classes.
    soft, weights, scores = _platt_targets(raw_scores, y)
    line = LogisticRegression(C=np.inf).fit(scores[:, None], soft, sample_weight=weights)
    slope, intercept = float(line.coef_[0, 0]), float(line.intercept_[0])
    if not (math.isfinite(slope) and slope > 0):
        return uncalibrated
    return replace(uncalibrated, kind=CalibrationKind.PLATT, slope=slope, intercept=intercept)


def _platt_targets(
    raw_scores: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Each row as a failure of weight t and a pass of weight 1 - t.

    t is (N+ + 1) / (N+ + 2) for a failure and 1 / (N- + 2) for a pass (Platt, "Probabilistic outputs for
    support vector machines", 1999).
    """
    n_positives = float(np.sum(y == 1))
    n_negatives = len(y) - n_positives
    target = np.where(y == 1, (n_positives + 1) / (n_positives + 2), 1 / (n_negatives + 2))
    soft = np.concatenate([np.ones(len(y), dtype=np.int64), np.zeros(len(y), dtype=np.int64)])
    return soft, np.concatenate([target, 1 - target]), np.concatenate([raw_scores, raw_scores])

"""Scores and reasons of the tests of one run: by the model, by a simple policy, or by nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from fastci_ml.features.schema import feature_index
from fastci_ml.learn.policies import BY_DURATION, POLICIES, expected_durations
from fastci_ml.planning.explain import feature_words, risk_reasons
from fastci_ml.records.plans import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastci_ml.learn.bundle import ModelBundle

# What ranks where there is no model: on real histories no other one-line rule does better on the whole.
FALLBACK_POLICY = "recently-failed"


class Objective(StrEnum):
    """What the order is good for."""

    COST = "cost"  # failures early in seconds: risk per expected second (APFDc)
    FAILURES = "failures"  # failures early in tests: risk alone (APFD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Scores of the tests of one run.

    Attributes
    ----------
    model : dict
        What ranked them: ``kind`` (model, policy or none), ``name``, ``version``; of a model also ``digest``.
    scores : float64, shape (n,)
        Higher runs earlier; ties go by node id.
    risks : float64, shape (n,)
        Probabilities of failing; NaN where nothing calibrated could say.
    reasons : list of tuple of Reason, length n
        At least one each.
    notes : list of str
        What it fell back to, and why.
    """

    model: dict[str, Any]
    scores: NDArray[np.float64]
    risks: NDArray[np.float64]
    reasons: list[tuple[Reason, ...]]
    notes: list[str] = field(default_factory=list)


def rank_by_model(
    bundle: ModelBundle, matrix: NDArray[np.float32], objective: Objective, lane: str
) -> Ranking:
    """Rank by predicted risk.

    Parameters
    ----------
    bundle : ModelBundle
        The model.
    matrix : float32, shape (n, N_FEATURES)
        Features of the tests.
    objective : Objective
        Risk alone, or risk per expected second.
    lane : str
        Where the tests will run: on a lane that no later run checked there are no risks.
    """
    registered = bundle.registration
    raw_scores, contributions = bundle.explain(matrix)
    scores, notes = raw_scores, []
    if objective is Objective.COST:
        # In log-odds a division by seconds is no longer one: risk / s = exp(log risk - log s).
        scores = -np.logaddexp(0.0, -raw_scores) - np.log(expected_durations(matrix))
    risks = bundle.calibration.risk(raw_scores)
    if not bundle.calibrates(lane):
        risks = np.full(len(matrix), np.nan)
        where = f" on lane {lane}" if bundle.is_calibrated else ""
        notes.append(f"the model is uncalibrated{where}: it orders the tests, and gives no risk")
    return Ranking(
        model={
            "kind": "model",
            "name": registered.name if registered else "unregistered",
            "version": registered.version if registered else None,
            "digest": bundle.digest,
        },
        scores=scores,
        risks=risks,
        reasons=risk_reasons(matrix, contributions),
        notes=notes,
    )


def rank_by_policy(matrix: NDArray[np.float32], objective: Objective, why: str) -> Ranking:
    """Rank by the fallback policy; `why` says what kept the model away."""
    name = FALLBACK_POLICY + (BY_DURATION if objective is Objective.COST else "")
    # The policy draws nothing at random, so the generator's seed is of no account.
    scores = POLICIES[name].score(matrix, np.random.default_rng(0))
    column = feature_index("fail_decay_80")
    reasons: list[tuple[Reason, ...]] = [
        (Reason(code="policy", text=f"{name}: {feature_words(column, value)}", details={"score": score}),)
        for value, score in zip(matrix[:, column].tolist(), scores.tolist(), strict=True)
    ]
    return Ranking(
        model={"kind": "policy", "name": name, "version": None},
        scores=scores,
        risks=np.full(len(matrix), np.nan),
        reasons=reasons,
        notes=[f"{why}: ranked by the simple policy {name!r}"],
    )


def rank_by_nothing(node_ids: Sequence[str], why: str) -> Ranking:
    """Rank by test id, where there is neither a model nor a history."""
    unknown = (Reason(code="no_history", text="nothing is known of it: it runs"),)
    return Ranking(
        model={"kind": "none", "name": "test id", "version": None},
        scores=np.zeros(len(node_ids)),
        risks=np.full(len(node_ids), np.nan),
        reasons=[unknown] * len(node_ids),
        notes=[f"{why}: ordered by test id"],
    )

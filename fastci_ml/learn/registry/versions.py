"""What goes into the registry and comes out of it, as plain records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fastci_ml.errors import DataError

# Figures of the test slice that stand on the version itself.
KEY_FIGURES = ("apfd", "apfdc", "best_simple_apfd", "best_simple_apfdc", "brier_skill", "calibration_slope")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredVersion:
    """One version of a registered model.

    Attributes
    ----------
    name, version : str
        As registered.
    aliases : tuple of str
        Sorted.
    created_at : datetime
        UTC, when it was registered.
    run_id, model_id : str
        MLflow's ids of the training run and of the logged model.
    digest : str
        Of the bundle.
    stage : str
        Stage that a release of MLflow before aliases gave it; empty for none.
    metrics : mapping of str to float
        On its test slice.
    outcomes : mapping of str to float
        ``n_outcomes``, and over the CI outcomes it ranked: sums of counts (``n_...``, ``..._failures``) and
        of saved seconds (``..._saved_s``), means of everything else.
    """

    name: str
    version: str
    aliases: tuple[str, ...]
    created_at: datetime
    run_id: str
    model_id: str
    digest: str
    stage: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    outcomes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRecord:
    """One CI outcome, on its way to the version that ranked it.

    Attributes
    ----------
    outcome_id : str
        The same id is never counted twice.
    model_name : str
        Registered model.
    version : str or None
        None where the plan was ranked before the bundle was registered; `digest` finds it then.
    digest : str
        Of the bundle; empty where unknown.
    at : datetime
        When the run finished, with a time zone.
    metrics : mapping of str to float
        Finite numbers only.
    tags : mapping of str to str
        Such as run id, base and head.
    """

    outcome_id: str
    model_name: str
    version: str | None
    digest: str
    at: datetime
    metrics: Mapping[str, float]
    tags: Mapping[str, str]

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> OutcomeRecord:
        """Read a record: ``outcome_id``, ``model`` (name, version, digest), ``at``, ``metrics``, ``tags``.

        Numbers that are null, NaN or infinite say nothing and are left out.

        Raises
        ------
        DataError
            If a key is missing or of the wrong type.
        """
        try:
            model = record["model"]
            at = datetime.fromisoformat(record["at"])
            return cls(
                outcome_id=_text(record["outcome_id"], "outcome_id"),
                model_name=_text(model["name"], "model.name"),
                version=None if model.get("version") is None else str(model["version"]),
                digest=str(model.get("digest") or ""),
                at=at if at.tzinfo else at.replace(tzinfo=UTC),
                metrics={
                    str(key): float(value)
                    for key, value in record["metrics"].items()
                    if value is not None and math.isfinite(float(value))
                },
                tags={str(key): str(value) for key, value in record.get("tags", {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"no CI outcome record: {type(error).__name__}: {error}") from error


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} is {value!r}, expected text")
    return value


def total_outcomes(outcomes: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sum up the outcomes of one version: counts and saved seconds add up, everything else is a mean.

    Examples
    --------
    >>> total_outcomes([{"n_failures": 2, "apfd": 0.5}, {"n_failures": 1}])
    {'n_outcomes': 2.0, 'apfd': 0.5, 'n_failures': 3.0}
    """
    values: dict[str, list[float]] = {}
    n_outcomes = 0
    for metrics in outcomes:
        n_outcomes += 1
        for key, value in metrics.items():
            values.setdefault(key, []).append(value)
    totals = {"n_outcomes": float(n_outcomes)}
    for key, found in sorted(values.items()):
        is_sum = key.startswith("n_") or key.endswith(("_failures", "_saved_s"))
        totals[key] = math.fsum(found) if is_sum else math.fsum(found) / len(found)
    return totals


def card_params(card: Mapping[str, Any]) -> dict[str, str]:
    """What a training was given, from a bundle's card: parameters, history, versions."""
    params = {**card["params"], "n_trees": card["n_trees"], "calibration": card["calibration"]}
    for part in ("history", "versions"):
        params |= {f"{part}.{key}": value for key, value in card[part].items()}
    return {key: str(value) for key, value in params.items()}


def card_metrics(card: Mapping[str, Any]) -> dict[str, float]:
    """Finite figures of each slice, from a bundle's card, as ``slice.figure``."""
    return {
        f"{name}.{key}": float(value)
        for name, figures in card["metrics"].items()
        for key, value in figures.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }

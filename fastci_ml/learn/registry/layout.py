"""How versions and outcomes lie in MLflow: tags and searches. Takes a client, imports nothing of MLflow."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastci_ml.errors import RegistryError
from fastci_ml.learn.registry.reach import check_name
from fastci_ml.learn.registry.versions import OutcomeRecord, RegisteredVersion, total_outcomes

KIND, BUNDLE_DIGEST, TEST_METRIC = "fastci.kind", "fastci.bundle_digest", "fastci.test."
_OUTCOME_ID, _VERSION, _OUTCOME = "fastci.outcome_id", "fastci.model_version", "fastci.outcomes."
# MLflow's own stores take the model of a version and forget it, so it stands in a tag.
MODEL_ID = "fastci.model_id"
_PAGE = 1000
# MLflow's word for a version in no stage.
_NO_STAGE = "None"
BUNDLE = "bundle"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def find_versions(client: Any, query: str) -> Iterator[Any]:
    """Model versions by MLflow's search language."""
    return _pages(lambda token: client.search_model_versions(query, max_results=_PAGE, page_token=token))


def read_version(version: Any, aliases: Mapping[str, str]) -> RegisteredVersion:
    """Record of one of MLflow's model versions; searches leave aliases out, so they are given."""
    tags: dict[str, str] = version.tags

    def figures(prefix: str) -> dict[str, float]:
        found = {key.removeprefix(prefix): _number(v) for key, v in tags.items() if key.startswith(prefix)}
        return {key: value for key, value in found.items() if value is not None}

    stage = version.current_stage or _NO_STAGE  # read only: we give aliases
    return RegisteredVersion(
        name=version.name,
        version=str(version.version),
        aliases=tuple(sorted(alias for alias, of in aliases.items() if of == str(version.version))),
        created_at=datetime.fromtimestamp(version.creation_timestamp / 1000, tz=UTC),
        run_id=version.run_id,
        model_id=tags.get(MODEL_ID, ""),
        digest=tags.get(BUNDLE_DIGEST, ""),
        stage="" if stage == _NO_STAGE else stage,
        metrics=figures(TEST_METRIC),
        outcomes=figures(_OUTCOME),
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # anyone may edit a tag


def fetch_bundle(client: Any, name: str, version: str, folder: str) -> Path:
    """Download the bundle of a version into `folder`; its place.

    Raises
    ------
    RegistryError
        If the version is none of ours.
    """
    run_id = client.get_model_version(name, version).run_id
    if not run_id or BUNDLE not in {item.path for item in client.list_artifacts(run_id)}:
        raise RegistryError(
            f"{name} version {version} has no bundle: fastci-ml did not train it", hint="fastci-ml models"
        )
    return Path(client.download_artifacts(run_id, BUNDLE, folder))


def log_outcome(client: Any, outcome: OutcomeRecord) -> None:
    """Log one outcome below the training run of its version, and refresh the version's totals.

    Raises
    ------
    RegistryError
        If the version is not registered.
    """
    version = _version_of(client, outcome)
    experiment = client.get_run(version.run_id).info.experiment_id
    run = _outcome_run(client, experiment, outcome, version)
    # A run that is not finished is what a crash left; logging its metrics again changes nothing.
    if run.info.status != "FINISHED":
        _log_outcome_metrics(client, run.info.run_id, version.model_id, outcome)
        client.set_terminated(run.info.run_id)
    # Recomputed rather than added to, so that they are right after a crash between two steps as well.
    totals = total_outcomes(_outcomes_of(client, experiment, version.name, version.version))
    for key, value in totals.items():
        client.set_model_version_tag(version.name, version.version, f"{_OUTCOME}{key}", repr(value))


def _version_of(client: Any, outcome: OutcomeRecord) -> RegisteredVersion:
    if outcome.version is not None:
        check_name(outcome.model_name)
        return read_version(client.get_model_version(outcome.model_name, outcome.version), {})
    # The digest is what the bundle is; its plan may call it otherwise than the registry does now.
    query = f"tags.`{BUNDLE_DIGEST}` = '{outcome.digest}'"
    found = list(find_versions(client, query)) if _DIGEST.fullmatch(outcome.digest) else []
    if not found:
        raise RegistryError(
            f"outcome {outcome.outcome_id}: the model that ranked it is not registered "
            f"(bundle {outcome.digest[:12] or 'unknown'})",
            hint="fastci-ml models register",
        )
    return read_version(
        max(found, key=lambda version: (version.name == outcome.model_name, int(version.version))), {}
    )


def _pages(search: Callable[[str | None], Any]) -> Iterator[Any]:
    token = None
    while True:
        page = search(token)
        yield from page
        token = page.token
        if not token:
            return


def _outcome_filter(**tags: str) -> str:
    return " and ".join(f"tags.`fastci.{key}` = '{value}'" for key, value in tags.items())


def _outcome_run(client: Any, experiment: str, outcome: OutcomeRecord, version: RegisteredVersion) -> Any:
    found = client.search_runs(
        [experiment],
        _outcome_filter(kind="outcome", outcome_id=_tag_value(outcome.outcome_id)),
        max_results=1,
    )
    if found:
        return found[0]
    return client.create_run(
        experiment,
        start_time=int(outcome.at.timestamp() * 1000),
        run_name=f"outcome {outcome.outcome_id}",
        tags={
            **outcome.tags,
            KIND: "outcome",
            _OUTCOME_ID: _tag_value(outcome.outcome_id),
            "fastci.model_name": version.name,
            _VERSION: version.version,
            "mlflow.parentRunId": version.run_id,
        },
    )


def _tag_value(text: str) -> str:
    # MLflow's search language has no escape for a quote; the digest keeps two ids apart that differ in one.
    plain = text.replace("'", "_").replace('"', "_")
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _log_outcome_metrics(client: Any, run_id: str, model_id: str, outcome: OutcomeRecord) -> None:
    at_ms = int(outcome.at.timestamp() * 1000)
    for key, value in outcome.metrics.items():
        client.log_metric(run_id, key, value, timestamp=at_ms, step=0, model_id=model_id or None)


def _outcomes_of(
    client: Any, experiment: str, model_name: str, version: str
) -> Iterator[Mapping[str, float]]:
    query = _outcome_filter(kind="outcome", model_name=model_name, model_version=version)
    for run in _pages(
        lambda token: client.search_runs([experiment], query, max_results=_PAGE, page_token=token)
    ):
        if run.info.status == "FINISHED":
            yield run.data.metrics

"""The registry: tracks trainings, registers versions, takes CI outcomes.

Each training is a run with its model bundle, plots and a logged LightGBM model, from which a version is
registered. Alias ``challenger`` names the newest version, ``champion`` the one that `promote` chose (the
first one until then). Each CI outcome is a run below the training run; its metrics are logged against the
model that ranked it, and running totals stand as tags on the version.

`rank` never comes here: a registry that is away costs the figures some time, not the CI.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastci_ml.errors import RegistryError
from fastci_ml.learn.bundle import ModelBundle, Registration, replace_bundle, write_registration
from fastci_ml.learn.registry.layout import (
    BUNDLE_DIGEST,
    KIND,
    MODEL_ID,
    TEST_METRIC,
    check_database,
    find_versions,
    log_outcome,
    probe,
    read_version,
    registry_error,
)
from fastci_ml.learn.registry.model import log_card, log_model
from fastci_ml.learn.registry.versions import (
    CHALLENGER,
    CHAMPION,
    KEY_FIGURES,
    OutcomeRecord,
    RegisteredVersion,
    card_metrics,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from fastci_ml.settings import Settings

# MLflow's own defaults wait for minutes: seven tries of two minutes. What a user sets wins.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # stdout is the answer of our commands.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_BUNDLE, _PLOTS, _MODEL = "bundle", "plots", "lightgbm"
_PROMOTIONS = "fastci.promotions"


class Registry:
    """One MLflow store or server, as the settings name it.

    Parameters
    ----------
    settings : Settings
        `tracking_uri`, or the local store under `state_dir` (SQLite, and artifacts beside it); `model_name`.

    Raises
    ------
    RegistryError
        From every method: MLflow is not installed, the server does not answer within a few seconds, or the
        store refuses.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.model_name = settings.model_name
        self.uri = settings.tracking_uri or f"sqlite:///{settings.state_dir / 'mlflow.db'}"

    def check(self) -> None:
        """Fail at once where no server listens: importing MLflow alone takes seconds.

        A local store is there whenever it is asked.
        """
        probe(self.uri)

    def log_training(self, bundle_dir: Path, bundle: ModelBundle, figures: Sequence[Path]) -> str:
        """Track a training and register its model.

        Parameters
        ----------
        bundle_dir : Path
            The saved bundle; the registration is noted in it.
        bundle : ModelBundle
            The same, loaded.
        figures : sequence of Path
            Plots to keep with it.

        Returns
        -------
        str
            The new version.
        """
        with self._client() as client:
            run_id = client.create_run(
                self._experiment(client),
                run_name=f"train {bundle.card.get('created_at', '')}",
                tags={KIND: "training", BUNDLE_DIGEST: bundle.digest},
            ).info.run_id
            status = "FAILED"
            try:
                log_card(client, run_id, bundle.card)
                client.log_artifacts(run_id, str(bundle_dir), _BUNDLE)
                for figure in figures:
                    client.log_artifact(run_id, str(figure), _PLOTS)
                model_id = log_model(client, run_id, bundle)
                version = self._register(client, run_id, model_id, bundle)
                status = "FINISHED"
            finally:
                client.set_terminated(run_id, status)
        write_registration(bundle_dir, Registration(name=self.model_name, version=version))
        return version

    def versions(self) -> list[RegisteredVersion]:
        """List every version, newest first; empty where the model is not registered."""
        with self._client() as client:
            aliases = self._aliases(client)
            found = find_versions(client, f"name = '{self.model_name}'")
            versions = [read_version(version, aliases) for version in found]
        return sorted(versions, key=lambda version: int(version.version), reverse=True)

    def promote(self, version: str) -> str | None:
        """Make a version the champion.

        Parameters
        ----------
        version : str
            A registered version.

        Returns
        -------
        str or None
            The champion before; it also stands in the model's tag ``fastci.promotions``, so that one can go
            back. None if there was none.
        """
        with self._client() as client:
            before = self._aliases(client).get(CHAMPION)
            client.get_model_version(self.model_name, version)
            client.set_registered_model_alias(self.model_name, CHAMPION, version)
            tags = client.get_registered_model(self.model_name).tags
            promotions = [*json.loads(tags.get(_PROMOTIONS, "[]")), {"from": before, "to": version}]
            # A tag holds 5,000 characters; the oldest promotions go first.
            client.set_registered_model_tag(self.model_name, _PROMOTIONS, json.dumps(promotions[-50:]))
            client.set_model_version_tag(self.model_name, version, "fastci.champion_before", before or "none")
        return before

    def log_outcome(self, record: Mapping[str, Any]) -> None:
        """Log a CI outcome against the version that ranked it; the same ``outcome_id`` counts once.

        Parameters
        ----------
        record : mapping
            As `OutcomeRecord.from_json` reads it.

        Raises
        ------
        DataError
            If it is no such record.
        RegistryError
            If the version is not registered, or as for the class.
        """
        outcome = OutcomeRecord.from_json(record)
        with self._client() as client:
            log_outcome(client, outcome)

    def pull(self, version: str, out: Path) -> ModelBundle:
        """Fetch the bundle of a version, check it, and put it in place in one step.

        Parameters
        ----------
        version : str
            A version or an alias.
        out : Path
            Folder of the bundle.

        Raises
        ------
        ModelError
            If what the registry holds is damaged, or `out` holds something else than a bundle.
        """
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
            with self._client() as client:
                aliases = self._aliases(client)
                number = aliases.get(version, version)
                if not number.isdecimal():
                    known = ", ".join(sorted(aliases)) or "none"
                    raise RegistryError(
                        f"{self.model_name} has no alias {version!r}, known: {known}", hint="fastci-ml models"
                    )
                run_id = client.get_model_version(self.model_name, number).run_id
                fetched = Path(client.download_artifacts(run_id, _BUNDLE, folder))
            write_registration(fetched, Registration(name=self.model_name, version=number))
            bundle = ModelBundle.load(fetched)
            replace_bundle(fetched, out)
        return bundle

    @contextlib.contextmanager
    def _client(self) -> Iterator[MlflowClient]:
        """Client of the store; every failure of it becomes a RegistryError."""
        self.check()
        # MLflow reads these at each request, so they are set for as long as we talk to it.
        added = {key: value for key, value in _ENVIRONMENT.items() if key not in os.environ}
        os.environ.update(added)
        try:
            client, failures = self._open()
            try:
                yield client
            except failures as error:
                raise registry_error(self.uri, error) from error
        finally:
            for key in added:
                os.environ.pop(key, None)

    def _open(self) -> tuple[MlflowClient, tuple[type[Exception], ...]]:
        try:
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException
        except ImportError as error:
            raise RegistryError("MLflow is not installed", hint="pip install mlflow") from error
        # Errors of requests are OSErrors.
        failures: tuple[type[Exception], ...] = (MlflowException, OSError)
        if self.uri.startswith("sqlite:"):
            from alembic.util import CommandError
            from sqlalchemy.exc import SQLAlchemyError

            failures = (*failures, CommandError, SQLAlchemyError)
        try:
            if self.uri.startswith("sqlite:"):
                self._prepare_local_store()
            return MlflowClient(tracking_uri=self.uri, registry_uri=self.uri), failures
        except failures as error:
            raise registry_error(self.uri, error) from error

    def _prepare_local_store(self) -> None:
        """Make sure that the database can be opened: MLflow would try for minutes."""
        from sqlalchemy import make_url

        database = make_url(self.uri).database or ""
        if self._settings.tracking_uri is None:
            path = self._settings.state_dir / "mlflow.db"
            if database != str(
                path
            ):  # SQLAlchemy unquotes a %20 and cuts at a ?; MLflow takes them literally
                raise RegistryError(
                    f"{path}: MLflow cannot keep a database below a folder with % or ? in its name",
                    hint="set tracking_uri, or another state_dir, in [tool.fastci]",
                )
            path.parent.mkdir(parents=True, exist_ok=True)
        check_database(self.uri, database)

    def _experiment(self, client: MlflowClient) -> str:
        experiment = client.get_experiment_by_name(self.model_name)
        if experiment is not None:
            return str(experiment.experiment_id)
        # A server knows where its artifacts go; the local store keeps them beside its database.
        location = None
        if self._settings.tracking_uri is None:
            location = (self._settings.state_dir / "mlartifacts").as_uri()
        return str(client.create_experiment(self.model_name, artifact_location=location))

    def _register(self, client: MlflowClient, run_id: str, model_id: str, bundle: ModelBundle) -> str:
        if not client.search_registered_models(f"name = '{self.model_name}'"):
            client.create_registered_model(self.model_name, description="Risk of a test to fail (fastci-ml).")
        figures = card_metrics(bundle.card)
        tags = {BUNDLE_DIGEST: bundle.digest, MODEL_ID: model_id} | {
            f"{TEST_METRIC}{key}": repr(figures[f"test.{key}"])
            for key in KEY_FIGURES
            if f"test.{key}" in figures
        }
        # The place instead of models:/<id>, which MLflow would look up under the process-wide tracking URI.
        source = client.get_logged_model(model_id).artifact_location
        registered = client.create_model_version(
            self.model_name, source=source, run_id=run_id, model_id=model_id, tags=tags
        )
        version = str(registered.version)
        client.set_registered_model_alias(self.model_name, CHALLENGER, version)
        if CHAMPION not in self._aliases(client):
            client.set_registered_model_alias(self.model_name, CHAMPION, version)
        return version

    def _aliases(self, client: MlflowClient) -> dict[str, str]:
        models = client.search_registered_models(f"name = '{self.model_name}'")
        return {alias: str(version) for alias, version in models[0].aliases.items()} if models else {}

"""The registry: tracks trainings, registers versions, takes CI outcomes.

Each training is a run with its model bundle, plots and a logged LightGBM model, from which a version is
registered. Alias ``challenger`` names the newest version, ``champion`` the one that `promote` chose (the
first one until then). Each CI outcome is a run below the training run; its metrics are logged against the
model that ranked it, and running totals stand as tags on the version.

`rank` never comes here: a registry that is away costs the figures some time, not the CI.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastci_ml.errors import UsageError
from fastci_ml.learn.bundle import ModelBundle, Registration, replace_bundle, write_registration
from fastci_ml.learn.registry.aliases import (
    CHAMPION,
    PROMOTIONS,
    find_number,
    name_newest,
    promote,
    read_aliases,
)
from fastci_ml.learn.registry.database import read_revision
from fastci_ml.learn.registry.layout import (
    BUNDLE,
    BUNDLE_DIGEST,
    KIND,
    MODEL_ID,
    TEST_METRIC,
    fetch_bundle,
    find_versions,
    log_outcome,
    read_version,
)
from fastci_ml.learn.registry.model import log_card, log_model
from fastci_ml.learn.registry.reach import check_name, check_uri, is_sqlite, probe, shown, sqlite_path
from fastci_ml.learn.registry.session import import_mlflow, open_client, quiet_mlflow
from fastci_ml.learn.registry.upgrade import Upgrade, upgrade_database
from fastci_ml.learn.registry.versions import (
    KEY_FIGURES,
    OutcomeRecord,
    RegisteredVersion,
    card_metrics,
)
from fastci_ml.records.progress import ProgressHook, silent

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from fastci_ml.settings import Settings

_PLOTS = "plots"


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

    @property
    def shown_uri(self) -> str:
        """Where it is, without a password."""
        return shown(self.uri)

    def check(self) -> None:
        """Fail at once where no server listens or no database lies: importing MLflow alone takes seconds."""
        check_name(self.model_name)
        check_uri(self.uri)
        probe(self.uri)
        if is_sqlite(self.uri):
            read_revision(sqlite_path(self.uri))

    def upgrade(self, *, now: datetime, progress: ProgressHook = silent) -> Upgrade:
        """Bring the local database of an earlier MLflow to the installed one; the only method that does.

        Parameters
        ----------
        now : datetime
            Stands in the name of the backup.
        progress : ProgressHook
            Called before each step.

        Raises
        ------
        UsageError
            If the store is no SQLite file: we could not make a backup of it.
        """
        if not is_sqlite(self.uri):
            check_uri(self.uri)
            raise UsageError(
                f"{self.shown_uri}: only a local SQLite database is upgraded from here",
                hint="where it lies, after a backup: mlflow db upgrade DATABASE_URI",
            )
        with quiet_mlflow():
            import_mlflow(self.uri)
            return upgrade_database(sqlite_path(self.uri), now=now, progress=progress)

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
                client.log_artifacts(run_id, str(bundle_dir), BUNDLE)
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
            aliases = read_aliases(client, self.model_name)
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
            return promote(client, self.model_name, version)

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
                number = find_number(client, self.model_name, version)
                fetched = fetch_bundle(client, self.model_name, number, folder)
            write_registration(fetched, Registration(name=self.model_name, version=number))
            bundle = ModelBundle.load(fetched)
            replace_bundle(fetched, out)
        return bundle

    def _client(self) -> AbstractContextManager[MlflowClient]:
        self.check()
        own = "" if self._settings.tracking_uri is None else f" --tracking-uri {self.uri}"
        return open_client(self.uri, upgrade=f"fastci-ml models upgrade{own}")

    def _experiment(self, client: MlflowClient) -> str:
        experiment = client.get_experiment_by_name(self.model_name)
        if experiment is not None:
            return str(experiment.experiment_id)
        # A server knows where its artifacts go; the local store keeps them beside its database.
        location = None
        if self._settings.tracking_uri is None:
            location = (self._settings.state_dir / "mlartifacts").as_uri()
        with _unless_quicker(lambda: client.get_experiment_by_name(self.model_name)):
            client.create_experiment(self.model_name, artifact_location=location)
        return str(client.get_experiment_by_name(self.model_name).experiment_id)

    def _register(self, client: MlflowClient, run_id: str, model_id: str, bundle: ModelBundle) -> str:
        if not client.search_registered_models(f"name = '{self.model_name}'"):
            with _unless_quicker(lambda: client.get_registered_model(self.model_name)):
                client.create_registered_model(
                    self.model_name, description="Risk of a test to fail (fastci-ml)."
                )
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
        name_newest(client, self.model_name)
        # Where someone has promoted before, a champion that is gone was taken away on purpose.
        model = client.get_registered_model(self.model_name)
        if CHAMPION not in read_aliases(client, self.model_name) and PROMOTIONS not in model.tags:
            client.set_registered_model_alias(self.model_name, CHAMPION, version)
        return version


@contextmanager
def _unless_quicker(find: Callable[[], object]) -> Iterator[None]:
    """Let pass that something cannot be made where another process has made it meanwhile."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException:
        if find() is None:
            raise

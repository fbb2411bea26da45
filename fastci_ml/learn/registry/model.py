"""What a training leaves in MLflow: the figures of its card, and the model with its signature."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastci_ml.learn.registry.layout import BUNDLE_DIGEST
from fastci_ml.learn.registry.versions import card_metrics, card_params

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

    from fastci_ml.learn.bundle import ModelBundle

_MODEL = "lightgbm"


def log_card(client: MlflowClient, run_id: str, card: Mapping[str, Any]) -> None:
    """Log the figures of a card as metrics, what was chosen as parameters, its warnings as tags."""
    from mlflow.entities import Metric, Param

    created_ms = int(datetime.fromisoformat(card["created_at"]).timestamp() * 1000)
    client.log_batch(
        run_id,
        metrics=[Metric(key, value, created_ms, 0) for key, value in card_metrics(card).items()],
        params=[Param(key, str(value)) for key, value in card_params(card).items()],
    )
    for i, warning in enumerate(card["warnings"]):
        client.set_tag(run_id, f"fastci.warning.{i}", warning)


def log_model(client: MlflowClient, run_id: str, bundle: ModelBundle) -> str:
    """Log the LightGBM model with its signature; its id.

    Through the client instead of `mlflow.lightgbm.log_model`, which works on the process-wide tracking URI
    and active run: those belong to whoever calls us from a notebook.
    """
    import mlflow

    with warnings.catch_warnings():
        # MLflow warns about type hints of its own when this is first imported.
        warnings.filterwarnings("ignore", message=".*Any type hint is inferred as AnyType")
        import mlflow.pyfunc
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    from fastci_ml.learn.ranker import booster_from_text

    run: Run = client.get_run(run_id)
    booster = booster_from_text(bundle.model_text)
    columns = [ColSpec(DataType.float, name) for name in booster.feature_name()]
    signature = ModelSignature(inputs=Schema(columns), outputs=Schema([ColSpec(DataType.double)]))
    logged = client.create_logged_model(
        run.info.experiment_id, name=_MODEL, source_run_id=run_id, tags={BUNDLE_DIGEST: bundle.digest}
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        mlflow.lightgbm.save_model(
            booster,
            str(path),
            mlflow_model=Model(
                run_id=run_id, model_id=logged.model_id, artifact_path=logged.artifact_location
            ),
            signature=signature,
            # Given, so that MLflow does not load the model to infer them, nor ask an index.
            pip_requirements=[f"lightgbm=={version('lightgbm')}"],
        )
        client.log_model_artifacts(logged.model_id, str(path))
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    return str(logged.model_id)

"""A small history with failures that can be learned, a model trained on it, and an MLflow store to copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fastci_ml.features.log import RunLog, build_log
from fastci_ml.features.matrix import build_matrix
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.registry import Registry
from fastci_ml.learn.training import train
from fastci_ml.records.frames import CHANGES, EXECUTIONS, RUNS, Frame
from fastci_ml.settings import Settings
from fastci_ml.sources.history import HistoryStore

CREATED_AT = datetime(2026, 11, 30, tzinfo=UTC)


def frame_of(frame: Frame, columns: dict[str, object], n_rows: int) -> pd.DataFrame:
    """Frame with these columns and an empty, unknown or zero value in the others."""
    defaults = {"str": "", "float64": np.nan, "int64": 0, "bool": True, "datetime64[us, UTC]": None}
    return pd.DataFrame(
        {
            name: pd.Series(
                columns.get(name, defaults[column.dtype]), dtype=column.dtype, index=range(n_rows)
            )
            for name, column in frame.columns.items()
        }
    )


def write_history(directory: Path, n_runs: int = 60, n_tests: int = 40, *, seed: int = 0) -> Path:
    """Runs ten minutes apart. A tenth of the tests break now and then, and stay broken for a few runs."""
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2026-01-01", tz="UTC")
    started = [start + pd.Timedelta(minutes=10 * i) for i in range(n_runs)]
    finished = [moment + pd.Timedelta(minutes=5) for moment in started]
    broken = np.zeros(n_tests, dtype=bool)
    weak = np.arange(n_tests) < n_tests // 4
    rows = []
    for run in range(n_runs):
        broken = np.where(broken, rng.random(n_tests) < 0.7, rng.random(n_tests) < np.where(weak, 0.2, 0.005))
        rows += [
            (f"r{run:04}", f"tests/test_{t % 5}.py::test_{t:03}", bool(broken[t])) for t in range(n_tests)
        ]
    run_ids, node_ids, failed = zip(*rows, strict=True)
    has_failed = np.array(failed)
    executions = frame_of(
        EXECUTIONS,
        {
            "run_id": run_ids,
            "lane": "x",
            "node_id": node_ids,
            "outcome": np.where(has_failed, "failed", "passed"),
            "failure_class": np.where(has_failed, "test", ""),
            "duration_s": rng.uniform(0.1, 3.0, len(rows)).round(3),
        },
        len(rows),
    )
    runs = frame_of(
        RUNS,
        {
            "run_id": [f"r{run:04}" for run in range(n_runs)],
            "started_at": started,
            "finished_at": finished,
            "source": "made",
        },
        n_runs,
    )
    HistoryStore(directory).append(
        executions=executions, runs=runs, changes=frame_of(CHANGES, {}, 0), digest=f"{seed:064x}"
    )
    return directory


@pytest.fixture(scope="session")
def history_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_history(tmp_path_factory.mktemp("history") / "history")


@pytest.fixture(scope="session")
def log(history_dir: Path) -> RunLog:
    return build_log(HistoryStore(history_dir))


@pytest.fixture(scope="session")
def X(log: RunLog) -> np.ndarray:
    return build_matrix(log)


@pytest.fixture(scope="session")
def trained(log: RunLog, X: np.ndarray) -> ModelBundle:
    return train(log, X, created_at=CREATED_AT, seed=3)


@pytest.fixture
def bundle_dir(trained: ModelBundle, tmp_path: Path) -> Path:
    trained.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(scope="session")
def mlflow_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database: making one takes seconds, copying it none."""
    folder = tmp_path_factory.mktemp("mlflow")
    Registry(Settings(root=folder, state_dir=folder)).versions()
    return folder / "mlflow.db"


@pytest.fixture
def make_settings(mlflow_template: Path, tmp_path: Path) -> Callable[..., Settings]:
    """Settings of a repository whose local MLflow store is there and empty."""

    def make(tracking_uri: str | None = None) -> Settings:
        state_dir = tmp_path / ".fastci"
        state_dir.mkdir(exist_ok=True)
        if tracking_uri is None and not (state_dir / "mlflow.db").exists():
            shutil.copy(mlflow_template, state_dir / "mlflow.db")
        return Settings(root=tmp_path, state_dir=state_dir, tracking_uri=tracking_uri)

    return make

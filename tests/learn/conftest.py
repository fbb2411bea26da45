"""A small history with failures that can be learned, a model trained on it, and an MLflow store to copy."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
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
from fastci_ml.sources.history.store import HistoryStore

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


# Revisions of MLflow 1.4 (its first registry) and 2.3 (its first aliases), and the last one but one.
OLD_REVISIONS = ("2b4d017a5e9b", "3500859a5d39", "last but one")


def make_old_database(path: Path, revision: str) -> Path:
    """A database as that release made it, by the migrations that it ran, with versions in stages."""
    import sqlalchemy
    from alembic import command
    from mlflow.store.tracking.dbmodels.initial_models import Base

    from fastci_ml.learn.registry.revisions import _config, known_revisions

    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    Base.metadata.create_all(engine)
    engine.dispose()
    command.upgrade(_config(path), known_revisions()[-2] if revision == "last but one" else revision)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        _fill(connection)
        connection.commit()
    return path


def _fill(connection: sqlite3.Connection) -> None:
    def insert(table: str, **values: object) -> None:
        known = {row[1] for row in connection.execute(f"pragma table_info({table})")}
        kept = {key: value for key, value in values.items() if key in known}
        marks = ", ".join("?" * len(kept))
        connection.execute(f"insert into {table} ({', '.join(kept)}) values ({marks})", tuple(kept.values()))

    for i in (0, 1):
        name = "Default" if i == 0 else "old"
        insert("experiments", experiment_id=i, name=name, artifact_location="a", lifecycle_stage="active")
    model = {"name": "fastci-risk", "creation_time": 1, "last_updated_time": 1}
    insert("registered_models", **model)
    for i in range(3):
        run = f"{i:032x}"
        times = {"start_time": 1, "end_time": 2, "lifecycle_stage": "active", "artifact_uri": "a"}
        names = {"name": "old", "source_type": "LOCAL", "status": "FINISHED", "user_id": "me"}
        insert("runs", run_uuid=run, experiment_id=1, **times, **names)
        for key in ("apfd", "apfdc"):
            metric = {"key": key, "value": 0.5 + i, "run_uuid": run, "timestamp": 1, "step": 0, "is_nan": 0}
            insert("metrics", **metric)
            insert("latest_metrics", **metric)
        insert("params", key="n_trees", value="150", run_uuid=run)
        insert("tags", key="fastci.kind", value="training", run_uuid=run)
        stage = ("Archived", "Production", "None")[i]
        version = {**model, "version": i + 1, "current_stage": stage, "source": "a", "run_id": run}
        insert("model_versions", **version, status="READY", user_id="me", description="")


@pytest.fixture(scope="session")
def old_databases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Databases of earlier releases, by revision."""
    folder = tmp_path_factory.mktemp("old")
    return {name: make_old_database(folder / f"{name}.db", name) for name in OLD_REVISIONS}


class Processes:
    """Real processes that have MLflow imported already, which takes seconds each time.

    They are forked from one that never opens a store itself.
    """

    _CODE = """
import json, os, sys, traceback
from fastci_ml.learn.registry import Registry
from fastci_ml.learn.registry.revisions import known_revisions
from fastci_ml.learn.registry.session import quiet_mlflow
with quiet_mlflow():
    import mlflow.lightgbm, sqlalchemy
    from mlflow.store.tracking.dbmodels import initial_models
    known_revisions()

def fork(code, arguments):
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    status = 1
    try:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        sys.argv = ["-c", *arguments]
        exec(compile(code, "child", "exec"), {"__name__": "__main__"})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)

for line in sys.stdin:
    job = json.loads(line)
    children = [fork(job["code"], arguments) for arguments in job["arguments"]]
    done = []
    for child, reader in children:
        with os.fdopen(reader) as file:
            text = file.read()
        done.append([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text])
    print(json.dumps(done), flush=True)
"""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # MLflow's, while it is imported; children have their own
            text=True,
        )

    def run(self, code: str, *arguments: list[str]) -> list[tuple[int, str]]:
        """Run the code once for each list of arguments, all at once; exit codes and what they printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": code, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        return [(code, text) for code, text in json.loads(self._process.stdout.readline())]

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.close()

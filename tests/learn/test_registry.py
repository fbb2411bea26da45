from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastci_ml.errors import DataError, ModelError, RegistryError
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.plots import draw_plots
from fastci_ml.learn.registry import Registry
from fastci_ml.settings import Settings

MakeSettings = Callable[..., Settings]


def outcome(
    outcome_id: str, version: str | None, *, digest: str = "", **metrics: float | None
) -> dict[str, Any]:
    return {
        "outcome_id": outcome_id,
        "model": {"kind": "model", "name": "fastci-risk", "version": version, "digest": digest},
        "at": "2026-11-30T12:00:00+00:00",
        "metrics": metrics,
        "tags": {"run_id": f"run of {outcome_id}"},
    }


def walk_through(registry: Registry, bundle_dir: Path, tmp_path: Path, X: np.ndarray) -> None:
    """A training, a second one, a promotion, a rollback, outcomes and a pull: the life of a model."""
    from mlflow import MlflowClient

    bundle = ModelBundle.load(bundle_dir)
    plots = draw_plots(bundle.card, tmp_path / "plots")
    assert registry.versions() == []
    assert registry.log_training(bundle_dir, bundle, plots) == "1"
    assert ModelBundle.load(bundle_dir).version == "1"
    assert registry.versions()[0].aliases == ("challenger", "champion")
    assert registry.log_training(bundle_dir, bundle, []) == "2"
    assert [(v.version, v.aliases) for v in registry.versions()] == [
        ("2", ("challenger",)),
        ("1", ("champion",)),
    ]

    assert registry.promote("2") == "1"
    assert registry.promote("1") == "2"
    assert registry.promote("2") == "1"
    registry.log_outcome(outcome("a", "2", apfd=0.75, n_failures=2, expected_failures=1.5, first=None))
    registry.log_outcome(outcome("b", "2", apfd=0.25, n_failures=1))
    registry.log_outcome(outcome("a", "2", apfd=0.75, n_failures=2, expected_failures=1.5))
    newest, oldest = registry.versions()
    assert newest.aliases == ("challenger", "champion")
    assert newest.outcomes == {"n_outcomes": 2, "apfd": 0.5, "n_failures": 3, "expected_failures": 1.5}
    assert oldest.outcomes == {}
    test = bundle.card["metrics"]["test"]
    assert newest.metrics["apfd"] == test["apfd"]

    client = MlflowClient(tracking_uri=registry.uri, registry_uri=registry.uri)
    run = client.get_run(newest.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["n_leaves"] == "15"
    assert run.data.metrics["test.apfdc"] == test["apfdc"]
    first_run = client.get_run(oldest.run_id)
    names = {item.path for item in client.list_artifacts(first_run.info.run_id, "plots")}
    assert names == {f"plots/{path.name}" for path in plots}
    logged = client.get_logged_model(newest.model_id)
    assert sorted((m.key, m.value) for m in logged.metrics) == [
        ("apfd", 0.25),
        ("apfd", 0.75),
        ("expected_failures", 1.5),
        ("n_failures", 1.0),
        ("n_failures", 2.0),
    ]
    promotions = client.get_registered_model("fastci-risk").tags["fastci.promotions"]
    assert promotions.count('"from"') == 3

    pulled = registry.pull("champion", tmp_path / "pulled")
    assert (pulled.version, pulled.digest) == ("2", bundle.digest)
    np.testing.assert_array_equal(ModelBundle.load(tmp_path / "pulled").raw_scores(X), bundle.raw_scores(X))
    assert registry.pull("1", tmp_path / "pulled").version == "1"


@pytest.mark.timeout(300)
def test_the_local_store_takes_the_life_of_a_model(
    make_settings: MakeSettings, bundle_dir: Path, tmp_path: Path, X: np.ndarray
) -> None:
    settings = make_settings()
    walk_through(Registry(settings), bundle_dir, tmp_path, X)
    assert (settings.state_dir / "mlartifacts").is_dir()


@pytest.fixture
def server(mlflow_template: Path, tmp_path: Path) -> Iterator[str]:
    """A real `mlflow server` on a free loopback port, ended with all its children."""
    database = tmp_path / "server.db"
    database.write_bytes(mlflow_template.read_bytes())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{database}"]
    command += ["--artifacts-destination", str(tmp_path / "served")]
    # Without the process that runs jobs, which no part of tracking needs, it starts in half the time.
    env = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
    uri = f"http://127.0.0.1:{port}"
    try:
        _wait(
            Registry(Settings(root=tmp_path, state_dir=tmp_path, tracking_uri=uri)), tmp_path / "server.log"
        )
        yield uri
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def _wait(registry: Registry, log: Path) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            registry.check()
        except RegistryError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        else:
            return


@pytest.mark.timeout(300)
def test_a_real_server_takes_the_life_of_a_model(
    server: str, make_settings: MakeSettings, bundle_dir: Path, tmp_path: Path, X: np.ndarray
) -> None:
    walk_through(Registry(make_settings(server)), bundle_dir, tmp_path, X)


def test_a_server_that_is_away_is_told_within_seconds(tmp_path: Path, bundle_dir: Path) -> None:
    with socket.socket() as silent:  # accepts, and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        registry = Registry(Settings(root=tmp_path, state_dir=tmp_path, tracking_uri=uri))
        start = time.monotonic()
        with pytest.raises(RegistryError, match="timed out") as raised:
            registry.log_training(bundle_dir, ModelBundle.load(bundle_dir), [])
        assert time.monotonic() - start < 8
        assert "/health" in str(raised.value.hint)
    with pytest.raises(RegistryError, match="refused"):
        registry.versions()


def test_what_is_not_registered_is_told(make_settings: MakeSettings, tmp_path: Path) -> None:
    registry = Registry(make_settings())
    with pytest.raises(RegistryError, match="not found"):
        registry.promote("3")
    with pytest.raises(RegistryError, match="not found"):
        registry.log_outcome(outcome("a", "3"))
    with pytest.raises(RegistryError, match="not registered"):
        registry.log_outcome(outcome("a", None, digest="0" * 64))
    with pytest.raises(RegistryError, match="no alias 'champion', known: none"):
        registry.pull("champion", tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()
    with pytest.raises(DataError, match="outcome_id"):
        registry.log_outcome(outcome("", "1"))


def test_an_outcome_finds_its_version_by_the_digest_of_the_bundle(
    make_settings: MakeSettings, bundle_dir: Path
) -> None:
    registry = Registry(make_settings())
    bundle = ModelBundle.load(bundle_dir)
    registry.log_training(bundle_dir, bundle, [])
    registry.log_outcome(outcome("it's", None, digest=bundle.digest, apfd=0.5))
    assert registry.versions()[0].outcomes["n_outcomes"] == 1


def test_a_pull_never_replaces_what_is_no_bundle(make_settings: MakeSettings, bundle_dir: Path) -> None:
    registry = Registry(make_settings())
    registry.log_training(bundle_dir, ModelBundle.load(bundle_dir), [])
    other = bundle_dir.parent / "other"
    other.mkdir()
    (other / "precious.txt").write_text("keep")
    with pytest.raises(ModelError, match="something else"):
        registry.pull("1", other)
    assert (other / "precious.txt").read_text() == "keep"


@pytest.mark.parametrize("name", ["a b", "a#b", "é"])
def test_the_local_store_lies_under_the_state_folder_whatever_its_name(
    mlflow_template: Path, tmp_path: Path, bundle_dir: Path, name: str
) -> None:
    state_dir = tmp_path / name
    state_dir.mkdir()
    (state_dir / "mlflow.db").write_bytes(mlflow_template.read_bytes())
    registry = Registry(Settings(root=tmp_path, state_dir=state_dir))
    bundle = ModelBundle.load(bundle_dir)
    registry.log_training(bundle_dir, bundle, [])
    assert registry.pull("champion", tmp_path / "pulled").digest == bundle.digest
    assert (state_dir / "mlartifacts").is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "model", "pulled"])


@pytest.mark.parametrize("name", ["a%20b", "a?b"])
def test_a_folder_that_mlflow_cannot_name_is_refused(tmp_path: Path, name: str) -> None:
    registry = Registry(Settings(root=tmp_path, state_dir=tmp_path / name))
    with pytest.raises(RegistryError, match=r"% or \?") as raised:
        registry.versions()
    assert "tracking_uri" in str(raised.value.hint)
    assert list(tmp_path.iterdir()) == []


def test_without_mlflow_the_hint_says_what_to_install(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["mlflow"] = None
from pathlib import Path
from fastci_ml.errors import RegistryError
from fastci_ml.learn.registry import Registry
from fastci_ml.settings import Settings
try:
    Registry(Settings(root=Path("."), state_dir=Path("."))).versions()
except RegistryError as error:
    print(error, "|", error.hint)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout == "MLflow is not installed | pip install mlflow\n"

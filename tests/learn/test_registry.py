from __future__ import annotations

import contextlib
import dataclasses
import http.server
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fastci_ml.errors import DataError, ModelError, RegistryError
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.plots import draw_plots
from fastci_ml.learn.registry import Registry
from fastci_ml.learn.registry.aliases import name_newest
from fastci_ml.settings import Settings

if TYPE_CHECKING:
    from conftest import Processes

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
from fastci_ml.learn.registry.aliases import name_newest
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


@pytest.mark.parametrize(
    ("uri", "match", "hint"),
    [
        ("file:///ci/mlruns", "file store", "mlflow migrate-filestore --source /ci/mlruns"),
        ("file:./mlruns", "file store", "--source ./mlruns"),
        ("./mlruns", "file store", "sqlite:///mlflow.db"),
        ("/ci/mlruns", "file store", "--source /ci/mlruns"),
        ("mlflow.db", "a file without what it is", 'tracking_uri = "sqlite:///mlflow.db"'),
        ("postgresql://ci@127.0.0.1:9/mlflow", "psycopg", "pip install psycopg"),
        ("sqlite://", "in memory", "sqlite:////absolute"),
        ("sqlite:///:memory:", "in memory", "sqlite:////absolute"),
        ("sqlite:////tmp/a%20b.db", r"% or \?", "tracking_uri"),
        ("sqlite+pysqlite:////tmp/a.db?mode=ro", r"% or \?", "tracking_uri"),
        ("http://127.0.0.1:99999", "99999", "curl"),
        ("nosuch://host/x", "nosuch", None),
    ],
)
def test_a_store_that_can_keep_no_registry_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, match: str, hint: str | None
) -> None:
    # case 50: MLflow's file store, and others of its kind; nothing is made anywhere.
    monkeypatch.chdir(tmp_path)
    registry = Registry(Settings(root=tmp_path, state_dir=tmp_path, tracking_uri=uri))
    with pytest.raises(RegistryError, match=match) as raised:
        registry.versions()
    assert hint is None or hint in str(raised.value.hint)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["it's", 'a"b', "a`b", "a/b", "a:b", "a\\b", " a", "a ", "a\nb", "a\0b", "", "a" * 201]
)
def test_a_name_that_mlflow_takes_for_syntax_is_refused_before_anything_is_asked(
    tmp_path: Path, name: str
) -> None:
    registry = Registry(Settings(root=tmp_path, state_dir=tmp_path, model_name=name))
    with pytest.raises(RegistryError, match="model_name"):
        registry.versions()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["日本 😀", "a%b #1", "(x); -- {y}=z", "A" * 200])
def test_a_name_of_odd_characters_is_kept_and_found(
    make_settings: MakeSettings, bundle_dir: Path, tmp_path: Path, name: str
) -> None:
    registry = Registry(dataclasses.replace(make_settings(), model_name=name))
    bundle = ModelBundle.load(bundle_dir)
    registry.log_training(bundle_dir, bundle, [])
    record = outcome("a", "1", apfd=0.5)
    record["model"]["name"] = name
    registry.log_outcome(record)
    [version] = registry.versions()
    assert (version.name, version.aliases, version.outcomes["n_outcomes"]) == (
        name,
        ("challenger", "champion"),
        1,
    )
    assert registry.pull("champion", tmp_path / "pulled").name == name


def test_a_champion_that_is_gone_is_named_and_never_replaced_by_itself(
    make_settings: MakeSettings, bundle_dir: Path, tmp_path: Path
) -> None:
    # case 50: an alias whose version was deleted, by MLflow and behind its back.
    from mlflow import MlflowClient

    settings = make_settings()
    registry, bundle = Registry(settings), ModelBundle.load(bundle_dir)
    for _ in range(3):
        registry.log_training(bundle_dir, bundle, [])
    assert registry.promote("2") == "1"
    pulled = registry.pull("champion", tmp_path / "pulled")
    client = MlflowClient(tracking_uri=registry.uri, registry_uri=registry.uri)
    client.delete_model_version("fastci-risk", "2")
    with pytest.raises(RegistryError, match="no alias 'champion', known: challenger"):
        registry.pull("champion", tmp_path / "pulled")
    registry.log_training(bundle_dir, bundle, [])
    assert [(v.version, v.aliases) for v in registry.versions()] == [
        ("4", ("challenger",)),
        ("3", ()),
        ("1", ()),
    ]
    with contextlib.closing(sqlite3.connect(settings.state_dir / "mlflow.db")) as connection:
        connection.execute(
            "insert into registered_model_aliases (name, alias, version, workspace) "
            "select name, 'champion', 2, workspace from registered_models"
        )
        connection.commit()
    with pytest.raises(RegistryError, match="alias 'champion' names version 2, which is gone") as raised:
        registry.pull("champion", tmp_path / "pulled")
    assert str(raised.value.hint).startswith("fastci-ml models promote 4")
    assert [v.version for v in registry.versions()] == ["4", "3", "1"]
    with pytest.raises(RegistryError, match="version 9 is not found"):
        registry.pull("9", tmp_path / "pulled")
    # What was fetched before is still there: `rank` has it.
    assert ModelBundle.load(tmp_path / "pulled").digest == pulled.digest


def test_tags_that_somebody_edited_stop_nothing(make_settings: MakeSettings, bundle_dir: Path) -> None:
    from mlflow import MlflowClient

    registry = Registry(make_settings())
    registry.log_training(bundle_dir, ModelBundle.load(bundle_dir), [])
    client = MlflowClient(tracking_uri=registry.uri, registry_uri=registry.uri)
    client.set_registered_model_tag("fastci-risk", "fastci.promotions", "{not json")
    client.set_model_version_tag("fastci-risk", "1", "fastci.test.apfd", "very good")
    assert registry.promote("1") == "1"
    assert "apfd" not in registry.versions()[0].metrics
    assert (
        client.get_registered_model("fastci-risk").tags["fastci.promotions"] == '[{"from": "1", "to": "1"}]'
    )


_TRAINER = """
import sys
from pathlib import Path
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.registry import Registry
from fastci_ml.learn.registry.aliases import name_newest
from fastci_ml.settings import Settings
root, bundle = Path(sys.argv[1]), Path(sys.argv[2])
registry = Registry(Settings(root=root, state_dir=root / ".fastci"))
version = registry.log_training(bundle, ModelBundle.load(bundle), [])
registry.promote(version)
print(version)
"""


@pytest.mark.timeout(120)
def test_two_trainings_and_promotions_at_once_leave_one_champion_and_the_newest_challenger(
    make_settings: MakeSettings, trained: ModelBundle, tmp_path: Path, processes: Processes
) -> None:
    settings = make_settings()
    bundles = [str(tmp_path / name) for name in ("one", "two")]
    for bundle in bundles:
        trained.save(Path(bundle))
    told = processes.run(_TRAINER, *[[str(tmp_path), bundle] for bundle in bundles])
    assert [code for code, _ in told] == [0, 0], told
    assert sorted(text for _, text in told) == ["1\n", "2\n"]
    newest, oldest = Registry(settings).versions()
    assert "challenger" in newest.aliases
    assert [*newest.aliases, *oldest.aliases].count("champion") == 1
    assert {ModelBundle.load(Path(bundle)).version for bundle in bundles} == {"1", "2"}


def test_outcomes_whose_ids_differ_in_a_quote_are_two(make_settings: MakeSettings, bundle_dir: Path) -> None:
    registry = Registry(make_settings())
    registry.log_training(bundle_dir, ModelBundle.load(bundle_dir), [])
    for outcome_id in ("it's", 'it"s', "it_s", "it's"):
        registry.log_outcome(outcome(outcome_id, "1", apfd=0.5))
    assert registry.versions()[0].outcomes["n_outcomes"] == 3


def test_an_outcome_of_a_bundle_that_was_registered_later_is_found_by_its_digest_alone(
    make_settings: MakeSettings, bundle_dir: Path
) -> None:
    registry = Registry(make_settings())
    bundle = ModelBundle.load(bundle_dir)
    registry.log_training(bundle_dir, bundle, [])
    record = outcome("a", None, digest=bundle.digest, apfd=0.5)
    record["model"]["name"] = "unregistered"  # as its plan says
    registry.log_outcome(record)
    assert registry.versions()[0].outcomes["n_outcomes"] == 1
    for digest in ("' or '1' = '1", "0" * 64, ""):
        with pytest.raises(RegistryError, match="not registered") as raised:
            registry.log_outcome(outcome("b", None, digest=digest))
        assert raised.value.hint == "fastci-ml models register"


@contextlib.contextmanager
def serving(answers: dict[str, tuple[int, str]]) -> Iterator[tuple[str, list[str]]]:
    """A server that gives recorded answers, and 404 to everything else; its address and what it was asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            code, text = answers.get(
                self.path, (404, '{"error_code": "ENDPOINT_NOT_FOUND", "message": "no"}')
            )
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = _answer  # noqa: N815  the names that http.server looks for

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("release", "hint"), [("2.9.2", "on the server: pip install"), ("99.1.0", "pip install 'mlflow==99.1.0'")]
)
def test_a_server_of_another_major_release_is_named_before_anything_is_sent(
    tmp_path: Path, bundle_dir: Path, release: str, hint: str
) -> None:
    # case 50: answers as such servers give them to /health and /version.
    with serving({"/health": (200, "OK"), "/version": (200, release)}) as (uri, asked):
        registry = Registry(Settings(root=tmp_path, state_dir=tmp_path, tracking_uri=uri))
        with pytest.raises(RegistryError, match=f"the server is MLflow {release}, this is") as raised:
            registry.log_training(bundle_dir, ModelBundle.load(bundle_dir), [])
        assert hint in str(raised.value.hint)
        assert asked == ["GET /health", "GET /version"]


def test_an_error_of_a_server_of_another_release_says_so(tmp_path: Path) -> None:
    with serving({"/health": (200, "OK"), "/version": (200, "3.1.0")}) as (uri, _):
        registry = Registry(Settings(root=tmp_path, state_dir=tmp_path, tracking_uri=uri))
        with pytest.raises(RegistryError, match=r"\(the server is MLflow 3.1.0, this is"):
            registry.versions()


@pytest.mark.parametrize("answer", [(401, "who are you"), (200, "<html>a proxy</html>"), (500, "")])
def test_a_server_that_hides_its_release_is_asked_all_the_same(
    tmp_path: Path, answer: tuple[int, str]
) -> None:
    with serving({"/health": (200, "OK"), "/version": answer}) as (uri, asked):
        registry = Registry(Settings(root=tmp_path, state_dir=tmp_path, tracking_uri=uri))
        with pytest.raises(RegistryError, match="ENDPOINT_NOT_FOUND"):
            registry.versions()
        assert any("registered-models" in path for path in asked)


def test_a_password_in_the_address_is_never_printed(tmp_path: Path) -> None:
    for uri in ("http://ci:p@ss@127.0.0.1:9", "postgresql://ci:p@ss@127.0.0.1:9/mlflow"):
        registry = Registry(Settings(root=tmp_path, state_dir=tmp_path, tracking_uri=uri))
        assert "***@127.0.0.1:9" in registry.shown_uri
        with pytest.raises(RegistryError) as raised:
            registry.versions()
        assert "p@ss" not in f"{raised.value} {raised.value.hint}"
        assert "ss@" not in f"{raised.value} {raised.value.hint}"


def test_no_line_of_ours_gives_a_version_a_stage() -> None:
    # case 50: MLflow gives stages up; we give aliases, and only read what an earlier release left.
    import fastci_ml

    root = Path(fastci_ml.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    calls = ("transition_model_version_stage", "get_latest_versions", "archive_existing_versions", "stages=")
    assert [(str(path), call) for path, text in texts.items() for call in calls if call in text] == []


def test_the_challenger_is_the_newest_version_also_where_one_is_made_meanwhile() -> None:
    class Client:
        """Another training registers version 8 while ours names version 7."""

        def __init__(self) -> None:
            self.versions, self.named = [6, 7], [""]

        def search_model_versions(self, *_: object, **__: object) -> Any:
            class Page(list[Any]):
                token = None

            return Page(types.SimpleNamespace(version=str(version)) for version in self.versions)

        def set_registered_model_alias(self, name: str, alias: str, version: str) -> None:
            self.named.append(version)
            self.versions = [6, 7, 8]

    client = Client()
    name_newest(client, "fastci-risk")
    assert client.named == ["", "7", "8"]

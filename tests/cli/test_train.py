"""`train` and `models`, end to end on the command line with the default local store and with none."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from projects import LANE, add_runs, write_files

from fastci_ml.cli.app import main
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.spool import Spool
from fastci_ml.sources.history.store import HistoryStore


@pytest.fixture(scope="module")
def makers() -> ModuleType:
    """The history writer of the learn tests: one definition of what can be learned."""
    path = Path(__file__).parents[1] / "learn" / "conftest.py"
    spec = importlib.util.spec_from_file_location("fastci_learn_makers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(tmp_path: Path, makers: ModuleType) -> Path:
    makers.write_history(tmp_path / ".fastci" / "history")
    return tmp_path


def call(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main([words[0], "--root", str(root), *words[1:]])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.timeout(300)
def test_train_then_models_on_the_default_local_store(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(root, capsys, "train", "--json", "--seed", "5")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "fastci.train/1"
    assert document["model"] == {"name": "fastci-risk", "version": "1"}
    assert document["card"]["params"]["seed"] == 5
    assert ModelBundle.load(root / ".fastci" / "model").version == "1"
    code, out, err = call(root, capsys, "train")
    assert code == 0
    assert "fastci-risk version 2" in out
    assert "best simple policy" in out
    assert "registering with MLflow" in err
    code, out, _ = call(root, capsys, "models", "promote", "2")
    assert (code, "was version 1" in out) == (0, True)
    Spool(root / ".fastci" / "spool").add(
        {
            "outcome_id": "a",
            "model": {"name": "fastci-risk", "version": "2"},
            "at": "2026-11-30T12:00:00+00:00",
            "metrics": {"apfd": 0.5, "expected_saved_s": 12.0},
        }
    )
    code, out, _ = call(root, capsys, "models", "flush")
    assert (code, out.split(",")[0]) == (0, "1 outcomes sent")
    code, out, _ = call(root, capsys, "models", "--json")
    versions = json.loads(out)["versions"]
    assert [(v["version"], v["aliases"]) for v in versions] == [("2", ["challenger", "champion"]), ("1", [])]
    assert versions[0]["outcomes"] == {"n_outcomes": 1.0, "apfd": 0.5, "expected_saved_s": 12.0}
    code, out, _ = call(root, capsys, "models")
    assert "challenger,champion" in out
    code, out, _ = call(root, capsys, "models", "pull", "1", "--out", str(root / "pulled"))
    assert (code, ModelBundle.load(root / "pulled").version) == (0, "1")


def test_without_a_registry_the_bundle_is_written_and_the_exit_code_is_4(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out_dir = root / "bundle"
    code, out, err = call(
        root, capsys, "train", "--out", str(out_dir), "--tracking-uri", "http://127.0.0.1:9", "--json"
    )
    assert code == 4
    assert "not registered" in err
    assert "127.0.0.1:9" in json.loads(out)["registry_error"]
    assert ModelBundle.load(out_dir).version is None


def test_no_mlflow_writes_the_bundle_alone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(root, capsys, "train", "--no-mlflow", "--model-name", "mine")
    assert (code, "not registered" in out) == (0, True)
    assert ModelBundle.load(root / ".fastci" / "model").name == "mine"
    assert not (root / ".fastci" / "mlflow.db").exists()


def test_a_bundle_trained_while_the_registry_was_away_is_registered_later(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = ("--tracking-uri", "http://127.0.0.1:9")
    code, _, err = call(root, capsys, "train", *away)
    assert (code, "fastci-ml models register" in err) == (4, True)
    code, _, err = call(root, capsys, "models", "register", *away)
    assert (code, "127.0.0.1:9" in err) == (4, True)
    digest = ModelBundle.load(root / ".fastci" / "model").digest
    code, out, _ = call(root, capsys, "models", "register", "--json")
    assert (code, json.loads(out)["version"], json.loads(out)["digest"]) == (0, "1", digest)
    code, _, err = call(root, capsys, "models", "register")
    assert (code, "already" in err) == (2, True)


def test_too_little_history_gives_figures_and_no_bundle(
    tmp_path: Path, makers: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    makers.write_history(tmp_path / "few", n_runs=3)
    code, _, err = call(tmp_path, capsys, "train", "--history", str(tmp_path / "few"))
    assert code == 3
    assert "3 runs (needed 15)" in err
    assert not (tmp_path / ".fastci" / "model").exists()


@pytest.mark.parametrize(
    "words",
    [("promote",), ("list", "3"), ("flush", "3"), ("promote", "3", "--out", "x")],
)
def test_words_that_make_no_sense_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code, _, err = call(tmp_path, capsys, "models", *words)
    assert (code, "hint:" in err) == (2, True)


@pytest.mark.timeout(300)
def test_with_a_registry_of_another_release_ci_goes_on_and_nothing_is_lost(
    make_repo: Callable[..., Any],
    makers: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # case 50: train, rank, run and outcome with a database of an earlier MLflow; the upgrade on request; then
    # what had waited goes in; then the registry is gone altogether, and rank has the champion's files.
    repo = make_repo()
    write_files(repo.root)
    repo.write(".gitignore", ".fastci/\n*.xml\nplan.json\n__pycache__\n")
    repo.write("fastci.toml", f'lane = "{LANE}"\n')
    repo.commit("start")
    repo.write("tests/test_adam.py", "def test_0():\n    assert 0\ndef test_1():\n    pass\n")
    repo.commit("change")
    monkeypatch.chdir(repo.root)
    state = repo.root / ".fastci"
    add_runs(HistoryStore(state / "history"), 0, 40)
    database = makers.make_old_database(state / "mlflow.db", "3500859a5d39")
    content = database.read_bytes()

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    code, _, err = call("train")
    assert (code, "schema revision 3500859a5d39 of an earlier MLflow" in err) == (4, True)
    digest = ModelBundle.load(state / "model").digest
    rank = ("rank", "--base", "HEAD~1")
    code, out, _ = call(*rank)
    assert (code, "ranked by model 'unregistered'" in out) == (0, True)
    run = ["run", "plan.json", "--junit", "out.xml", "--", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [sys.executable, "-m", "fastci_ml", *run], check=False, capture_output=True, text=True
    )
    code, out, err = call("outcome", "plan.json", "out.xml")
    assert (code, "MLflow: spooled" in out, "fastci-ml models flush" in err) == (0, True, True), (err, ran)
    code, out, err = call("models", "flush")
    assert (code, "of an earlier MLflow" in err) == (4, True)
    assert len(Spool(state / "spool").files()) == 1
    assert database.read_bytes() == content
    assert [path.name for path in state.glob("mlflow.db*")] == ["mlflow.db"]

    assert call("models", "upgrade")[0] == 0
    assert call("models", "register")[0] == 0
    code, out, _ = call("models", "flush")
    assert (code, out.startswith("1 outcomes sent, 0 stay")) == (0, True)
    assert call("models", "promote", "4")[0] == 0
    assert call("models", "pull", "champion")[0] == 0

    database.unlink()
    shutil.rmtree(state / "mlartifacts")
    assert ModelBundle.load(state / "model").digest == digest
    code, out, _ = call(*rank)
    assert (code, "ranked by model 'fastci-risk' version 4" in out) == (0, True)


def test_rank_says_what_ranks_where_a_history_is_too_little_and_where_risks_are_unchecked(
    make_repo: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # case 49: refused, so a simple policy orders, by name; above the floors and unchecked, so without a risk.
    repo = make_repo()
    write_files(repo.root)
    repo.write(".gitignore", ".fastci/\nplan.json\n")
    repo.commit("start")
    repo.write("pkg/adam.py", "VALUE = 1\n")
    repo.commit("change")
    monkeypatch.chdir(repo.root)
    store = HistoryStore(repo.root / ".fastci" / "history")
    rank = ["rank", "--base", "HEAD~1", "--lane", LANE]

    def plan() -> tuple[dict[str, Any], set[float | None], str]:
        assert main([*rank, "--json"]) == 0
        printed = capfd.readouterr()
        document = json.loads(printed.out)
        return document["model"], {test["risk"] for test in document["tests"]}, printed.err

    add_runs(store, 0, 8)
    assert main(["train", "--no-mlflow"]) == 3
    said = capfd.readouterr().err
    assert "8 runs (needed 15)" in said
    assert "missing: 7 runs" in said
    assert not (repo.root / ".fastci" / "model").exists()
    model, risks, err = plan()
    assert (model["kind"], risks) == ("policy", {None})
    assert f"ranked by the simple policy {model['name']!r}" in err

    add_runs(store, 8, 32)
    assert main(["train", "--no-mlflow"]) == 0
    printed = capfd.readouterr()
    assert "risks uncalibrated" in printed.out
    assert "warning: risks are uncalibrated" in printed.err
    model, risks, err = plan()
    assert (model["kind"], risks) == ("model", {None})
    assert "the model is uncalibrated: it orders the tests, and gives no risk" in err

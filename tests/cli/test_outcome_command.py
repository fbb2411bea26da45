from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fastci_ml.cli.app import main
from fastci_ml.learn.spool import Spool
from fastci_ml.records.frames import EXECUTIONS, RUNS
from fastci_ml.records.plans import Decision, Plan, PlannedTest
from fastci_ml.sources.environment import detect_lane
from fastci_ml.sources.git.worktree import read_worktree
from fastci_ml.sources.history.store import HistoryStore

MODEL = {"kind": "model", "name": "fastci-risk", "version": "1", "digest": "abc"}
POLICY = {"kind": "policy", "name": "recently failed", "version": None}
# Nothing listens on the discard port.
_AWAY = "http://127.0.0.1:9"


@pytest.fixture
def ran(make_repo, monkeypatch):
    """A repository whose plan ran: one test failed, one was left out."""
    repo = make_repo()
    repo.write("fastci.toml", "")
    repo.write("test_a.py", "def test_x(): assert 0\ndef test_y(): pass\ndef test_z(): pass\n")
    repo.write(".gitignore", "__pycache__\n")
    repo.commit()
    found = read_worktree(repo.root)
    tests = (
        PlannedTest(id="test_a.py::test_y", decision=Decision.RUN, order=1, risk=0.25),
        PlannedTest(id="test_a.py::test_x", decision=Decision.RUN, order=2, risk=0.5),
        PlannedTest(id="test_a.py::test_z", decision=Decision.UNAFFECTED, order=0, duration_s=8.0),
    )

    def run(model):
        plan = Plan(
            base=found.head,
            head=found.head,
            head_tree=found.tree,
            lane=detect_lane(),
            model=model,
            tests=tests,
        )
        repo.write("plan.json", plan.dumps())
        command = [sys.executable, "-m", "fastci_ml", "run", "plan.json", "--junit", "out.xml", "--", "-q"]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", "-p", "no:hypothesispytest"], cwd=repo.root, check=False
        )
        assert done.returncode == 1
        return repo.root

    monkeypatch.chdir(repo.root)
    return run


def test_outcome_appends_once_and_prints_the_record(ran, capfd):
    root = ran(POLICY)
    words = ["outcome", "plan.json", "out.xml", "--no-mlflow", "--json"]
    assert main([*words, "--run-id", "ci-1"]) == 0
    first = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert first["schema"] == "fastci.outcome/1"
    assert (first["is_new"], first["tags"]["run_id"]) == (True, "ci-1")
    assert first["metrics"]["first_failure_place"] == 2
    assert first["metrics"]["expected_failures"] == 0.75
    assert main([*words, "--run-id", "ci-1"]) == 0
    again = json.loads(capfd.readouterr().out)
    assert {**again, "is_new": True} == first
    store = HistoryStore(root / ".fastci" / "history")
    assert store.read(RUNS)["run_id"].to_list() == ["ci-1"]
    assert store.read(EXECUTIONS)["node_id"].to_list() == ["test_a.py::test_x", "test_a.py::test_y"]


def test_outcome_in_words(ran, capfd, tmp_path):
    ran(POLICY)
    capfd.readouterr()
    assert main(["outcome", "plan.json", "out.xml", "--history", str(tmp_path / "elsewhere")]) == 0
    out, err = capfd.readouterr()
    assert "2 of 3 tests ran by the plan, 1 left out, 0 missing, 0 unplanned" in out
    assert "failures: 1 in all; 1 of planned tests, expected 0.750; 0 of unplanned ones, 0 missing" in out
    assert "first failure at place 2" in out
    assert "expected to have saved 8.0 s" in out
    assert "history: appended; MLflow: no model" in out
    assert "ranked by 'recently failed', no registered model" in err
    assert (tmp_path / "elsewhere").is_dir()


def test_server_that_is_away_spools_the_outcome_once_and_exits_zero(ran, capfd):
    root = ran(MODEL)
    capfd.readouterr()
    for _ in range(2):
        assert main(["outcome", "plan.json", "out.xml", "--tracking-uri", _AWAY]) == 0
        out, err = capfd.readouterr()
        assert "MLflow: spooled" in out
        assert "warning: " in err
        assert "fastci-ml models" in err
    (waiting,) = Spool(root / ".fastci" / "spool").files()
    assert json.loads(waiting.read_text())["metrics"]["observed_failures"] == 1


def test_unreadable_input_exits_three_and_appends_nothing(ran, capfd):
    root = ran(MODEL)
    (root / "out.xml").write_text("<testsuite>")
    assert main(["outcome", "plan.json", "out.xml", "--no-mlflow"]) == 3
    assert main(["outcome", "gone.json", "out.xml", "--no-mlflow"]) == 3
    assert not (root / ".fastci").exists()


def test_failures_that_the_plan_did_not_foresee_are_told(ran, capfd):
    root = ran(POLICY)
    (root / "out.xml").write_text(
        '<testsuite><testcase classname="test_a" name="test_new"><failure message="no"/></testcase>'
        '<testcase classname="test_a" name="test_y"/></testsuite>'
    )
    assert main(["outcome", "plan.json", "out.xml", "--no-mlflow"]) == 0
    out = capfd.readouterr().out
    assert "failures: 2 in all; 0 of planned tests, expected 0.250; 1 of unplanned ones, 1 missing" in out

"""The command line's help and the running side load nothing heavy, and need nothing but pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastci_ml.records.plans import Decision, Plan, PlannedTest
from fastci_ml.sources.environment import detect_lane
from fastci_ml.sources.git.worktree import read_worktree

HEAVY = ("numpy", "pandas", "lightgbm", "sklearn", "mlflow", "torch", "git", "pyarrow", "matplotlib")
_QUICK = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio"]
# Python runs `sitecustomize` before anything else.
_DUMP = """
import atexit, json, os, sys
def dump():
    with open(os.environ["MODULES"], "a") as file:
        file.write(json.dumps(sorted(sys.modules)) + "\\n")
atexit.register(dump)
"""
_BLOCK = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in HEAVY)


@pytest.fixture
def project(make_repo, monkeypatch):
    """A repository with two tests and a plan that runs the second one."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    repo = make_repo()
    repo.write("test_a.py", "def test_x(): pass\ndef test_y(): pass\n")
    repo.write(".gitignore", "__pycache__\n")
    repo.commit()
    found = read_worktree(repo.root)
    tests = (
        PlannedTest(id="test_a.py::test_y", decision=Decision.RUN, order=1),
        PlannedTest(id="test_a.py::test_x", decision=Decision.UNAFFECTED, order=0),
    )
    plan = Plan(
        base=found.head, head=found.head, head_tree=found.tree, lane=detect_lane(), model={}, tests=tests
    )
    repo.write("plan.json", plan.dumps())
    return repo.root


def start(command: list[str], folder: Path, sitecustomize: str) -> tuple[str, list[set[str]]]:
    """Output, and the modules that each process had loaded when it ended."""
    site = folder.parent / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(sitecustomize)
    dumped = site / "modules.jsonl"
    dumped.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(site), "MODULES": str(dumped)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = dumped.read_text().splitlines() if dumped.exists() else []
    return done.stdout, [set(json.loads(line)) for line in lines]


_COMMANDS = {
    "help": ["-m", "fastci_ml", "--help"],
    "run help": ["-m", "fastci_ml", "run", "--help"],
    "planned run": ["-m", "pytest", *_QUICK, "--fastci-plan=plan.json"],
    "planned run under xdist": ["-m", "pytest", *_QUICK, "-n1", "--fastci-plan=plan.json"],
    "refused plan": ["-m", "pytest", *_QUICK, "--fastci-plan=nowhere.json"],
    "run": ["-m", "fastci_ml", "run", "plan.json", "--", *_QUICK],
}


@pytest.mark.parametrize("name", _COMMANDS)
def test_nothing_heavy_is_loaded(project, name):
    output, processes = start(_COMMANDS[name], project, _DUMP)
    assert len(processes) == (2 if name in ("run", "planned run under xdist") else 1)
    for modules in processes:
        assert "fastci_ml" in modules
        assert modules.isdisjoint(HEAVY)
    if name.startswith(("planned", "run")) and "help" not in name:
        assert "ran 1 of 2 tests collected" in output


def test_run_without_a_plan_loads_no_more_of_ours_than_the_options(project):
    _, (modules,) = start(["-m", "pytest", *_QUICK], project, _DUMP)
    ours = {name for name in modules if name.startswith("fastci_ml")}
    assert ours == {"fastci_ml", "fastci_ml.execution", "fastci_ml.execution.plugin"}


@pytest.mark.parametrize("name", ["planned run", "planned run under xdist", "run", "help"])
def test_works_where_only_pytest_is_installed(project, name):
    output, _ = start(_COMMANDS[name], project, _BLOCK)
    assert name == "help" or "ran 1 of 2 tests collected" in output

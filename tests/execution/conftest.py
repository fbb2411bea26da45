"""A real repository with tests, a plan for it, and real pytest runs in subprocesses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fastci_ml.records.plans import Decision, Plan, PlannedTest
from fastci_ml.sources.environment import VARIABLE
from fastci_ml.sources.git.worktree import read_worktree

LANE = "lane-of-the-tests"
# A project of its own, which test_record_no_change.py runs.
collect_ignore = ["unchanged"]
# Importing Hypothesis would cost each subprocess a second.
QUICK = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio")


@dataclass(frozen=True)
class Ran:
    """What a pytest process said and did."""

    code: int
    output: str
    order: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """Tests in a repository."""

    root: Path

    def plan(
        self, run: Sequence[str], left_out: Mapping[str, Decision] | Sequence[str] = (), **changes: object
    ) -> Path:
        """Write a plan for what is checked out; `changes` are keys of plan.json to overwrite."""
        out = left_out if isinstance(left_out, Mapping) else dict.fromkeys(left_out, Decision.UNAFFECTED)
        worktree = read_worktree(self.root)
        plan = Plan(
            base=worktree.head,
            head=worktree.head,
            head_tree=worktree.tree,
            lane=LANE,
            model={"name": "by-hand", "version": None, "kind": "simple"},
            tests=(
                *(
                    PlannedTest(id=t, decision=Decision.RUN, order=i, duration_s=1.5)
                    for i, t in enumerate(run, 1)
                ),
                *(PlannedTest(id=t, decision=d, order=0, duration_s=2.0) for t, d in out.items()),
            ),
        )
        path = self.root / "plan.json"
        path.write_text(json.dumps({**json.loads(plan.dumps()), **changes}))
        return path

    def pytest(self, *arguments: str, cwd: str = ".", has_cache: bool = False) -> Ran:
        """Run pytest as a user would; the order is that of the reports."""
        log = self.root.parent / "report.jsonl"
        log.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "pytest",
            *(() if has_cache else ("-p", "no:cacheprovider")),
            f"--report-log={log}",
            *arguments,
        ]
        done = subprocess.run(
            command, cwd=self.root / cwd, capture_output=True, text=True, check=False, timeout=120
        )
        order: list[str] = []
        outcomes: dict[str, str] = {}
        for line in log.read_text().splitlines() if log.exists() else []:
            entry = json.loads(line)
            if entry["$report_type"] == "TestReport":
                if entry["nodeid"] not in outcomes:
                    order.append(entry["nodeid"])
                if outcomes.get(entry["nodeid"]) != "failed":
                    outcomes[entry["nodeid"]] = entry["outcome"]
        return Ran(done.returncode, done.stdout + done.stderr, order, outcomes)


@pytest.fixture
def make_suite(make_repo, monkeypatch, tmp_path_factory):
    """Commit files as a repository; two modules with two tests each by default."""
    monkeypatch.setenv(VARIABLE, LANE)
    # One cache for all subprocesses: pytest rewrites its plugins anew where it may not store them.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.getbasetemp() / "bytecode"))
    for name in (
        "PYTEST_ADDOPTS",
        "PYTEST_CURRENT_TEST",
        "PYTEST_XDIST_WORKER",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
    ):
        monkeypatch.delenv(name, raising=False)

    def make(files: Mapping[str, str] | None = None) -> Suite:
        repo = make_repo()
        body = "def test_x(): pass\ndef test_y(): pass\n"
        for path, text in (files or {"test_a.py": body, "test_b.py": body}).items():
            repo.write(path, text)
        repo.write(".gitignore", "__pycache__\n")
        repo.commit()
        return Suite(repo.root)

    return make


@pytest.fixture
def suite(make_suite):
    return make_suite()

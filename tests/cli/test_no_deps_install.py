"""Recording and running where nothing but pytest was installed beside this package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bare_installs import make_bare_install, run_bare
from measured_project import DATA, make_data, write_project

from fastci_ml.records.plans import Decision, Plan, PlannedTest
from fastci_ml.sources.git.worktree import read_worktree


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return make_bare_install(tmp_path_factory.mktemp("install") / "venv")


@pytest.fixture
def project(make_repo) -> Path:
    repo = make_repo()
    write_project(repo.root)
    repo.write(".gitignore", ".fastci\n__pycache__\n.pytest_cache\n")
    repo.commit()
    return repo.root


def test_nothing_else_is_there(python, tmp_path):
    for name in ("numpy", "pandas", "pyarrow", "git", "mlflow", "lightgbm", "coverage", "xdist"):
        done = run_bare(python, "python", "-c", f"import {name}", folder=tmp_path)
        assert f"No module named '{name}'" in done.stderr, name


def test_record_merge_status_explain_and_doctor(python, project):
    done = run_bare(python, "fastci-ml", "record", "--merge", "--", "pytest", "-q", "tests", folder=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14 passed" in done.stdout
    assert "1 merged: 14 tests recorded, 14 of them complete" in done.stderr

    done = run_bare(python, "fastci-ml", "merge", "--json", folder=project)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bundles"]["n_known"] == 2

    done = run_bare(python, "fastci-ml", "status", "--json", folder=project)
    assert done.returncode == 0, done.stderr
    assert "numpy is not installed, so nothing is said of the history" in done.stderr
    status = json.loads(done.stdout)
    assert (status["evidence"]["n_tests"], status["evidence"]["n_complete"]) == (14, 14)
    assert "n_runs" not in status

    done = run_bare(python, "fastci-ml", "status", folder=project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("evidence: 14 tests recorded, 100.0% of them complete\n")

    test = "tests/test_lib.py::test_g"
    done = run_bare(python, "fastci-ml", "explain", "--evidence", test, folder=project)
    assert done.returncode == 0, done.stderr
    assert "f, g" in done.stdout

    done = run_bare(python, "fastci-ml", "doctor", "--json", folder=project)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["pytest plugin"]["text"] == "installed, pytest loads it"
    assert "pyarrow (ingest" in found["not installed"]["text"]
    assert found["tests"]["text"].startswith("14 recorded, 100.0% of them complete")


def test_run_of_a_plan(python, project):
    found = read_worktree(project)
    tests = (
        PlannedTest(id="tests/test_lib.py::test_f", decision=Decision.RUN, order=1),
        PlannedTest(id="tests/test_lib.py::test_g", decision=Decision.UNAFFECTED, order=0),
    )
    plan = Plan(base=found.head, head=found.head, head_tree=found.tree, lane="bare", model={}, tests=tests)
    (project.parent / "plan.json").write_text(plan.dumps())
    done = run_bare(
        python, "fastci-ml", "run", "../plan.json", "--", "-q", "-k", "test_f or test_g", folder=project
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left out" in done.stdout


def test_plugin_records_by_its_own_option(python, project):
    done = run_bare(python, "pytest", "-q", "--fastci-record", "tests", folder=project)
    assert done.returncode == 0, done.stdout + done.stderr
    # One test starts a process, which has a bundle of its own.
    assert len(list((project / ".fastci" / "bundles").glob("*.fastci-bundle"))) == 2


def test_data_of_coverage_can_be_imported_without_coverage(python, project):
    make_data(project / "cov.sqlite", DATA)
    done = run_bare(python, "fastci-ml", "merge", "--coverage", "cov.sqlite", folder=project)
    assert done.returncode == 0, done.stderr
    assert "2 tests of cov.sqlite, as weaker evidence" in done.stdout

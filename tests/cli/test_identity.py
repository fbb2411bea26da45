"""Tests keep their identity from report to history to plan to run to outcome, through the real programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fastci_ml.cli.app import main

Capture = pytest.CaptureFixture[str]
QUICK = ("-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio")
IGNORED = "__pycache__/\n.fastci/\n*.json\n*.xml\n*.txt\n"
BODY = "def test_x(): pass\ndef test_y(): assert {}\n"


@pytest.fixture(autouse=True)
def lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTCI_LANE", "cpu")
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)


def pytest_(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *QUICK, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def fastci(*arguments: str) -> str:
    """Run a command of ours as a user does; its output."""
    command = [sys.executable, "-m", "fastci_ml", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def answer(capsys: Capture, *arguments: str) -> dict[str, object]:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def plan_ids() -> list[str]:
    return sorted(test["id"] for test in json.loads(Path("plan.json").read_text())["tests"])


def test_projects_of_one_repository_never_share_a_test(
    make_repo: Callable[..., object], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    repo = make_repo()
    for name, is_good in (("a", "1"), ("b", "0")):
        repo.write(f"services/{name}/tests/test_a.py", BODY.format(is_good))
        repo.write(f"services/{name}/fastci.toml", 'state_dir = "../../.fastci"\n')
        repo.write(f"services/{name}/pytest.ini", "[pytest]\n")
    repo.write(".gitignore", IGNORED)
    repo.commit()
    for name in ("a", "b"):
        monkeypatch.chdir(repo.root / "services" / name)
        pytest_("--junitxml=out.xml")
        assert main(["ingest", "out.xml", "--run-id", f"run-{name}"]) == 0
    assert answer(capsys, "status")["n_tests"] == 4
    Path("collected.txt").write_text(pytest_("--collect-only").stdout)
    assert answer(capsys, "status", "--collected", "collected.txt")["known_ratio"] == 1.0
    ids = ["services/b/tests/test_a.py::test_x", "services/b/tests/test_a.py::test_y"]
    for options in ([], ["--collected", "collected.txt"]):
        assert main(["rank", "--base", "HEAD", *options]) == 0
        assert plan_ids() == ids
    plan = json.loads(Path("plan.json").read_text())
    assert (plan["root"], plan["summary"]["project"], plan["summary"]["known_ratio"]) == (
        "",
        "services/b",
        1.0,
    )
    # Its own file has changed: ids and paths of the change start at the same folder.
    ran = fastci("run", "plan.json", "--junit", "junit.xml", "--", *QUICK)
    assert "ran 2 of 2 tests collected, in the order of the plan" in ran
    found = answer(capsys, "outcome", "plan.json", "junit.xml", "--no-mlflow")["metrics"]
    assert (found["n_run"], found["n_missing"], found["n_unplanned"], found["n_failures"]) == (2, 0, 0, 1)
    assert answer(capsys, "status")["n_tests"] == 4


def test_settings_at_the_top_and_tests_of_a_project(
    make_repo: Callable[..., object], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    repo = make_repo()
    repo.write("lib/tests/test_a.py", BODY.format("0"))
    repo.write("lib/pytest.ini", "[pytest]\n")
    repo.write("fastci.toml", "")
    repo.write(".gitignore", IGNORED)
    repo.commit()
    monkeypatch.chdir(repo.root / "lib")
    Path("collected.txt").write_text(pytest_("--collect-only").stdout)
    rank = ["rank", "--base", "HEAD", "--collected", "collected.txt"]
    assert main(rank) == 0
    # Without --project the ids start at the wrong folder: told, and nothing is hidden.
    assert "no file of the collected tests is at the head, such as tests/test_a.py; try --project lib" in (
        capsys.readouterr().err
    )
    assert main([*rank, "--project", "lib/"]) == 0
    assert plan_ids() == ["lib/tests/test_a.py::test_x", "lib/tests/test_a.py::test_y"]
    assert "ran 2 of 2 tests collected" in fastci("run", "plan.json", "--junit", "junit.xml", "--", *QUICK)
    found = answer(capsys, "outcome", "plan.json", "junit.xml", "--no-mlflow")["metrics"]
    assert (found["n_run"], found["n_missing"], found["n_unplanned"]) == (2, 0, 0)
    assert main([*rank, "--project", "../elsewhere"]) == 2
    assert "--project: project '../elsewhere', expected a path from the top" in capsys.readouterr().err
    plan = json.loads(Path("plan.json").read_text())
    plan["summary"]["project"] = "/etc"
    Path("plan.json").write_text(json.dumps(plan))
    assert main(["outcome", "plan.json", "junit.xml", "--no-mlflow"]) == 3
    assert "project '/etc', expected a path from the top" in capsys.readouterr().err


def test_plan_of_before_with_a_root_is_followed_and_its_outcome_read(
    make_repo: Callable[..., object], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    repo = make_repo()
    repo.write("lib/tests/test_a.py", BODY.format("0"))
    repo.write("lib/pyproject.toml", "[tool.pytest.ini_options]\n")
    repo.write(".gitignore", IGNORED)
    repo.commit()
    monkeypatch.chdir(repo.root / "lib")
    Path("collected.txt").write_text(pytest_("--collect-only").stdout)
    assert main(["rank", "--base", "HEAD", "--collected", "collected.txt"]) == 0
    plan = json.loads(Path("plan.json").read_text())
    for test in plan["tests"]:
        test["id"] = test["id"].removeprefix("lib/")
    del plan["summary"]["project"]
    Path("plan.json").write_text(json.dumps({**plan, "root": "lib"}))
    assert "ran 2 of 2 tests collected" in fastci("run", "plan.json", "--junit", "junit.xml", "--", *QUICK)
    found = answer(capsys, "outcome", "plan.json", "junit.xml", "--no-mlflow")["metrics"]
    assert (found["n_run"], found["n_missing"], found["n_unplanned"]) == (2, 0, 0)


UNSTABLE = """
import uuid
import pytest

class C:
    def __init__(self, v): self.v = v

@pytest.mark.parametrize("x", [C(0), C(1), C(2)], ids=repr)
def test_address(x): assert x.v != 1

@pytest.mark.parametrize("x", [uuid.uuid4(), uuid.uuid4()], ids=str)
def test_turnover(x): pass

@pytest.mark.parametrize("x", [C(0), C(1)])
def test_position(x): pass

def test_plain(): pass
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_tests_with_changing_ids_are_planned_run_and_told_by_their_function(
    make_repo: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    workers: tuple[str, ...],
) -> None:
    """case 25: between the listing, the plan and the run every address and every uuid is another."""
    repo = make_repo()
    repo.write("test_a.py", UNSTABLE)
    repo.write(".gitignore", IGNORED)
    repo.commit()
    monkeypatch.chdir(repo.root)
    for run in range(4):
        pytest_(f"--junitxml=r{run}.xml")
        assert main(["ingest", f"r{run}.xml", "--run-id", f"r{run}"]) == 0
    Path("collected.txt").write_text(pytest_("--collect-only").stdout)
    capsys.readouterr()
    assert main(["rank", "--base", "HEAD", "--collected", "collected.txt"]) == 0
    notes = capsys.readouterr().err
    assert notes.count("3 test functions have parameter ids that change between runs") == 1
    assert "1 address, 1 position, 1 turnover" in notes
    tests = {test["id"]: test for test in json.loads(Path("plan.json").read_text())["tests"]}
    assert tests.keys() == {
        "test_a.py::test_address",
        "test_a.py::test_turnover",
        "test_a.py::test_position[x0]",
        "test_a.py::test_position[x1]",
        "test_a.py::test_plain",
    }
    codes = {node_id: [reason["code"] for reason in test["reasons"]] for node_id, test in tests.items()}
    assert not any("new_test" in found for found in codes.values())
    assert [node_id for node_id, found in codes.items() if "unstable_ids" in found] == [
        node_id for node_id in tests if node_id.endswith(("address", "turnover"))
    ]
    assert json.loads(Path("plan.json").read_text())["summary"]["known_ratio"] == 1.0
    ran = fastci("run", "plan.json", "--junit", "junit.xml", "--", *QUICK, *workers)
    assert "ran 8 of 8 tests collected, in the order of the plan" in ran
    assert "unknown to the plan" not in ran
    assert "missing" not in ran
    found = answer(capsys, "outcome", "plan.json", "junit.xml", "--no-mlflow")["metrics"]
    assert (found["n_run"], found["n_missing"], found["n_unplanned"], found["n_failures"]) == (5, 0, 0, 1)
    # What ran is in the history by its own ids.
    assert answer(capsys, "status")["n_tests"] == 3 + 5 * 5
    # Without a listing, what has no id that will come back stands as its function as well.
    assert main(["rank", "--base", "HEAD"]) == 0
    assert plan_ids() == [f"test_a.py::test_{name}" for name in ("address", "plain", "position", "turnover")]
    ran = fastci("run", "plan.json", "--", *QUICK)
    assert "ran 8 of 8 tests collected" in ran
    assert "unknown to the plan" not in ran


def test_few_tests_with_a_history_make_a_full_run_and_say_what_to_type(
    make_repo: Callable[..., object], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    repo = make_repo()
    repo.write("test_a.py", "def test_a(): pass\n")
    repo.write("fastci.toml", "min_join_ratio = 0.6\n")
    repo.write(".gitignore", IGNORED)
    repo.commit()
    monkeypatch.chdir(repo.root)
    pytest_("--junitxml=out.xml")
    for run in range(15):
        assert main(["ingest", "out.xml", "--run-id", f"r{run}"]) == 0
    for listing, codes in (
        ("test_a.py::test_a\ntest_b.py::test_b\n", ["no_model", "low_join_rate"]),
        ("test_a.py::test_a\n", ["no_model"]),
    ):
        Path("collected.txt").write_text(listing)
        capsys.readouterr()
        assert main(["rank", "--base", "HEAD", "--collected", "collected.txt"]) == 0
        out = capsys.readouterr().out
        plan = json.loads(Path("plan.json").read_text())
        assert [reason["code"] for reason in plan["full_run"]] == codes
        assert f"history: knows 1 of {len(listing.splitlines())} collected tests" in out
        assert (
            "full run: 1 of 2 collected tests have a history on this lane (50.0%, needed 60.0%)" in out
        ) == (len(codes) == 2)
    Path("collected.txt").write_text("test_a.py::test_a\ntest_b.py::test_b\n")
    assert main(["status", "--collected", "collected.txt"]) == 0
    out = capsys.readouterr().out
    assert "collected tests with history  50.0%, below 60.0%: plans leave out no test" in out

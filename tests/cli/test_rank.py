"""`fastci-ml rank` as CI calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from projects import LANE, NODE_IDS, add_runs, write_files

from fastci_ml.cli.app import main
from fastci_ml.records.plan_reader import loads_plan
from fastci_ml.sources.history.store import HistoryStore

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def project(make_repo: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> Path:
    repo = make_repo()
    write_files(repo.root)
    repo.write(".gitignore", ".fastci/\n")
    repo.commit("start")
    repo.write("pkg/adam.py", "VALUE = 1\n")
    repo.commit("change adam")
    monkeypatch.chdir(repo.root)
    return repo.root


RANK = ("rank", "--base", "HEAD~1", "--lane", LANE)


def test_rank_without_model_or_history_names_the_fallback(project: Path, capsys: Capture) -> None:
    assert main(RANK) == 0
    out, err = capsys.readouterr()
    assert "0 of 0 tests run" in out
    assert "no model at" in err
    assert "no model and no history" in err
    assert loads_plan((project / "plan.json").read_text()).lane == LANE


def test_rank_json_prints_the_plan_that_it_writes(project: Path, capsys: Capture) -> None:
    add_runs(HistoryStore(project / ".fastci" / "history"), 0, 4)
    assert main([*RANK, "--json", "--out", "other.json"]) == 0
    out = capsys.readouterr().out
    assert out == (project / "other.json").read_text()
    assert {test["id"] for test in json.loads(out)["tests"]} == set(NODE_IDS)


def test_rank_takes_collected_ids_and_ignores_pytests_last_lines(project: Path) -> None:
    (project / "ids.txt").write_text("tests/test_a.py::test_x[a b]\n\n1 test collected in 0.01s\n")
    assert main([*RANK, "--collected", "ids.txt"]) == 0
    plan = loads_plan((project / "plan.json").read_text())
    assert [test.id for test in plan.tests] == ["tests/test_a.py::test_x[a b]"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--collected", "absent.txt"], 3, "the list of collected tests cannot be read"),
        (["--collected", "README.md"], 2, "no node id in it"),
        (["--model", "absent"], 3, "absent"),
        (["--head", "absent"], 4, "absent"),
        (["--out", "no/such/folder/plan.json"], 3, "the plan cannot be written"),
    ],
)
def test_rank_errors_name_the_thing_and_a_way_out(
    project: Path, capsys: Capture, options: list[str], code: int, message: str
) -> None:
    (project / "README.md").write_text("no ids here\n")
    assert main([*RANK, *options]) == code
    err = capsys.readouterr().err
    assert message in err
    assert "hint:" in err


def test_an_unusable_default_model_is_a_note_and_a_fallback(project: Path, capsys: Capture) -> None:
    (project / ".fastci" / "model").mkdir(parents=True)
    add_runs(HistoryStore(project / ".fastci" / "history"), 0, 4)
    assert main(RANK) == 0
    err = capsys.readouterr().err
    assert "the model is unusable" in err
    assert "recently-failed/duration" in err


def test_rank_imports_nothing_heavier_than_it_needs(project: Path) -> None:
    """pandas, LightGBM, scikit-learn and MLflow would cost more than the whole pre-step may."""
    add_runs(HistoryStore(project / ".fastci" / "history"), 0, 4)
    code = (
        "import sys\n"
        "from fastci_ml.cli.app import main\n"
        f"assert main({[*RANK]!r}) == 0\n"
        "names = {'pandas', 'lightgbm', 'sklearn', 'mlflow', 'torch', 'matplotlib', 'scipy'}\n"
        "heavy = names & set(sys.modules)\n"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_damaged_history_is_a_note_and_a_fallback(project: Path, capsys: Capture) -> None:
    add_runs(HistoryStore(project / ".fastci" / "history"), 0, 4)
    (project / ".fastci" / "history" / "runs" / "foreign.parquet").write_text("no part")
    assert main(RANK) == 0
    assert "the history is unusable, and its newer runs are unknown" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_ids_that_stdout_cannot_show_are_escaped(project: Path, encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastci_ml", *RANK, "--collected", "-"],
        cwd=project,
        input="t/a.py::test_x[é]\nt/bad".encode() + b"\xff.py::test_y\n",
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, b"bug" in done.stderr) == (0, False)
    plan = loads_plan((project / "plan.json").read_text())
    assert [test.id for test in plan.tests] == [r"t/bad\xff.py::test_y", "t/a.py::test_x[é]"][::-1]


def test_a_folder_as_the_plan_file_is_a_usage_error(project: Path, capsys: Capture) -> None:
    assert main([*RANK, "--out", "."]) == 2
    assert "expected a file" in capsys.readouterr().err


def test_project_below_the_top_of_its_repository_follows_its_plan(
    make_repo: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of the same path and name elsewhere in the repository is another test."""
    repo = make_repo()
    body = "def test_x(): pass\ndef test_y(): assert 0\n"
    repo.write("tests/test_a.py", body)
    repo.write("pkg/tests/test_a.py", body.replace("assert 0", "pass"))
    repo.write("pkg/pyproject.toml", "[tool.pytest.ini_options]\n")
    repo.write(".gitignore", "__pycache__/\n.fastci/\n*.json\n*.xml\n")
    repo.commit()
    monkeypatch.chdir(repo.root / "pkg")
    monkeypatch.setenv("FASTCI_LANE", LANE)
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    subprocess.run([*pytest_, "--junitxml=out.xml"], check=True)
    assert main(["ingest", "out.xml"]) == 0
    assert main(["rank", "--base", "HEAD"]) == 0
    plan = loads_plan(Path("plan.json").read_text())
    assert (plan.root, sorted(test.id for test in plan.tests)) == (
        "",
        ["pkg/tests/test_a.py::test_x", "pkg/tests/test_a.py::test_y"],
    )
    document = json.loads(plan.dumps())
    (test_y,) = (test for test in document["tests"] if test["id"].endswith("test_y"))
    test_y.update(decision="unaffected", order=0)
    document["full_run"] = []  # a history of one run allows no such plan
    Path("plan.json").write_text(json.dumps(document))
    here = subprocess.run([*pytest_, "--fastci-plan=plan.json"], check=False, capture_output=True, text=True)
    assert (here.returncode, "ran 1 of 2 tests" in here.stdout) == (0, True)
    top = subprocess.run(
        [*pytest_, "--fastci-plan=pkg/plan.json", "tests"],
        cwd=repo.root, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (top.returncode, "ran 2 of 2 tests" in top.stdout) == (pytest.ExitCode.TESTS_FAILED, True)

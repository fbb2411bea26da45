"""Case 25 with suites that pytest really runs: ids that change, ids that look so, and what -n leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastci_ml.cli.app import main
from fastci_ml.features.log import FAILED, PASSED, RunLog, build_log
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.parameter_names import ParameterNames

# The case names a set, objects and lambdas; beside them ids by repr, a fixture, equal values, uuids, times,
# process ids, hashes of a salt, temporary paths. Names below `stable` look like them, and stay.
SUITE = """
import os, pathlib, tempfile, time, uuid
import pytest

class C:
    def __init__(self, v): self.v = v

class Named(C):
    def __repr__(self): return f"Named({self.v})"

@pytest.mark.parametrize("obj", [C(0), 1, 2, C(3)])
def test_objects(obj): assert not isinstance(obj, C) or obj.v != 3

@pytest.mark.parametrize("f", [lambda: 1, lambda: 2])
def test_lambdas(f): assert f() == 1

@pytest.mark.parametrize("x", {C(i) for i in range(4)})
def test_set_of_objects(x): pass

@pytest.mark.parametrize("x", [1, 1, 2])
def test_equal(x): pass

@pytest.fixture(params=[C(0), C(1)])
def model(request): return request.param

def test_fixture(model): pass

@pytest.mark.parametrize("x", [C(0), C(1)], ids=repr)
def test_repr(x): pass

@pytest.mark.parametrize("x", [uuid.uuid4()], ids=str)
def test_uuid(x): pass

@pytest.mark.parametrize("x", [time.time_ns(), os.getpid()])
def test_time_and_pid(x): pass

@pytest.mark.parametrize("x", [hash("salted"), None])
def test_hash(x): pass

@pytest.mark.parametrize("x", [tempfile.mkdtemp()])
def test_path(x): pathlib.Path(x).rmdir()

@pytest.mark.parametrize("x", {"a", "b", "c", "d", "e", "f"})
def test_stable_set(x): pass

@pytest.mark.parametrize("x", [Named(0), Named(1)], ids=repr)
def test_stable_repr(x): pass

@pytest.mark.parametrize("layer", ["layer0", "layer1", "layer2"])
def test_stable_names(layer): pass

@pytest.mark.parametrize("stage", range(4), ids=lambda stage: f"stage{stage}")
def test_stable_format(stage): pass

@pytest.mark.parametrize(("n", "obj"), [(1, C(0)), (2, C(1))])
def test_stable_beside_an_object(n, obj): pass
"""
POSITION = {"objects", "lambdas", "set_of_objects", "equal", "fixture"}
TURNOVER = {"uuid", "time_and_pid", "hash", "path"}
QUICK = ("-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio")


def run_pytest(root: Path, *arguments: str, seed: str = "random") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-m", "pytest", *QUICK, *arguments]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite, four runs of it, and their history."""
    root = tmp_path_factory.mktemp("suite")
    (root / "tests").mkdir()
    (root / "tests" / "test_a.py").write_text(SUITE, encoding="utf-8")
    (root / "pyproject.toml").write_text('[tool.fastci]\nlane = "cpu"\n', encoding="utf-8")
    before = Path.cwd()
    os.chdir(root)
    try:
        for run in range(4):
            done = run_pytest(root, f"--junitxml=r{run}.xml", seed=str(run))
            assert done.returncode == 1, done.stdout
            assert main(["ingest", f"r{run}.xml", "--run-id", f"r{run}"]) == 0
    finally:
        os.chdir(before)
    return root


@pytest.fixture
def log(root: Path) -> RunLog:
    return build_log(HistoryStore(root / ".fastci" / "history"), root=root)


def names(log: RunLog, kind: str) -> set[str]:
    prefix = "tests/test_a.py::test_"
    return {function.removeprefix(prefix) for function, found in log.unstable.items() if found == kind}


def test_unstable_ids_of_a_real_suite_are_told_by_their_kind(log: RunLog) -> None:
    assert names(log, "address") == {"repr"}
    assert names(log, "position") == POSITION
    assert names(log, "turnover") == TURNOVER


def test_their_history_is_kept_under_their_function(log: RunLog) -> None:
    by_id = {
        node_id.removeprefix("tests/test_a.py::test_"): code for code, node_id in enumerate(log.node_ids)
    }
    joined = {name for name in by_id if "[" not in name}
    assert joined == {"repr"} | POSITION | TURNOVER
    # Each ran once a run, and a failing one among passing ones is no flaky one.
    for name, verdict in (("objects", FAILED), ("lambdas", FAILED), ("fixture", PASSED), ("uuid", PASSED)):
        rows = log.tests == by_id[name]
        assert log.verdicts[rows].tolist() == [verdict] * 4
    assert {"stable_set[a]", "stable_names[layer0]", "stable_beside_an_object[1-obj0]"} <= by_id.keys()


def test_status_warns_of_them_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    listing = run_pytest(root, "--collect-only")
    Path("collected.txt").write_text(listing.stdout, encoding="utf-8")
    assert main(["status", "--collected", "collected.txt"]) == 0
    out, err = capsys.readouterr()
    assert err.count("10 test functions have parameter ids that change between runs") == 1
    assert "1 address, 5 position, 4 turnover" in err
    # No uuid of today ran before, and yet each test has a history.
    assert "collected tests with history  100.0%" in out
    assert main(["status", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["unstable"]) == 10


def test_workers_that_collected_otherwise_leave_no_test_behind(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """pytest-xdist refuses to run; what it writes then is an error a worker, of no test."""
    done = run_pytest(root, "-n", "3", f"--junitxml={tmp_path}/x.xml")
    assert "Different tests were collected" in done.stdout
    monkeypatch.chdir(root)
    history = str(tmp_path / "history")
    assert main(["ingest", f"{tmp_path}/x.xml", "--run-id", "x", "--history", history]) == 0
    log = build_log(HistoryStore(Path(history)))
    assert all("::" not in node_id for node_id in log.node_ids)
    assert not (log.verdicts == FAILED).any()
    assert not (log.verdicts == PASSED).any()


def test_file_of_a_test_tells_who_named_its_parameters(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "conftest.py").write_text("@pytest.fixture(params=[A(), A()])\ndef engine(): ...\n")
    (tmp_path / "t" / "a.py").write_text('def f(x): ...\nIDS = ["v0", "v1"]\nOTHER = "stage" + str(i)\n')
    ask = ParameterNames(tmp_path)
    assert ask("t/a.py::f", "x", ("x0", "x1")) is True
    assert ask("t/a.py::f", "engine", ("engine0", "engine1")) is True
    assert ask("t/a.py::f", "v", ("v0", "v1")) is False
    assert ask("t/a.py::f", "stage", ("stage0",)) is False
    assert ask("t/a.py::f", "elsewhere", ("elsewhere0", "elsewhere1")) is False
    for unknown in (
        "t/a.py::inherited",
        "t/gone.py::f",
        "../a.py::f",
        "/etc/passwd::f",
        "t/\0.py::f",
        "t::f",
    ):
        assert ask(unknown, "x", ("x0", "x1")) is None

"""`fastci-ml record`: the command of the user, with recording on and nothing else changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fastci_ml.cli import app
from fastci_ml.evidence.bundle.reader import find_bundles, read_bundle
from fastci_ml.evidence.seal_key import SealKey
from fastci_ml.evidence.seals import find_seals, read_seal
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.execution.recorded_command import is_pytest_command, run_recorded

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
CI_NAMES = ("FASTCI_EVIDENCE_KEY", "GITHUB_EVENT_NAME", "CI_MERGE_REQUEST_IID", "CHANGE_ID")
KEY = "0123456789abcdef of trunk"
QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@pytest.fixture
def project(make_repo, monkeypatch) -> Path:
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "FASTCI_RECORD", "FASTCI_LANE", *CI_NAMES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FASTCI_SCOPE", "trunk")
    repo = make_repo()
    repo.write("fastci.toml", "")
    repo.write("mod.py", "def f():\n    return 1\n")
    repo.write("test_a.py", "import mod\n\ndef test_x():\n    assert mod.f() == 1\n")
    repo.write("test_b.py", "import mod\n\ndef test_y():\n    assert mod.f() == 2\n")
    repo.write(".gitignore", "__pycache__\n.fastci\n")
    repo.commit()
    monkeypatch.chdir(repo.root)
    return repo.root


def start(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastci_ml", "record", *words],
        env={**os.environ, **QUICK, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(("tests", "code"), [("test_a.py", 0), ("test_b.py", 1), ("nowhere.py", 4)])
def test_exit_code_is_that_of_the_command(project, tests, code):
    done = start("--", *PYTEST, tests)
    assert done.returncode == code
    bundle = read_bundle(next(iter(find_bundles([project / ".fastci" / "bundles"]))))
    assert bundle.gaps == []


def test_output_is_that_of_the_command_and_ours_goes_to_stderr(project):
    done = start("--", *PYTEST, "test_a.py")
    assert "1 passed" in done.stdout
    assert "fastci-ml: recorded to" not in done.stdout
    assert "fastci-ml: recorded to" in done.stderr
    assert "fastci-ml merge" in done.stderr


def test_folder_and_lane_are_those_that_were_given(project, tmp_path):
    done = start("--bundles", str(tmp_path / "out"), "--lane", "gpu-a", "--", *PYTEST, "test_a.py")
    assert done.returncode == 0
    (path,) = find_bundles([tmp_path / "out"])
    assert read_bundle(path).provenance.lane == "gpu-a"
    assert not (project / ".fastci").exists()


def test_merge_follows_and_leaves_the_exit_code(project):
    done = start("--merge", "--", *PYTEST)
    assert done.returncode == 1
    assert "1 merged: 2 tests recorded, 1 of them complete" in done.stderr
    with EvidenceStore.open(project / ".fastci" / "evidence.sqlite", read_only=True) as store:
        assert {head.node_id for head in store.records()} == {"test_a.py::test_x", "test_b.py::test_y"}


def test_merge_that_fails_is_said_and_leaves_the_exit_code(project):
    (project / ".fastci").mkdir()
    (project / ".fastci" / "evidence.sqlite").write_text("no database")
    done = start("--merge", "--", *PYTEST, "test_a.py")
    assert done.returncode == 0
    assert "fastci-ml: not merged: " in done.stderr
    assert (project / ".fastci" / "evidence.sqlite").read_text() == "no database"


def test_lane_that_the_settings_contradict_is_refused(project):
    (project / "fastci.toml").write_text('lane = "one"\n')
    done = start("--lane", "two", "--", *PYTEST)
    assert done.returncode == 2
    assert "the settings of" in done.stderr


def test_words_behind_a_second_pair_of_dashes_are_kept(project):
    done = start("--", *PYTEST, "--", "test_a.py")
    assert done.returncode == 0
    assert "1 passed" in done.stdout


def test_without_the_plugin_it_is_said_that_nothing_was_recorded(project):
    done = start("--", *PYTEST, "-p", "no:fastci", "test_a.py", PYTEST_DISABLE_PLUGIN_AUTOLOAD="")
    assert done.returncode == 0
    assert "nothing was recorded to" in done.stderr
    assert "fastci-ml doctor" in done.stderr


@pytest.mark.parametrize("name", ["fastci", "fastci_ml.execution.plugin"])
def test_plugin_that_is_named_is_not_loaded_twice(project, name):
    (project / "pytest.ini").write_text(f"[pytest]\naddopts = -p {name}\n")
    done = start("--", *PYTEST, "test_a.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(find_bundles([project / ".fastci" / "bundles"])) == 1


def test_workers_of_xdist_record_a_bundle_each(project):
    pytest.importorskip("xdist")
    done = start("--merge", "--", *PYTEST, "-p", "xdist", "-n2")
    assert done.returncode == 1
    assert len(find_bundles([project / ".fastci" / "bundles"])) == 2
    assert "2 tests recorded" in done.stderr


def test_signal_that_ends_the_command_gives_the_code_that_a_shell_gives(project):
    (project / "test_c.py").write_text(
        "import os, signal\n\ndef test_z():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert start("--", *PYTEST, "test_c.py").returncode == 128 + signal.SIGKILL


LOOK_FOR_KEY = """
import os

def test_look():
    print("environ:", sorted(os.environ.items()))
    parent = os.getppid()
    for name in ("environ", "cmdline"):
        try:
            with open(f"/proc/{parent}/{name}", "rb") as file:
                print(name, file.read())
        except OSError as error:
            print(name, "cannot be read", type(error).__name__)
"""


def test_bundles_are_sealed_and_no_test_sees_the_key(project):
    (project / "test_look.py").write_text(LOOK_FOR_KEY)
    done = start("-v", "--merge", "--", *PYTEST, "-s", "test_look.py", FASTCI_EVIDENCE_KEY=KEY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "environ: [" in done.stdout
    assert KEY not in done.stdout + done.stderr
    assert "FASTCI_EVIDENCE_KEY'" not in done.stdout
    (path,) = find_seals([project / ".fastci" / "bundles"])
    (bundle,) = find_bundles([path.parent])
    seal = read_seal(path)
    assert seal.digests == (read_bundle(bundle).digest,)
    assert SealKey(KEY.encode()).fits(seal.digests, seal.signature)
    with EvidenceStore.open(project / ".fastci" / "evidence.sqlite", read_only=True) as store:
        assert {head.scope for head in store.records()} == {"trunk"}
    for file in (project / ".fastci").rglob("*"):
        assert file.is_dir() or KEY.encode() not in file.read_bytes(), file


def test_command_of_a_library_call_does_not_get_the_key_either(project, monkeypatch, capfd):
    monkeypatch.setenv("FASTCI_EVIDENCE_KEY", KEY)
    (project / "test_look.py").write_text(
        "import os\n\ndef test_look():\n    assert 'FASTCI_EVIDENCE_KEY' not in os.environ\n"
    )
    recorded = run_recorded([*PYTEST, "test_look.py"], project / "out")
    assert recorded.code == 0, capfd.readouterr().out


def test_a_seal_is_of_the_bundles_of_one_run(project):
    for _ in range(2):
        start("--", *PYTEST, "test_a.py", FASTCI_EVIDENCE_KEY=KEY)
    first, second = map(read_seal, find_seals([project / ".fastci" / "bundles"]))
    assert len(first.digests) == len(second.digests) == 1
    assert first.digests != second.digests


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"FASTCI_EVIDENCE_KEY": ""}, "FASTCI_EVIDENCE_KEY is empty"),
        (
            {
                "FASTCI_EVIDENCE_KEY": KEY,
                "GITHUB_EVENT_NAME": "pull_request",
                "GITHUB_REF": "refs/pull/7/merge",
            },
            "this is the code of a pull request (pr:7)",
        ),
    ],
)
def test_what_must_not_be_sealed_is_not_and_the_exit_code_stays(project, environment, why):
    done = start("--", *PYTEST, **environment)
    assert done.returncode == 1
    assert f"fastci-ml: not sealed: {why}" in done.stderr
    assert find_seals([project / ".fastci"]) == []


def test_short_key_is_refused_before_anything_runs(project):
    done = start("--", *PYTEST, FASTCI_EVIDENCE_KEY="short one")
    assert done.returncode == 2
    assert "short one" not in done.stdout + done.stderr
    assert not (project / ".fastci").exists()


def test_a_bundle_says_which_job_recorded_it(project):
    start("--", *PYTEST, "test_a.py", FASTCI_JOB="nightly/gpu")
    (path,) = find_bundles([project / ".fastci" / "bundles"])
    assert read_bundle(path).provenance.job == "nightly/gpu"


def test_artifacts_of_two_machines_are_merged_in_one_go_and_lanes_stay_apart(project, tmp_path, monkeypatch):
    for name in ("one", "two"):
        text = "def make():\n    return [1]\n\nTABLE = make()\n\ndef f():\n    return TABLE[0]\n"
        (project / f"{name}.py").write_text(text)
    (project / "mod.py").write_text(
        "import importlib, os\n\nf = importlib.import_module(os.environ['MACHINE']).f\n"
    )
    for name in ("one", "two"):
        done = start("--", *PYTEST, "test_a.py", MACHINE=name, FASTCI_LANE=name, FASTCI_EVIDENCE_KEY=KEY)
        assert done.returncode == 0, done.stdout
        with zipfile.ZipFile(tmp_path / f"evidence-{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for file in (project / ".fastci" / "bundles").iterdir():
                archive.write(file, f"bundles/{file.name}")
        shutil.rmtree(project / ".fastci")
    monkeypatch.setenv("FASTCI_EVIDENCE_KEY", KEY)
    assert app.main(["merge", *map(str, sorted(tmp_path.glob("evidence-*.zip")))]) == 0
    with EvidenceStore.open(project / ".fastci" / "evidence.sqlite", read_only=True) as store:
        assert {(head.lane, head.scope, head.gaps) for head in store.records()} == {
            ("one", "trunk", ()),
            ("two", "trunk", ()),
        }
        for lane, other in (("one", "two"), ("two", "one")):
            record = store.record("test_a.py::test_x", lane=lane, scope="trunk")
            assert record is not None
            paths = {unit.path for unit in record.units}
            assert f"{lane}.py" in paths
            assert f"{other}.py" not in paths
            assert ("mod.py", f"{lane}.py") in store.edges(lane)
            assert f"{other}.py" not in {path for edge in store.edges(lane) for path in edge}
            units = store.import_units(lane)
            assert f"{lane}.py" in {path for path, _ in units}
            assert f"{other}.py" not in {path for path, _ in units} | {unit.path for _, unit in units}


@pytest.mark.parametrize(
    "words", [["make", "test"], ["torchrun", "train.py"], ["python", "train.py", "pytest"]]
)
def test_command_that_is_not_pytest_is_refused(project, capsys, words):
    assert app.main(["record", "--", *words]) == 2
    shown = capsys.readouterr().err
    assert "does not run pytest by name" in shown
    assert "hint: fastci-ml record -- python -m pytest tests" in shown


def test_no_command_at_all_is_a_usage_error(project, capsys):
    assert app.main(["record"]) == 2
    assert "no command: does not run pytest" in capsys.readouterr().err


def test_program_that_is_not_there_is_a_usage_error(project, capsys):
    assert app.main(["record", "--", "/nowhere/pytest"]) == 2
    assert "/nowhere/pytest: cannot be started" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "pytest", "py.test -q", "/opt/venv/bin/pytest tests", "python -m pytest",
        "python3.12 -X dev -m pytest -n4", "uv run pytest", "poetry run python -m pytest",
        "xvfb-run -a pytest", "timeout 600 pytest -q",
        "coverage run -m pytest", "env A=1 pytest",
    ],
)  # fmt: skip
def test_ways_to_run_pytest_are_known(command):
    assert is_pytest_command(command.split())


@pytest.mark.parametrize(
    "command",
    ["", "make pytests", "python -m unittest", "python -m mypkg pytest", "python run.py pytest", "tox"],
)
def test_other_commands_are_told_apart(command):
    assert not is_pytest_command(command.split())

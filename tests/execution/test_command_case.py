"""`fastci-ml record --id`: a command that is no pytest, as one test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import EvidenceRecord
from fastci_ml.records.evidence_kinds import Gap

TRAIN = """
import os, sys
import model

if "RANK" in os.environ:
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert int(total) == 2
    dist.destroy_process_group()
model.trains(open("config.txt").read())
print("FASTCI" in "".join(os.environ))
"""
MODEL = """
def trains(text):
    return text

def unused():
    return 1
"""


@pytest.fixture
def project(make_repo, monkeypatch) -> Path:
    for name in ("FASTCI_RECORD", "FASTCI_LANE", "FASTCI_EVIDENCE_KEY", "PYTEST_CURRENT_TEST"):
        monkeypatch.delenv(name, raising=False)
    repo = make_repo()
    repo.write("fastci.toml", 'children_trusted = ["sh trusted.sh"]\n')
    repo.write("train.py", TRAIN)
    repo.write("model.py", MODEL)
    repo.write("config.txt", "1")
    repo.write("trusted.sh", f"'{sys.executable}' train.py\n")
    repo.write("other.sh", f"'{sys.executable}' train.py\n")
    repo.write(".gitignore", "__pycache__\n.fastci\n")
    repo.commit()
    return repo.root


def record(project: Path, *words: str, test_id: str = "smoke/one") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastci_ml", "record", "--merge", "--id", test_id, "--", *words],
        cwd=project,
        env={**os.environ, "FASTCI_SCOPE": "trunk"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def stored(project: Path, test_id: str = "smoke/one") -> EvidenceRecord:
    with EvidenceStore.open(project / ".fastci" / "evidence.sqlite", read_only=True) as store:
        (found,) = store.records_of(test_id)
    return found


def units(found: EvidenceRecord) -> set[str]:
    return {unit.name for unit in found.units if unit.path == "model.py"}


def test_python_program_is_one_complete_test(project):
    done = record(project, sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    # The name of the test is all that the program can see of us.
    assert done.stdout == "True\n"
    found = stored(project)
    assert found.gaps == ()
    assert units(found) == {"trains"}
    assert "config.txt" in {seen.path for seen in found.reads}
    assert "train.py" in found.roots
    assert found.facts.outcome == "passed"
    assert found.facts.call_s is not None
    assert found.facts.cpu_s is not None
    assert "1 tests recorded, 1 of them complete" in done.stderr
    assert "with 1 processes that they started" in done.stderr


def test_ranks_of_torchrun_are_one_test(project):
    pytest.importorskip("torch")
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py")
    done = record(project, sys.executable, *words)
    assert done.returncode == 0, done.stderr
    found = stored(project)
    assert found.gaps == ()
    assert units(found) == {"trains"}
    assert [text.partition(", ")[2] for text in found.facts.processes[-2:]] == ["rank 0 of 2", "rank 1 of 2"]


def test_exit_code_is_that_of_the_command_and_says_how_the_test_ended(project):
    (project / "train.py").write_text("import model, sys\nmodel.trains(1)\nsys.exit(7)\n")
    assert record(project, sys.executable, "train.py").returncode == 7
    found = stored(project)
    assert found.facts.outcome == "failed"
    assert {gap for gap, _ in found.gaps} == {Gap.DID_NOT_PASS}


def test_shell_is_not_known_to_start_what_records_unless_it_is_trusted(project):
    assert record(project, "sh", "other.sh").returncode == 0
    found = stored(project)
    assert units(found) == {"trains"}
    assert {gap for gap, _ in found.gaps} == {Gap.CHILD_WITHOUT_RECORD}
    assert record(project, "sh", "trusted.sh", test_id="smoke/two").returncode == 0
    found = stored(project, "smoke/two")
    assert units(found) == {"trains"}
    assert found.gaps == ()


def test_shell_that_becomes_python_is_no_proof_of_what_ran_before(project):
    script = f"'{sys.executable}' -S -c pass; exec '{sys.executable}' train.py"
    assert record(project, "sh", "-c", script).returncode == 0
    found = stored(project)
    assert units(found) == {"trains"}
    assert {gap for gap, _ in found.gaps} == {Gap.CHILD_WITHOUT_RECORD}


def test_command_of_which_no_process_records_is_not_complete(project):
    assert record(project, "true").returncode == 0
    assert {gap for gap, _ in stored(project).gaps} == {Gap.OWN_UNIT_MISSING}
    assert record(project, sys.executable, "-S", "-c", "pass", test_id="smoke/two").returncode == 0
    assert Gap.CHILD_WITHOUT_RECORD in {gap for gap, _ in stored(project, "smoke/two").gaps}


def test_killed_command_is_not_complete(project):
    (project / "train.py").write_text("import model, os\nmodel.trains(1)\nos.kill(os.getpid(), 9)\n")
    assert record(project, sys.executable, "train.py").returncode == 137
    assert Gap.NO_END_MARK in {gap for gap, _ in stored(project).gaps}


def test_pytest_below_a_command_is_a_part_of_it(project):
    (project / "test_it.py").write_text("import model\n\ndef test_it():\n    model.trains(1)\n")
    assert record(project, sys.executable, "-m", "pytest", "-q", "test_it.py").returncode == 0
    found = stored(project)
    assert found.gaps == ()
    assert units(found) == {"trains"}
    assert "test_it.py" in {unit.path for unit in found.units}


@pytest.mark.parametrize("test_id", ["", " ", "a\nb", "x" * 2000])
def test_name_that_is_none_is_refused(project, test_id):
    done = record(project, "true", test_id=test_id)
    assert done.returncode == 2
    assert "--id" in done.stderr
    assert not (project / ".fastci" / "bundles").exists()


def test_command_that_cannot_be_started_is_refused_and_leaves_nothing(project):
    done = record(project, "no-such-program-anywhere")
    assert done.returncode == 2
    assert "cannot be started" in done.stderr
    assert not list((project / ".fastci" / "bundles").glob("*.fastci-bundle"))

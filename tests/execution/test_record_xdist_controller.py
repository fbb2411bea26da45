"""What conftest files start in the controller of pytest-xdist may serve the tests of its workers."""

from __future__ import annotations

import pytest
import recorded_runs

from fastci_ml.records.evidence_kinds import Gap

pytest.importorskip("xdist")

CONFTEST = """
import subprocess, sys

def pytest_configure(config):
    if not hasattr(config, "workerinput") and START:
        config.served = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

def pytest_unconfigure(config):
    if hasattr(config, "served"):
        config.served.communicate(b"done")
"""


@pytest.mark.parametrize("does_start", [True, False])
def test_server_of_the_controller(tmp_path, does_start):
    root = recorded_runs.make_subject(tmp_path / "repo", recorded_runs.SUBJECT.parent / "children_subject")
    (root / "conftest.py").write_text(CONFTEST.replace("START", str(does_start)))
    run = recorded_runs.record(root, "-q", "-n", "2", "checks_children.py::check_direct")
    assert run.status == 0, run.output
    gaps = run.gaps("checks_children.py::check_direct")
    assert gaps == ({Gap.CHILD_WITHOUT_RECORD} if does_start else set())

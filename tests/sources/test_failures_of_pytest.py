"""Failures as real pytest, its plugins and real processes write them get the class that they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastci_ml.sources.junit.reader import read_junit
from fastci_ml.sources.reportlog import read_reportlog
from fastci_ml.sources.reports import CLASSES, Report

MODULE = """
import concurrent.futures, multiprocessing, os, signal, socket, subprocess, sys, time
import pytest

@pytest.fixture
def broken():
    raise KeyError("fixture")

@pytest.fixture
def full():
    test_full_disk()

def test_assert_that_quotes():
    assert "No space left on device" in ""

def test_fail_that_quotes():
    pytest.fail("the worker's log: Segmentation fault (core dumped)")

def test_raises_that_quotes():
    with pytest.raises(OSError, match="No space left on device"):
        pass

def test_other_error_than_the_one_quoted():
    with pytest.raises(OSError, match="No space left on device"):
        raise RuntimeError("something else")

def test_value_error_that_quotes():
    raise ValueError("cannot parse 'OSError: [Errno 28] No space left on device'")

def test_set_up(broken):
    pass

def test_set_up_on_a_full_disk(full):
    pass

def test_import():
    import no_such_module_at_all

def test_refused():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    socket.create_connection(address)

def test_child_exits():
    subprocess.run([sys.executable, "-c", "raise SystemExit(3)"], check=True)

def test_child_ended():
    subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"], check=True)

def test_child_killed():
    subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], check=True)

def test_child_aborts():
    subprocess.run([sys.executable, "-c", "import os; os.abort()"], check=True)

def test_shell_child_aborts():
    subprocess.run(["sh", "-c", sys.executable + " -c 'import os; os.abort()'; exit $?"], check=True)

def test_child_too_slow():
    subprocess.run([sys.executable, "-c", "import time; time.sleep(9)"], check=True, timeout=0.2)

def test_pool_dies():
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(os.abort).result()

@pytest.mark.timeout(0.2)
def test_too_slow():
    time.sleep(9)

@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_full_disk():
    with open("/dev/full", "w") as file:
        file.write("x" * 100_000)
"""
EXPECTED = {
    "test_assert_that_quotes": ("test", "assertion"),
    "test_fail_that_quotes": ("test", "assertion"),
    "test_raises_that_quotes": ("test", "assertion"),
    "test_other_error_than_the_one_quoted": ("test", ""),
    "test_value_error_that_quotes": ("test", "program-error"),
    "test_set_up": ("setup", "setup"),
    "test_set_up_on_a_full_disk": ("infrastructure", "disk-full"),
    "test_import": ("test", "program-error"),
    "test_refused": ("test", ""),
    "test_child_exits": ("test", "child-failed"),
    "test_child_ended": ("test", "child-failed"),
    "test_child_killed": ("crash", "killed"),
    "test_child_aborts": ("crash", "killed-by-signal"),
    "test_shell_child_aborts": ("crash", "killed-by-signal"),
    "test_child_too_slow": ("timeout", "process-timeout"),
    "test_pool_dies": ("crash", "worker-crashed"),
    "test_too_slow": ("timeout", "test-timeout"),
    "test_full_disk": ("infrastructure", "disk-full"),
}


def run_pytest(folder: Path, *options: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTEST_ADDOPTS", "PYTHONWARNINGS")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", *options]
    subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, timeout=180)


def found_in(report: Report) -> dict[str, tuple[str, str]]:
    ids = report.node_ids.to_pylist()
    return {
        node_id.rpartition("::")[2]: (CLASSES[report.classes[row]].value, report.rules.get(row, ""))
        for row, node_id in enumerate(ids)
    }


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_real_failures_get_their_class_in_both_kinds_of_report(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(MODULE)
    (tmp_path / "test_torn.py").write_text("import no_such_module_at_all\n")
    run_pytest(tmp_path, "--continue-on-collection-errors", "--junitxml=j.xml", "--report-log=log.json")
    for found in (found_in(read_junit(tmp_path / "j.xml")), found_in(read_reportlog(tmp_path / "log.json"))):
        others = [found.pop(name)[0] for name in set(found) - set(EXPECTED)]
        assert found == EXPECTED
        # A module that fails to import is the change's fault more often than not.
        assert others == ["test"]


def test_workers_that_died_are_crashes(tmp_path: Path) -> None:
    # case 30: what xdist writes for a worker that died looks like an error of set-up. Two more ways to die: a
    # bad access, and pytest-timeout's thread, which ends the process.
    (tmp_path / "test_it.py").write_text(
        "import os, ctypes, time, pytest\n"
        "def test_exits(): os._exit(1)\n"
        "def test_bad_access(): ctypes.string_at(0)\n"
        "@pytest.mark.timeout(0.3, method='thread')\ndef test_too_slow(): time.sleep(9)\n"
    )
    run_pytest(tmp_path, "-n", "1", "--junitxml=j.xml", "--report-log=log.json")
    crash = ("crash", "worker-crashed")
    expected = {"test_exits": crash, "test_bad_access": crash, "test_too_slow": crash}
    assert found_in(read_junit(tmp_path / "j.xml")) == expected
    assert found_in(read_reportlog(tmp_path / "log.json")) == expected

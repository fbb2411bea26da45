"""Recording beside coverage, a profiler and a debugger: each sees what it would see alone, and so do we."""

from __future__ import annotations

import importlib.util
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from interpreters import find_python
from recorded_runs import pure_packages
from same_runs import run, steady

from fastci_ml.evidence.bundle.reader import find_bundles, read_bundle
from fastci_ml.records.evidence_kinds import CaptureKind

LIB = """
def add(a, b):
    if a > 100:
        return -1
    return a + b


def scale(x):
    return 2 * x


def numbers(n):
    for i in range(n):
        yield add(i, 1)
"""
TESTS = """
import threading

import lib


def test_add():
    assert lib.add(1, 1) == 2


def test_scale():
    assert lib.scale(2) == 4


def test_numbers():
    assert list(lib.numbers(3)) == [1, 2, 3]


def test_thread():
    thread = threading.Thread(target=lib.scale, args=(1,))
    thread.start()
    thread.join()


def test_add_again():
    assert lib.add(200, 1) == -1
"""
ENTERED = {
    "test_add": {"test_add", "add"},
    "test_scale": {"test_scale", "scale"},
    "test_numbers": {"test_numbers", "numbers", "add"},
    "test_thread": {"test_thread", "scale"},
    "test_add_again": {"test_add_again", "add"},
}


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "lib.py").write_text(LIB)
    (folder / "test_lib.py").write_text(TESTS)
    (folder / "fastci.toml").write_text("")
    (folder / ".gitignore").write_text("*.cover\n.fastci/\n")
    author = ["-c", "user.email=a@example.com", "-c", "user.name=a"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*author, "commit", "-q", "-m", "suite"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def entered(root: Path) -> dict[str, set[str]]:
    """Names that each test entered by our record, which has to be whole."""
    (bundle,) = [read_bundle(path) for path in find_bundles([root / ".fastci" / "bundles"])]
    assert bundle.gaps == []
    tests = [capture for capture in bundle.captures.values() if capture.kind is CaptureKind.TEST]
    assert {capture.label: capture.gaps for capture in tests if capture.gaps} == {}
    return {
        capture.label.rpartition("::")[2]: {bundle.codes[code].name for code in capture.codes}
        for capture in tests
    }


def covered(path: Path) -> dict[tuple[str, str], bytes]:
    """What coverage wrote down: bit sets of lines, by file and context."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(
            "select file.path, context.context, line_bits.numbits from line_bits "
            "join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id"
        ).fetchall()
    finally:
        connection.close()
    return {(Path(name).name, context): bits for name, context, bits in rows}


@pytest.mark.skipif(importlib.util.find_spec("pytest_cov") is None, reason="pytest-cov is not installed")
@pytest.mark.parametrize("core", ["ctrace", "pytrace"])
def test_contexts_of_coverage_are_those_without_us(root, core):
    data = []
    for is_recorded in (False, True):
        file = root / f"{is_recorded}.cover"
        done = run(
            root,
            ("-q", "--cov=lib", "--cov-context=test", "--cov-report="),
            is_recorded=is_recorded,
            COVERAGE_FILE=str(file),
            COVERAGE_CORE=core,
        )
        assert done.status == 0, done.output
        data.append(covered(file))
    plain, recorded = data
    assert recorded == plain
    assert ("lib.py", "test_lib.py::test_add_again|run") in plain
    assert entered(root) == ENTERED


PROGRAM = """
import sys

import coverage
import pytest

measured = coverage.Coverage(data_file=sys.argv[1], include=["*/lib.py"], config_file=False)
measured.start()
code = pytest.main(sys.argv[2:])
measured.stop()
measured.save()
sys.exit(code)
"""


@pytest.mark.skipif(importlib.util.find_spec("coverage") is None, reason="coverage is not installed")
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_lines_of_coverages_monitoring_core_are_those_without_us(root, tmp_path, version):
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    packages = pure_packages(tmp_path / "packages")
    # Its core for `sys.monitoring` is Python; the compiled one is for another interpreter and is not found.
    (packages / "coverage").symlink_to(Path(importlib.util.find_spec("coverage").origin).parent)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    data = []
    for is_recorded in (False, True):
        file = root / f"{is_recorded}.cover"
        done = run(
            root,
            ("-q",),
            is_recorded=is_recorded,
            python=python,
            path=[packages],
            program=(str(program), str(file)),
            COVERAGE_CORE="sysmon",
        )
        assert done.status == 0, done.output
        data.append(covered(file))
    plain, recorded = data
    assert recorded == plain
    # All lines but none that no test ran: the definitions, and the bodies that were entered.
    ((_, bits),) = plain.items()
    lines = {8 * place + bit for place, byte in enumerate(bits) for bit in range(8) if byte >> bit & 1}
    assert lines == {2, 3, 4, 5, 8, 9, 12, 13, 14}
    assert entered(root) == ENTERED


DEBUGGED = """
import bdb
import sys

import lib


class Steps(bdb.Bdb):
    def __init__(self):
        super().__init__()
        self.lines = []

    def user_line(self, frame):
        if frame.f_code.co_filename == lib.__file__:
            self.lines.append(frame.f_lineno)
        self.set_step()


def test_debugger_steps_through():
    steps = Steps()
    assert steps.runcall(lib.add, 1, 2) == 3
    sys.settrace(None)
    assert steps.lines == [3, 5]


def test_after_it():
    assert lib.scale(1) == 2
"""


def test_debugger_steps_as_without_us(root):
    (root / "test_lib.py").write_text(DEBUGGED)
    plain = run(root, ("-v",), is_recorded=False)
    recorded = run(root, ("-v",), is_recorded=True)
    assert plain.status == 0
    assert recorded == plain
    found = entered(root)
    assert "add" in found["test_debugger_steps_through"]
    assert found["test_after_it"] == {"test_after_it", "scale"}


@pytest.mark.parametrize("arguments", [("--pdb",), ("--trace",)])
def test_pdb_of_pytest_works(root, arguments):
    (root / "test_lib.py").write_text("import lib\n\ndef test_add():\n    assert lib.add(1, 1) == 3\n")
    shown = []
    for is_recorded in (False, True):
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        words += ["--fastci-record"] if is_recorded else []
        done = subprocess.run(
            words, cwd=root, input="p lib.add(2, 2)\nc\n", capture_output=True, text=True, check=False
        )
        shown.append(steady(done.stdout))
        assert "(Pdb) 4" in done.stdout
    plain, recorded = shown
    assert recorded == plain


PROFILED = """
import sys
import lib


def test_all_tool_ids_are_taken():
    assert sum(sys.monitoring.get_tool(n) is not None for n in range(6)) == 6


def test_add():
    assert lib.add(1, 1) == 2
"""


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_record_is_whole_where_others_hold_all_tool_ids(root, tmp_path, version):
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    (root / "test_lib.py").write_text(PROFILED)
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, pytest\nfor n in range(6): sys.monitoring.use_tool_id(n, f'other {n}')\n"
        "sys.exit(pytest.main(sys.argv[1:]))\n"
    )
    packages = pure_packages(tmp_path / "packages")
    done = run(root, ("-q",), is_recorded=True, python=python, path=[packages], program=(str(program),))
    assert done.status == 0, done.output
    assert entered(root)["test_add"] == {"test_add", "add"}


def test_profiler_that_holds_the_hook_is_left_alone(root):
    if sys.version_info >= (3, 12):
        pytest.skip("profilers and the recorder have ids of their own")
    done = run(
        root,
        ("-q",),
        is_recorded=True,
        program=("-m", "cProfile", "-o", str(root / "x.cover"), "-m", "pytest"),
    )
    assert done.status == 0
    assert "nothing is recorded: the profile hook is taken" in done.output
    assert (root / "x.cover").stat().st_size > 1000
    assert not (root / ".fastci" / "bundles").exists()

"""Recording changes nothing: tests, what they print and how the process ends are as without it.

The suite beside this file asks the interpreter about itself, uses the hooks that a recorder needs, and puts
things in the place of what it calls. It is run plain and recorded, by each interpreter at hand.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from interpreters import RUNNING, VERSIONS, find_python
from recorded_runs import pure_packages
from same_runs import Seen, run

from fastci_ml.evidence.bundle.reader import find_bundles, read_bundle
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

SUITE = Path(__file__).parent / "unchanged"
AS_CHECKS = ("-o", "python_files=checks_*.py", "-o", "python_functions=check_*")


@pytest.fixture(scope="module", params=VERSIONS)
def interpreter(request, tmp_path_factory):
    """Options of `run` for one interpreter."""
    if request.param == RUNNING:
        return {}
    python = find_python(request.param)
    if python is None:
        pytest.skip(f"no Python {request.param} on this machine")
    return {"python": python, "path": [pure_packages(tmp_path_factory.mktemp("pure") / "packages")]}


def make_repository(root: Path, files: dict[str, str] | None = None) -> Path:
    if files is None:
        shutil.copytree(SUITE, root, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        root.mkdir(parents=True)
        for name, text in files.items():
            (root / name).write_text(text)
    (root / "fastci.toml").write_text("")
    author = ["-c", "user.email=a@example.com", "-c", "user.name=a"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*author, "commit", "-q", "-m", "suite"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    return root


def bundles(root: Path):
    return [read_bundle(path) for path in find_bundles([root / ".fastci" / "bundles"])]


def run_both(root: Path, arguments, **options) -> tuple[Seen, Seen]:
    plain = run(root, arguments, is_recorded=False, **options)
    recorded = run(root, arguments, is_recorded=True, **options)
    return plain, recorded


@pytest.fixture(scope="module")
def suite(interpreter, tmp_path_factory):
    """The suite, plain and recorded, with its warnings as errors."""
    root = make_repository(tmp_path_factory.mktemp("unchanged") / "repo")
    plain, recorded = run_both(root, ("-q", "-W", "error", "-rA", *AS_CHECKS), **interpreter)
    return root, plain, recorded


def test_every_test_ends_and_prints_as_without_recording(suite):
    _, plain, recorded = suite
    assert len(plain.tests) > 60
    differing = {
        name: (plain.tests.get(name), recorded.tests.get(name))
        for name in plain.tests.keys() | recorded.tests.keys()
        if plain.tests.get(name) != recorded.tests.get(name)
    }
    assert differing == {}


def test_suite_is_as_it_was_written(suite):
    # Were all tests to fail plain and recorded alike, the comparison would say little.
    _, plain, _ = suite
    failing = {
        name.rpartition("::")[2] for name, (word, _) in plain.tests.items() if word in ("failure", "error")
    }
    assert failing == {"check_fails", "check_raises", "check_error_at_teardown"}


def test_output_and_exit_code_are_the_same(suite):
    _, plain, recorded = suite
    assert recorded.output == plain.output
    assert recorded.status == plain.status == 1


def test_suite_was_recorded_to_its_end(suite):
    root, plain, _ = suite
    (bundle,) = [one for one in bundles(root) if not one.provenance.parent]
    assert bundle.gaps == []
    tests = {capture.label for capture in bundle.captures.values() if capture.kind is CaptureKind.TEST}
    assert len(tests) == len(plain.tests)
    broken = [
        (capture.label, detail)
        for capture in bundle.captures.values()
        for gap, detail in capture.gaps
        # At the recursion limit there is no room for anyone.
        if gap is Gap.RECORDER_FAILED and "recursion" not in capture.label and "recursion" not in detail
    ]
    assert broken == []


ENDINGS = {
    "os._exit": ("import os\ndef test_a(): pass\ndef test_b(): os._exit(3)\ndef test_c(): pass\n", 3),
    "SIGINT": (
        "import os, signal, time\n"
        "def test_a(): pass\n"
        "def test_b():\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(5)\n"
        "def test_c(): pass\n",
        2,
    ),
    "SIGKILL": (
        "import os, signal\ndef test_a(): pass\ndef test_b(): os.kill(os.getpid(), signal.SIGKILL)\n",
        -9,
    ),
    "SIGSEGV": (
        "import os, signal\ndef test_a(): pass\ndef test_b(): os.kill(os.getpid(), signal.SIGSEGV)\n",
        -11,
    ),
    "sys.exit": ("import sys\ndef test_a(): pass\ndef test_b(): sys.exit(4)\n", 1),
    "pytest.exit": ("import pytest\ndef test_a(): pass\ndef test_b(): pytest.exit('now', 9)\n", 9),
    "collection fails": ("import nothing_of_that_name\n", 2),
    "no tests": ("", 5),
    "error in a fixture": (
        "import pytest\n@pytest.fixture(scope='session')\ndef broken(): 1 / 0\n"
        "def test_a(broken): pass\ndef test_b(broken): pass\n",
        1,
    ),
    "print at the end": (
        "import atexit, sys\natexit.register(print, 'bye')\n"
        "class Late:\n    def __del__(self): print('gone')\n"
        "LATE = Late()\ndef test_a(): assert len(sys.argv) > 1\n",
        0,
    ),
    "threads that live on": (
        "import threading, time\n"
        "def test_a():\n    threading.Thread(target=time.sleep, args=(0.5,), name='long').start()\n"
        "def test_b(): assert 'long' in [t.name for t in threading.enumerate()]\n",
        0,
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_session_ends_as_without_recording(name, tmp_path):
    source, status = ENDINGS[name]
    root = make_repository(tmp_path / "repo", {"test_it.py": source})
    plain, recorded = run_both(root, ("-v", "-p", "no:faulthandler"))
    assert plain.status == status
    assert recorded == plain


@pytest.mark.parametrize("capture", ["fd", "sys", "no"])
def test_closed_standard_input_is_no_place_for_a_bundle(capture, tmp_path):
    source = (
        "import os\ndef test_a():\n    print(os.readlink('/proc/self/fd/0'))\n"
        if capture == "fd"
        else (
            "import os, pytest\ndef test_a(tmp_path):\n"
            "    with open(tmp_path / 'x', 'w') as stream:\n        print(stream.fileno())\n"
        )
    )
    root = make_repository(tmp_path / "repo", {"test_it.py": source})
    plain, recorded = run_both(
        root, ("-v", "-s" if capture == "no" else f"--capture={capture}"), close_stdin=True
    )
    assert plain.status == 0
    assert recorded == plain
    (bundle,) = bundles(root)
    assert bundle.gaps == []


def test_full_disk_is_no_failure(tmp_path):
    source = "import pytest\n@pytest.mark.parametrize('n', range(200))\ndef test_it(n): pass\n"
    root = make_repository(tmp_path / "repo", {"test_it.py": source})

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))

    plain, recorded = run_both(root, ("-q", "-o", "junit_logging=no"), prepare=limit)
    assert plain.status == recorded.status == 0
    assert {name: word for name, (word, _) in recorded.tests.items()} == {
        name: word for name, (word, _) in plain.tests.items()
    }
    (bundle,) = bundles(root)
    # What was written before is there, and nobody takes it for all.
    assert bundle.runs
    assert Gap.NO_END_MARK in {gap for gap, _ in bundle.gaps}


def test_folder_that_cannot_be_written_is_no_failure(tmp_path):
    root = make_repository(tmp_path / "repo", {"test_it.py": "def test_a(): pass\n"})
    (tmp_path / "taken").write_text("")
    plain = run(root, ("-q",), is_recorded=False)
    recorded = run(root, ("-q", f"--fastci-bundles={tmp_path / 'taken' / 'bundles'}"), is_recorded=True)
    assert (recorded.status, recorded.tests) == (plain.status, plain.tests) == (0, plain.tests)
    assert "nothing is recorded" in recorded.output


def test_descriptor_that_a_test_closes_is_never_written_to(tmp_path):
    source = (
        "import os\n"
        "def test_closes(tmp_path):\n"
        "    os.closerange(20, 1000)\n"
        "    for n in range(100):\n"
        "        handle = os.open('written', os.O_CREAT | os.O_WRONLY | os.O_APPEND)\n"
        "        if n == 0: os.write(handle, b'mine')\n"
        "    assert handle > 64\n"
        "def test_after(): pass\n"
        "def test_sees_its_own():\n"
        "    assert open('written').read() == 'mine'\n"
    )
    root = make_repository(tmp_path / "repo", {"test_it.py": source})
    plain = run(root, ("-q",), is_recorded=False)
    (root / "written").unlink()
    recorded = run(root, ("-q",), is_recorded=True)
    assert recorded.tests == plain.tests
    assert (root / "written").read_text() == "mine"
    (bundle,) = bundles(root)
    assert Gap.NO_END_MARK in {gap for gap, _ in bundle.gaps}

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

ALL = ["test_a.py::test_x", "test_a.py::test_y", "test_b.py::test_x", "test_b.py::test_y"]
_RUN = [sys.executable, "-m", "fastci_ml", "run"]
_QUICK = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio"]
# Tells when it runs, and waits to be interrupted; the teardown must not be cut off.
_WAITS = """
import pathlib, time, pytest
@pytest.fixture
def slow_to_end():
    yield
    time.sleep(0.3)
    pathlib.Path("ended").touch()
def test_x(slow_to_end):
    pathlib.Path("started").touch()
    time.sleep(60)
"""


# A CI may start us with SIGINT or SIGHUP ignored (in the background, under nohup), and children inherit that.
_DEFAULT_SIGNALS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.executable, sys.argv[1:])
"""


def run(suite, *words, arguments=(), **options):
    return subprocess.run(
        [*_RUN, *words, "--", *_QUICK, *arguments],
        cwd=suite.root,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def junit_names(path: Path) -> list[str]:
    cases = ElementTree.parse(path).iter("testcase")
    return [f"{case.get('classname')}.py::{case.get('name')}" for case in cases]


def test_run_follows_the_plan_and_writes_junit(suite):
    suite.plan([ALL[3], ALL[0]], ALL[1:3])
    done = run(suite, "plan.json", "--junit", "out.xml")
    assert (done.returncode, done.stderr) == (0, "")
    assert junit_names(suite.root / "out.xml") == [ALL[3], ALL[0]]


def test_words_after_the_dashes_go_to_pytest_as_they_are(suite):
    suite.plan(ALL[::-1])
    done = run(suite, "--junit=out.xml", "plan.json", arguments=["-k", "test_x", "test_b.py"])
    assert done.returncode == 0
    assert junit_names(suite.root / "out.xml") == [ALL[2]]


def test_plugin_is_loaded_once_with_and_without_autoload(suite, monkeypatch):
    suite.plan([ALL[0]], ALL[1:])
    assert "ran 1 of 4 tests" in run(suite, "plan.json").stdout
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert "ran 1 of 4 tests" in run(suite, "plan.json").stdout


@pytest.mark.parametrize(
    ("body", "arguments", "code"),
    [
        ("def test_x(): assert 0\n", [], 1),
        ("def test_x(): pass\n", ["--no-such-option"], 4),
        ("def test_x(): pass\n", ["-k", "nothing"], 5),
        ("import os, signal\ndef test_x(): os.kill(os.getpid(), signal.SIGKILL)\n", [], 128 + 9),
    ],
)
def test_exit_code_is_that_of_the_tests(make_suite, body, arguments, code):
    suite = make_suite({"test_a.py": body})
    suite.plan([ALL[0]])
    assert run(suite, "plan.json", arguments=arguments).returncode == code


def test_plan_that_is_empty_on_purpose_exits_zero(suite):
    suite.plan([], ALL)
    done = run(suite, "plan.json")
    assert done.returncode == 0
    assert "leaves out all 4 tests collected, on purpose" in done.stdout


def test_plan_that_cannot_be_read_runs_everything_loudly(suite):
    (suite.root / "plan.json").write_text("{")
    done = run(suite, "plan.json", "--junit=out.xml")
    assert done.returncode == 0
    assert junit_names(suite.root / "out.xml") == ALL
    assert done.stdout.count("running EVERYTHING") == 2


def test_shadow_runs_everything(suite):
    suite.plan([], ALL)
    done = run(suite, "plan.json", "--shadow", "--junit=out.xml")
    assert junit_names(suite.root / "out.xml") == ALL
    assert "of which 0 failed" in done.stdout


def test_interpreter_that_is_not_there_is_a_usage_error(suite):
    done = run(suite, "plan.json", "--python", "nowhere/python")
    assert done.returncode == 2
    assert "nowhere/python: cannot be started" in done.stderr


def start(suite, **options):
    command = [sys.executable, "-c", _DEFAULT_SIGNALS, *_RUN, "plan.json", "--", *_QUICK]
    process = subprocess.Popen(command, cwd=suite.root, stdout=subprocess.DEVNULL, **options)
    deadline = time.monotonic() + 60
    while not (suite.root / "started").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    return process


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 2), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 128 + signal.SIGHUP)],
)
def test_signal_to_the_runner_alone_reaches_the_tests(make_suite, number, code):
    suite = make_suite({"test_a.py": _WAITS})
    suite.plan([ALL[0]])
    process = start(suite, start_new_session=True)
    process.send_signal(number)
    assert process.wait(timeout=60) == code
    assert (suite.root / "ended").exists() == (number == signal.SIGINT)


def test_ctrl_c_on_a_terminal_reaches_the_tests_once(make_suite):
    suite = make_suite({"test_a.py": _WAITS})
    suite.plan([ALL[0]])
    pid, terminal = pty.fork()
    if pid == 0:  # the child has the terminal as its own
        os.chdir(suite.root)
        command = [sys.executable, "-c", _DEFAULT_SIGNALS, *_RUN, "plan.json", "--", *_QUICK]
        os.execv(sys.executable, command)
    try:
        deadline = time.monotonic() + 60
        while not (suite.root / "started").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.write(terminal, b"\x03")
        while True:  # a terminal that nobody reads would block the tests
            try:
                if not os.read(terminal, 4096):
                    break
            except OSError:
                break
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 2
    assert (suite.root / "ended").exists()


# case 30: the process of the tests is gone, and its exit code says success.
_DEATHS = {
    "os._exit(0)": "import os\ndef test_x(): os._exit(0)\ndef test_y(): assert 0\n",
    "exit of the C library": "import ctypes\ndef test_x(): ctypes.CDLL(None).exit(0)\n",
    "another program in its place": "import os\ndef test_x(): os.execvp('true', ['true'])\n",
    "in a thread": "import os, threading, time\n"
    "def test_x():\n    threading.Thread(target=os._exit, args=(0,)).start()\n    time.sleep(60)\n",
    "in a fixture that ends": "import os, pytest\n@pytest.fixture\ndef f():\n    yield\n    os._exit(0)\n"
    "def test_x(f): pass\ndef test_y(): assert 0\n",
}


@pytest.mark.parametrize("body", _DEATHS.values(), ids=_DEATHS)
def test_process_that_ends_with_zero_before_its_tests_is_a_failure(make_suite, body):
    suite = make_suite({"test_a.py": body})
    suite.plan([ALL[0]])
    done = run(suite, "plan.json", "--junit", "out.xml")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "its session did not come to its end" in done.stderr
    assert not (suite.root / "out.xml").exists()


@pytest.mark.parametrize("words", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_conftest_that_leaves_while_it_is_imported_is_a_failure(make_suite, words):  # case 30
    suite = make_suite({"conftest.py": "import sys\nsys.exit(0)\n", "test_a.py": "def test_x(): pass\n"})
    suite.plan([ALL[0]])
    done = run(suite, "plan.json", arguments=words)
    assert done.returncode == 1
    assert "its session did not come to its end" in done.stderr


@pytest.mark.parametrize("code", [0, 256])
def test_pytest_exit_with_zero_in_the_middle_is_a_failure(make_suite, code):  # case 30
    body = f"import pytest\ndef test_x(): pytest.exit('enough', returncode={code})\ndef test_y(): assert 0\n"
    suite = make_suite({"test_a.py": body})
    suite.plan([ALL[0]])
    done = run(suite, "plan.json")
    assert done.returncode == 1
    assert "this run failed" in done.stderr


@pytest.mark.parametrize("code", [0, 1])
def test_worker_that_dies_is_a_failure_whatever_its_exit_code(make_suite, code):  # case 30
    suite = make_suite({"test_a.py": f"import os\ndef test_x(): os._exit({code})\ndef test_y(): pass\n"})
    suite.plan(ALL[:2])
    done = run(suite, "plan.json", "--junit", "out.xml", arguments=["-n", "2"])
    assert done.returncode == 1
    assert "crashed" in (suite.root / "out.xml").read_text()


def test_failures_count_though_a_hook_leaves_with_zero(make_suite):  # case 30
    leaves = "import os\ndef pytest_unconfigure(): os._exit(0)\n"
    suite = make_suite({"conftest.py": leaves, "test_a.py": "def test_x(): assert 0\n"})
    suite.plan([ALL[0]])
    done = run(suite, "plan.json")
    assert done.returncode == 1
    assert "the tests ended with code 1, and the process with 0" in done.stderr


@pytest.mark.parametrize("hook", ["pytest_sessionfinish", "pytest_unconfigure"])
def test_suite_that_leaves_by_a_hook_when_all_have_run_passes(make_suite, hook):
    leaves = f"import os\ndef {hook}(): os._exit(0)\n"
    suite = make_suite({"conftest.py": leaves, "test_a.py": "def test_x(): pass\n"})
    suite.plan([ALL[0]])
    done = run(suite, "plan.json")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ["--collect-only", "-q"],
        ["--help"],
        ["--version"],
        ["--version", "--version"],
        ["--fixtures"],
        ["-n", "2"],
        ["-x"],
    ],
    ids=" ".join,
)
def test_session_that_ends_of_its_own_accord_keeps_its_code(suite, words):
    suite.plan(ALL)
    done = run(suite, "plan.json", arguments=words)
    assert done.returncode == 0
    assert "this run failed" not in done.stderr


# Inner runs finish; they must not speak for the outer one, which does not.
_INNER = """
import os, subprocess, sys
import pytest
pytest_plugins = ["pytester"]
def test_x(pytester):
    pytester.makepyfile("def test_inner(): pass")
    assert pytester.runpytest_inprocess().ret == 0
    assert pytester.runpytest_subprocess().ret == 0
    subprocess.run([sys.executable, "-m", "pytest"], cwd=pytester.path, check=True)
    if {leaves}:
        os._exit(0)
"""


@pytest.mark.parametrize("leaves", [False, True])
def test_pytest_runs_inside_of_tests_do_not_speak_for_the_run(make_suite, leaves):  # case 30
    suite = make_suite({"test_a.py": _INNER.replace("{leaves}", str(leaves))})
    suite.plan([ALL[0]])
    assert run(suite, "plan.json").returncode == int(leaves)


def test_fork_that_goes_on_does_not_speak_for_the_run(make_suite):  # case 30
    body = "import os\ndef test_x():\n    if os.fork():\n        os.wait()\n        os._exit(0)\n"
    suite = make_suite({"test_a.py": body})
    suite.plan([ALL[0]])
    done = run(suite, "plan.json")
    assert done.returncode == 1
    assert "its session did not come to its end" in done.stderr


def test_workers_that_finish_do_not_speak_for_a_controller_that_does_not(make_suite):  # case 30
    leaves = "import os\ndef pytest_testnodedown(): os._exit(0)\n"
    suite = make_suite({"conftest.py": leaves, "test_a.py": "def test_x(): pass\ndef test_y(): pass\n"})
    suite.plan(ALL[:2])
    done = run(suite, "plan.json", arguments=["-n", "2"])
    assert done.returncode == 1
    assert "its session did not come to its end" in done.stderr


def test_worker_that_is_told_to_leave_with_zero_is_a_failure(make_suite):  # case 30
    body = "import pytest\ndef test_x(): pytest.exit('enough', returncode=0)\n" + "".join(
        f"def test_y{i}(): assert 0\n" for i in range(8)
    )
    suite = make_suite({"test_a.py": body})
    suite.plan([ALL[0]])
    assert run(suite, "plan.json", arguments=["-n", "1"]).returncode != 0

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

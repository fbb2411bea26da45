"""Tests that put something in the place of what a recorder needs."""

import builtins
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import time
from unittest import mock

import lib
import pytest


def fails(*arguments, **keywords):
    raise AssertionError("called")


def check_open_is_replaced(monkeypatch):
    monkeypatch.setattr(builtins, "open", fails)
    monkeypatch.setattr(io, "open", fails)
    import late_opened  # noqa: F401

    assert lib.square(11) == 121


@pytest.mark.parametrize(
    "name", ["open", "write", "getpid", "stat", "fstat", "listdir", "mkdir", "makedirs", "rename", "replace"]
)
def check_functions_of_os_are_replaced(name):
    with mock.patch.object(os, name) as replaced:
        value = lib.label(name)
        n_calls = replaced.call_count
    assert value == f"<{name}>"
    assert n_calls == 0


@pytest.mark.parametrize(
    "name", ["exists", "mkdir", "read_bytes", "write_bytes", "open", "replace", "resolve", "stat", "unlink"]
)
def check_methods_of_paths_are_replaced(name):
    with mock.patch.object(pathlib.Path, name) as replaced:
        lib.label(name * 2)
        assert replaced.call_count == 0


@pytest.mark.parametrize("name", ["exists", "isfile", "isdir", "realpath", "join", "normpath", "abspath"])
def check_functions_of_paths_are_replaced(name):
    with mock.patch.object(os.path, name) as replaced:
        lib.label(name * 3)
        assert replaced.call_count == 0


def check_json_is_replaced(monkeypatch):
    monkeypatch.setattr(json, "dumps", fails)
    monkeypatch.setattr(json.JSONEncoder, "default", fails)
    monkeypatch.setattr(json.JSONEncoder, "iterencode", fails)
    assert lib.label("json") == "<json>"


def check_time_stands_still(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert lib.label("time") == "<time>"


def check_descriptors_are_closed(tmp_path):
    # Those that a program may think its own.
    before = [os.dup(1) for _ in range(3)]
    for handle in before:
        os.close(handle)
    first = os.open(tmp_path / "x", os.O_CREAT | os.O_WRONLY)
    assert first == before[0]
    os.close(first)


def check_low_descriptors_are_the_programs():
    named = []
    for handle in range(64):
        with contextlib.suppress(OSError):
            named.append(os.readlink(f"/proc/self/fd/{handle}"))
    assert named
    assert not [name for name in named if "fastci" in name]


def check_all_descriptors_are_closed_in_a_child():
    pid = os.fork()
    if pid == 0:
        os.closerange(3, 4096)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def check_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("x").write_text("1")
    assert pathlib.Path("x").read_text() == "1"
    assert os.listdir() == ["x"]


def check_working_directory_is_gone(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError):
        os.getcwd()
    with pytest.raises(FileNotFoundError):
        open("x")
    assert lib.label("gone") == "<gone>"


def check_fork_runs_tests(tmp_path):
    (tmp_path / "test_inner.py").write_text("def test_inner():\n    assert 1\n")
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = pytest.main(["-p", "no:cacheprovider", "-p", "no:terminal", str(tmp_path)])
        finally:
            os._exit(int(code))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def check_tests_within_tests(tmp_path):
    (tmp_path / "test_within.py").write_text("def test_within():\n    assert 1\n")
    assert pytest.main(["-q", "-p", "no:cacheprovider", str(tmp_path)]) == 0


def check_fork_goes_on_as_a_program():
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, str(lib.down(3)).encode())
        os._exit(0)
    os.close(write)
    assert os.read(read, 10) == b"3"
    os.close(read)
    assert os.waitpid(pid, 0)[1] == 0


def square(x):
    return x * x


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def check_pools(method):
    import multiprocessing
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.map(square, [1, 2]) == [1, 4]


def check_child_that_is_killed():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    child.kill()
    assert child.wait() == -9


def check_output_of_a_child():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "print(1)"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", "import os; os._exit(3)"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (3, b"")


def check_environment_of_a_child_is_given():
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(dict(os.environ))"],
        env={"A": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert eval(done.stdout).keys() <= {"A", "LC_CTYPE"}


def check_modules_are_thrown_away(monkeypatch):
    import late_module

    monkeypatch.delitem(sys.modules, "late_module")
    import late_module as again

    assert again is not late_module


def check_import_is_replaced(monkeypatch):
    found = builtins.__import__
    seen = []

    def importing(name, *arguments, **keywords):
        seen.append(name)
        return found(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", importing)
    import late_imported  # noqa: F401

    assert seen[0] == "late_imported"

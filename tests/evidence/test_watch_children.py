"""What the watch of children books, on each interpreter at hand, and which programs are surely no Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from interpreters import VERSIONS, python_or_skip
from watched_programs import watch_program

from fastci_ml.evidence.recorder import live_children as live_children_module
from fastci_ml.evidence.recorder.live_children import left_behind, live_children
from fastci_ml.evidence.recorder.programs import (
    asks_git_for_files,
    find_program,
    has_git_hooks,
    is_helper,
    may_run_python,
    records_itself,
)
from fastci_ml.records.evidence_kinds import Gap

PROGRAM = """
import _thread, asyncio, concurrent.futures, ctypes.util, functools, multiprocessing, os, pathlib, platform
import shlex, subprocess, sys, threading, time

HERE = pathlib.Path(__file__).parent
QUIET = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
run = functools.partial(subprocess.run, check=True, **QUIET)
# Imported by workers, too: nothing else may be at the top of this module.
POOL = []


def work(x):
    return x + 1


def check_python():
    run([sys.executable, "-c", "pass"])


def check_python_by_path():
    run([pathlib.Path(sys.executable), b"-c", "pass"])


def check_script():
    run([str(HERE / "script")])


def check_shell():
    run("true", shell=True)
    run(["sh", "-c", "true"])


def check_env():
    run(["env", "true"])


def check_system():
    os.system("true")


def check_popen():
    os.popen("true").close()


def check_fork():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def check_posix_spawn():
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], os.environ), 0)


def check_asyncio():
    async def go():
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
        await child.wait()
    asyncio.run(go())


def check_process_fork():
    process = multiprocessing.get_context("fork").Process(target=work, args=(1,))
    process.start()
    process.join()


def check_process_spawn():
    process = multiprocessing.get_context("spawn").Process(target=work, args=(1,))
    process.start()
    process.join()


def check_starts_pool():
    context = multiprocessing.get_context("fork")
    POOL.append(concurrent.futures.ProcessPoolExecutor(1, mp_context=context))
    assert POOL[0].submit(work, 1).result() == 2


def check_beside_the_pool():
    assert work(1) == 2


def check_uses_the_pool():
    assert POOL[0].submit(work, 2).result() == 3


def check_ends_the_pool():
    POOL.pop().shutdown()


def check_after_the_pool():
    assert work(1) == 2


def check_starts_server():
    POOL.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))


def check_beside_the_server():
    assert work(1) == 2


def check_ends_server():
    POOL.pop().communicate(b"done")


def check_after_the_server():
    assert work(1) == 2


def check_leaves_one_behind():
    # The shell ends, the server lives on without a parent that is ours.
    os.environ["PYTEST_CURRENT_TEST"] = "check_leaves_one_behind"
    os.system(f"{sys.executable} -c 'import time; time.sleep(600)' & echo $! > server.pid")
    del os.environ["PYTEST_CURRENT_TEST"]


def check_beside_the_one_left_behind():
    assert work(1) == 2


def check_ends_the_one_left_behind():
    pid = int((HERE / "server.pid").read_text())
    os.kill(pid, 9)
    while os.path.exists(f"/proc/{pid}/exe"):
        time.sleep(0.01)


def check_after_the_one_left_behind():
    assert work(1) == 2


class ImportsWhenSent:
    def __getstate__(self):
        import colorsys
        import late_module
        return {}


def check_starts_with_imports_in_between():
    context = multiprocessing.get_context("spawn")
    POOL.append(context.Process(target=time.sleep, args=(600,), kwargs={}))
    POOL[0]._late = ImportsWhenSent()
    POOL[0].start()


def check_beside_the_spawned():
    assert work(1) == 2


def check_ends_the_spawned():
    POOL[0].kill()
    POOL.pop().join()


def check_after_the_spawned():
    assert work(1) == 2


def check_pipe_without_children():
    one, other = multiprocessing.Pipe()
    one.send(1)
    assert other.recv() == 1


def check_resource_tracker():
    lock = multiprocessing.get_context("spawn").Lock()
    with lock:
        pass


def check_version():
    run([sys.executable, "--version"])


def check_quiet():
    run(["true"])
    platform.processor()


def check_reads():
    run(["cat", "data/a.txt", str(HERE / "data" / "deep" / "x.txt")])


def check_reads_from_there():
    run(["cat", "x.txt", "../a.txt"], cwd=HERE / "data" / "deep")


def check_lists():
    run(["ls", "data"])


def check_options():
    run(["ls", f"-I{HERE / 'data' / 'a.txt'}", f"--hide={HERE / 'data' / 'b.txt'}", "/"])


def check_compiler_of_torch():
    import compiler
    compiler.tries([sys.executable, "-c", "pass"])


def check_like_the_compiler_of_torch():
    import compiler
    compiler.started_by(lambda: run([sys.executable, "-c", "pass"]))


def check_missing():
    try:
        run(["no-such-program-anywhere", "data/a.txt"])
    except FileNotFoundError:
        pass


def check_failing():
    assert subprocess.run(["false"]).returncode == 1


def check_threads():
    thread = threading.Thread(target=work, args=(1,))
    thread.start()
    thread.join()
    timer = threading.Timer(0, work, (1,))
    timer.start()
    timer.join()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(work, 1).result() == 2


def check_bare_thread():
    done = []
    _thread.start_new_thread(done.append, (1,))
    while not done:
        time.sleep(0.001)


def check_nothing():
    pass


START = multiprocessing.process.BaseProcess.start


def after_recording():
    assert multiprocessing.process.BaseProcess.start is not START
    assert multiprocessing.process.BaseProcess.start.__code__.co_filename == multiprocessing.process.__file__
    run([sys.executable, "-c", "pass"])
"""

CHILD = Gap.CHILD_WITHOUT_RECORD
GAPS = {
    "check_python": {CHILD},
    "check_python_by_path": {CHILD},
    "check_script": {CHILD},
    "check_shell": {CHILD},
    "check_env": {CHILD},
    "check_system": {CHILD},
    "check_popen": {CHILD},
    "check_fork": {CHILD},
    "check_posix_spawn": {CHILD},
    "check_asyncio": {CHILD},
    "check_process_fork": {CHILD},
    "check_process_spawn": {CHILD},
    "check_starts_pool": {CHILD},
    "check_beside_the_pool": {CHILD},
    "check_uses_the_pool": {CHILD},
    "check_ends_the_pool": {CHILD},
    "check_after_the_pool": set(),
    "check_starts_server": {CHILD},
    "check_beside_the_server": {CHILD},
    "check_ends_server": {CHILD},
    "check_after_the_server": set(),
    "check_leaves_one_behind": {CHILD},
    "check_beside_the_one_left_behind": {CHILD},
    "check_ends_the_one_left_behind": {CHILD},
    "check_after_the_one_left_behind": set(),
    "check_starts_with_imports_in_between": {CHILD},
    "check_beside_the_spawned": {CHILD},
    "check_ends_the_spawned": {CHILD},
    "check_after_the_spawned": set(),
    "check_pipe_without_children": set(),
    "check_resource_tracker": set(),
    "check_version": set(),
    "check_quiet": set(),
    "check_reads": set(),
    "check_reads_from_there": set(),
    "check_lists": set(),
    "check_options": set(),
    "check_compiler_of_torch": set(),
    "check_like_the_compiler_of_torch": {CHILD},
    "check_missing": set(),
    "check_failing": set(),
    "check_threads": set(),
    "check_nothing": set(),
}


@pytest.fixture(scope="module", params=VERSIONS)
def watched(request, tmp_path_factory):
    python = python_or_skip(request.param)
    root = tmp_path_factory.mktemp("children") / "repo"
    (root / "data" / "deep").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "deep/x.txt"):
        (root / "data" / name).write_text(name)
    (root / "late_module.py").write_text("")
    (root / "script").write_text(f"#!{sys.executable}\n")
    torch = tmp_path_factory.mktemp("packages") / "torch" / "_inductor"
    torch.mkdir(parents=True)
    (torch / "compiler.py").write_text(
        "import subprocess\n"
        "def tries(command):\n    subprocess.check_call(command)\n"
        "def started_by(call):\n    call()\n"
    )
    (root / "script").chmod(0o755)
    before = f"import sys; sys.path.insert(0, {str(torch)!r})"
    return watch_program(root, PROGRAM, python=python, before=before)


@pytest.mark.parametrize("name", GAPS)
def test_who_starts_what_may_be_python_is_incomplete(watched, name):
    assert watched.gaps(name) == GAPS[name]


def test_gap_names_the_program(watched):
    (detail,) = {detail for _, detail in watched.capture("check_python").children}
    assert detail.endswith("-c")
    assert {detail for _, detail in watched.capture("check_fork").children} == {"os.fork"}


def test_gap_says_what_lives_on(watched):
    (detail,) = {detail for _, detail in watched.capture("check_beside_the_server").children}
    # Of a process that has just begun, the words of its command may not be there yet.
    assert detail.startswith("lives on: python")


def test_children_are_counted_where_the_system_does_not_list_them(monkeypatch):
    def no_list(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(live_children_module, "listdir", no_list)
    assert live_children() == {}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert live_children() == {"": "a process"}
        child.communicate(b"done")
    assert live_children() == {}


def test_process_of_another_session_of_pytest_is_none_of_ours():
    for test, is_ours in (("t.py::test_ours (call)", True), ("t.py::test_of_others (call)", False)):
        environ = {**os.environ, "PYTEST_CURRENT_TEST": test}
        command = [sys.executable, "-c", "input()"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=environ) as child:
            found = left_behind({b"PYTEST_CURRENT_TEST=t.py::test_ours (call)"})
            assert any(key.startswith(f"{child.pid} ") for key in found) == is_ours
            child.communicate(b"done")


def test_child_from_before_the_recording_makes_tests_incomplete(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    before = "import subprocess, sys; S = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1)"
    program = "def check_served():\n    pass\n\ndef after_recording():\n    pass\n"
    watched = watch_program(root, program, before=before)
    assert watched.gaps("check_served") == {CHILD}


def test_child_that_nobody_may_look_at_counts(monkeypatch):
    def no_look(path):
        raise PermissionError(path)

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        monkeypatch.setattr(live_children_module, "readlink", no_look)
        assert list(live_children().values()) == ["a process"]
        child.communicate(b"done")
    assert live_children() == {}


def test_threads_past_the_threading_module_are_unseen_by_a_profile_hook(watched):
    is_profile = watched.bundle.provenance.backend == "profile"
    assert watched.gaps("check_bare_thread") == ({Gap.THREAD_UNSEEN} if is_profile else set())


def test_paths_named_to_a_child_are_read(watched):
    assert watched.reads("check_reads") == {"data/a.txt", "data/deep/x.txt"}
    assert watched.reads("check_reads_from_there") == {"data/a.txt", "data/deep/x.txt"}
    assert watched.reads("check_options") == {"data/a.txt", "data/b.txt"}
    assert watched.listings("check_lists") == {"data"}
    assert watched.reads("check_script") == {"script"}
    assert watched.reads("check_nothing") == set()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("python3.11", ["python3.11", "x.py"]),
        ("python", ["python"]),
        ("pypy3", ["pypy3"]),
        ("torchrun", ["torchrun"]),
        ("pytest", ["pytest"]),
        ("bash", ["bash", "-c", "git status"]),
        ("make", ["make"]),
        ("ninja", ["ninja"]),
        ("xargs", ["xargs"]),
        ("timeout", ["timeout", "1", "true"]),
        ("srun", ["srun"]),
        ("some-tool", ["some-tool"]),
        ("gitk", ["gitk"]),
    ],
)
def test_program_that_may_start_python_is_no_quiet_one(tmp_path, name, words):
    program = tmp_path / name
    program.write_bytes(b"\x7fELF")
    assert may_run_python(str(program), words)


@pytest.mark.parametrize(
    "name", ["gcc", "g++", "c++", "x86_64-linux-gnu-gcc-12", "clang-17", "git", "nvidia-smi", "ld.lld"]
)
def test_compilers_and_git_are_quiet(tmp_path, name):
    program = tmp_path / name
    program.write_bytes(b"\x7fELF")
    assert not may_run_python(str(program), [name, "python"])


def test_script_with_the_name_of_a_compiler_may_be_anything(tmp_path):
    program = tmp_path / "gcc"
    program.write_text("#!/bin/sh\nexec python\n")
    assert may_run_python(str(program), ["gcc"])


def test_link_to_python_is_python(tmp_path):
    (tmp_path / "cat").symlink_to(sys.executable)
    assert may_run_python(str(tmp_path / "cat"), ["cat", "x"])


def test_program_is_found_as_the_system_finds_it(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "tool").write_text("")
    path = f"{tmp_path / 'missing'}:bin:{folder}"
    assert find_program("tool", {"PATH": path}, str(tmp_path)) is None
    (folder / "tool").chmod(0o755)
    assert find_program("tool", {"PATH": path}, str(tmp_path)) == f"{tmp_path}/bin/tool"
    assert find_program("./tool", {}, str(folder)) == f"{folder}/./tool"
    assert find_program("cat", None, "/") == shutil.which("cat")


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        (["git", "ls-files"], True),
        (["git", "-c", "a=b", "grep", "x"], True),
        (["git", "-C", "sub", "status"], True),
        (["git", "-C", "own", "status"], False),
        (["git", "-C", "..", "status"], False),
        (["git", "rev-parse", "HEAD"], False),
        (["git", "--version"], False),
        (["git"], False),
        (["git", "init", "."], False),
    ],
)
def test_git_that_looks_at_the_files_of_the_repository_is_told(tmp_path, words, asks):
    top = tmp_path / "repo"
    (top / "sub").mkdir(parents=True)
    (top / "own" / ".git").mkdir(parents=True)
    (top / ".git").mkdir()
    assert asks_git_for_files(words, str(top), {str(top)}) is asks


def test_git_that_may_run_hooks_counts(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    hooks = tmp_path / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    commit = ["git", "commit", "-m", "x"]
    assert not has_git_hooks(commit, str(tmp_path))
    (hooks / "pre-commit.sample").touch()
    assert not has_git_hooks(commit, str(tmp_path))
    (hooks / "pre-commit").touch()
    assert has_git_hooks(commit, str(tmp_path))
    assert has_git_hooks(["git", "-C", str(tmp_path), "commit"], "/")
    assert not has_git_hooks(["git", "log"], str(tmp_path))
    assert not has_git_hooks(commit, "/")


@pytest.mark.parametrize(
    ("words", "is_helper_"),
    [
        (["python", "-c", "from multiprocessing.resource_tracker import main;main(7)"], True),
        (["python", "-B", "-c", "from multiprocessing.resource_tracker import main;main(7)"], True),
        (["python", "-c", "from multiprocessing.resource_tracker import ensure_running; import x"], False),
        (["python", "/p/site-packages/torch/_inductor/compile_worker/__main__.py", "--pickler"], True),
        (["python", "serve.py", "/debugpy/"], False),
    ],
)
def test_helpers_are_told_by_what_they_run(words, is_helper_):
    assert is_helper(words) == is_helper_


def test_what_surely_records_itself_is_python_with_its_hooks(tmp_path):
    python = sys.executable
    assert records_itself(python, [python, "x.py", "-S"])
    assert records_itself(python, [python, "-m", "torch.distributed.run"])
    assert not records_itself(python, [python, "-S", "x.py"])
    assert not records_itself(python, [python, "-ISc", "pass"])
    for line, is_known in (
        ("#!/usr/bin/env python3\n", True),
        (f"#!{python}\n", True),
        ("#!/usr/bin/python -S\n", False),
        ("#!/bin/sh\n", False),
        ("", False),
    ):
        script = tmp_path / "script"
        script.write_text(line)
        assert records_itself(str(script), ["script"]) == is_known, line

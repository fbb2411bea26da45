import asyncio
import concurrent.futures
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import work

HERE = Path(__file__).parent
CHILD = [sys.executable, str(HERE / "child.py")]


def check_direct():
    assert work.reads_data() == 1


def check_subprocess():
    subprocess.run([*CHILD, "by_subprocess"], check=True)


def check_copied_environment():
    subprocess.run([*CHILD, "by_copied_environment"], check=True, env={**os.environ, "A": "1"})


def check_own_environment():
    subprocess.run([*CHILD, "by_subprocess"], check=True, env={"PATH": os.environ["PATH"]})


def check_module():
    subprocess.run([sys.executable, "-m", "child", "by_module"], check=True, cwd=HERE)


def check_data_of_a_child():
    subprocess.run([*CHILD, "reads_data"], check=True)


def check_executable():
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run([str(HERE / "script")], check=True, env={**os.environ, "PATH": path})


def _run(method, function, *arguments):
    process = multiprocessing.get_context(method).Process(target=function, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0


def check_spawn():
    _run("spawn", work.by_spawn, 1)


def check_fork():
    _run("fork", work.by_fork, 1)


def check_forkserver():
    _run("forkserver", work.by_forkserver, 1)


def check_after_the_forkserver():
    # The server lives on: what it does by itself counts here, but not what it forked for others.
    assert work.reads_data() == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def check_pool(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(work.by_pool, range(4)) == [0, 1, 2, 3]
        pool.close()
        pool.join()


def check_executor():
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(work.by_executor, range(4))) == [0, 1, 2, 3]


def check_bare_fork():
    pid = os.fork()
    if not pid:
        work.by_bare_fork()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def check_exit_at_once():
    subprocess.run(
        [sys.executable, "-c", "import os, work; work.by_exit_at_once(); os._exit(0)"], check=True, cwd=HERE
    )


def check_grandchild():
    inner = (
        "import subprocess, sys; subprocess.run([sys.executable, 'child.py', 'by_grandchild'], check=True)"
    )
    subprocess.run([sys.executable, "-c", inner], check=True, cwd=HERE)


def check_terminated():
    code = "import work; work.by_terminated(); print('up', flush=True); import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=HERE) as child:
        child.stdout.readline()
        child.terminate()
        assert child.wait(30) == -signal.SIGTERM


def check_terminated_in_c():
    # The main thread waits in C code, where no handler of Python's can run.
    code = (
        "import ctypes, work; work.by_terminated_in_c(); print('up', flush=True);"
        "libc = ctypes.CDLL(None)\n"
        "while True: libc.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=HERE) as child:
        child.stdout.readline()
        child.terminate()
        assert child.wait(30) == -signal.SIGTERM


def check_killed():
    code = "import work; work.by_killed(); print('up', flush=True); import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=HERE) as child:
        child.stdout.readline()
        child.kill()


def check_exec():
    pid = os.fork()
    if not pid:
        os.execv(sys.executable, [*CHILD, "by_exec"])
    assert os.waitpid(pid, 0)[1] == 0


def check_posix_spawn():
    pid = os.posix_spawn(sys.executable, [*CHILD, "by_posix_spawn"], os.environ)
    assert os.waitpid(pid, 0)[1] == 0


def check_asyncio():
    async def go():
        child = await asyncio.create_subprocess_exec(*CHILD, "by_asyncio")
        assert await child.wait() == 0

    asyncio.run(go())


def check_before_exec():
    subprocess.run([*CHILD, "by_subprocess"], check=True, preexec_fn=lambda: None)


def check_fills_the_cache():
    assert work.remembered() == 1


def check_cache_of_a_fork():
    _run("fork", work.by_cache)


# A pool that serves all tests of this module: its workers are told of the test with each task, or not.
def _serve(connection):
    for name, test in iter(connection.recv, None):
        if test:
            os.environ["PYTEST_CURRENT_TEST"] = f"{test} (call)"
            work.by_task(name)
            del os.environ["PYTEST_CURRENT_TEST"]
        else:
            work.by_untold_task(name)
        connection.send(name)


@pytest.fixture(scope="module")
def worker():
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,))
    process.start()
    yield ours
    ours.send(None)
    process.join()


def _ask(worker, name, test):
    worker.send((name, test))
    assert worker.recv() == name


@pytest.mark.parametrize("name", ["a", "b"])
def check_told_task(worker, name, request):
    _ask(worker, name, request.node.nodeid)


def check_no_task_beside_the_worker(worker):
    assert work.reads_data() == 1


def check_untold_task(worker):
    _ask(worker, "c", "")


def check_shell():
    subprocess.run(
        f"true; '{sys.executable}' child.py by_grandchild_of_shell; true", shell=True, check=True, cwd=HERE
    )

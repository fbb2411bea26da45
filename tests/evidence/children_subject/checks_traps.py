"""Ways in which a record of children was complete and wrong, or in which recording changed what they did."""

import concurrent.futures.process
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import work

HERE = Path(__file__).parent
PYTHON = sys.executable


def _run(code, *options, **keywords):
    return subprocess.run([PYTHON, *options, "-c", code], cwd=HERE, check=True, text=True, **keywords)


def check_fork_that_is_terminated_in_a_child():
    code = (
        "import multiprocessing, time\n"
        "for _ in range(5):\n"
        "    p = multiprocessing.get_context('fork').Process(target=time.sleep, args=(60,))\n"
        "    p.start(); p.terminate(); p.join()\n"
        "print('end')"
    )
    assert _run(code, stdout=subprocess.PIPE).stdout == "end\n"


def check_terminated_while_it_holds_the_interpreter():
    code = "import collections as c, itertools; print('up', flush=True); c.deque(itertools.count(), maxlen=0)"
    with subprocess.Popen([PYTHON, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        child.terminate()
        assert child.wait(20) == -signal.SIGTERM


def check_environment_is_a_line_a_variable():
    text = subprocess.check_output(["env"], text=True)
    assert all("=" in line for line in text.splitlines())


def check_signals_are_the_program_s():
    code = "import signal; print(signal.getsignal(15) is signal.SIG_DFL, signal.set_wakeup_fd(-1))"
    assert _run(code, stdout=subprocess.PIPE).stdout == "True -1\n"


def check_shell_that_becomes_python():
    subprocess.run(
        ["sh", "-c", f"'{PYTHON}' -S child.py by_subprocess; exec '{PYTHON}' child.py by_module"],
        cwd=HERE,
        check=True,
    )


def check_python_without_hooks():
    _run("import work; work.by_subprocess()", "-S")


def check_profiler_in_a_child():
    _run("import cProfile, work; cProfile.run('work.by_subprocess()')", stdout=subprocess.DEVNULL)


def check_exec_in_the_midst_of_an_import():
    _run("import becomes")


def check_exec_that_fails():
    code = (
        "import os, time, work\n"
        "try:\n    os.execv('/no/such/program', ['x'])\nexcept OSError:\n    pass\n"
        "work.by_subprocess(); print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([PYTHON, "-c", code], stdout=subprocess.PIPE, cwd=HERE) as child:
        child.stdout.readline()
        child.kill()


def check_function_runs_while_a_thread_ends_the_process():
    _run("import threading, work; threading.Timer(0.2, work.ends).start(); work.waits()")


def check_starts_a_daemon():
    subprocess.run([PYTHON, "daemon.py"], cwd=HERE, check=True)
    deadline = time.monotonic() + 20
    while not (HERE / "daemon.up").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def check_beside_the_daemon():
    (HERE / "daemon.ask").touch()
    deadline = time.monotonic() + 20
    while not (HERE / "daemon.done").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (HERE / "daemon.done").exists()
    stat = Path(f"/proc/{(HERE / 'daemon.pid').read_text()}/stat")
    with contextlib.suppress(OSError):
        while stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
            time.sleep(0.01)


def check_helper_by_name_alone():
    code = "from multiprocessing.resource_tracker import ensure_running; import work; work.by_subprocess()"
    _run(code)


def check_last():
    assert work.reads_data() == 1


def check_exit_is_sent_to_another_process():
    context = multiprocessing.get_context("spawn")
    broken = pytest.raises(concurrent.futures.process.BrokenProcessPool)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool, broken:
        pool.submit(os._exit, 1).result()

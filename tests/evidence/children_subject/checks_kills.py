"""Children that are killed at any moment. What they really did, they write down where nobody records it."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LOGS = Path(os.environ["KILL_LOGS"])
N_WORKERS = int(os.environ["N_WORKERS"])
N_LAUNCHES = int(os.environ["N_LAUNCHES"])


def _kill_somewhen(pid, seconds):
    time.sleep(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", range(N_WORKERS))
def check_worker(number):
    how = ("program", "fork", "spawn")[number % 3]
    log = LOGS / f"worker-{number}"
    rng = random.Random(number)
    if how == "program":
        process = subprocess.Popen([sys.executable, "kills.py", str(log)], cwd=HERE)
        _kill_somewhen(process.pid, rng.uniform(0, 0.25))
        process.wait()
    else:
        import multiprocessing

        import kills

        process = multiprocessing.get_context(how).Process(target=kills.work, args=(str(log),))
        process.start()
        _kill_somewhen(process.pid, rng.uniform(0, 0.1 if how == "fork" else 0.3))
        process.join()


@pytest.mark.parametrize("number", range(N_LAUNCHES))
def check_ranks(number):
    log = LOGS / f"ranks-{number}"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    process = subprocess.Popen(
        [*command, "kills.py", str(log)],
        cwd=HERE,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    rng = random.Random(number)
    deadline = time.monotonic() + 60
    pids = log.with_name(log.name + ".pids")
    while not pids.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.3))
    if pids.exists():
        for pid in map(int, pids.read_text().split()):
            if rng.random() < 0.5:
                _kill_somewhen(pid, 0)
    process.wait(120)
    # A rank that nobody ended must not live on beside the next test.
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.05)

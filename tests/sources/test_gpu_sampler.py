from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvml_recording import ReplayedNvml, compile_nvml

from fastci_ml.records.gpu import Attribution, DeviceReading, GpuSample
from fastci_ml.sources.gpu.reader import GpuReader
from fastci_ml.sources.gpu.sampler import GpuSampler

PATIENCE_S = 20.0
# pytest-rerunfailures starts a thread of its own.
_PYTEST = [
    sys.executable,
    "-W",
    "error",
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:rerunfailures",
]


class Scripted:
    """A reader whose answers are functions of the time."""

    problem = None

    def __init__(self, answer=lambda at_s: 1.0) -> None:
        self.answer = answer
        self.n_reads = 0

    def read(self, now_s=None, *, reach_s=1.0):
        self.n_reads += 1
        ratio = self.answer(now_s)
        reading = DeviceReading(
            uuid="GPU-1", by=Attribution.DEVICE, held_ratio=ratio, held_bytes=round(now_s * 1000)
        )
        return GpuSample(at_s=now_s, reach_s=reach_s, readings=(reading,))


def until(is_so, patience_s=PATIENCE_S) -> bool:
    end_s = time.monotonic() + patience_s
    while not is_so() and time.monotonic() < end_s:
        time.sleep(0.005)
    return is_so()


@pytest.fixture
def sampling():
    """Start samplers that are stopped at the end."""
    started = []

    def start(reader, **options):
        started.append(GpuSampler(reader, **{"interval_s": 0.01, **options}))
        started[-1].start()
        return started[-1]

    yield start
    for sampler in started:
        sampler.stop()


def test_samples_come_in_order_until_it_is_stopped(sampling):
    sampler = sampling(GpuReader(nvml=ReplayedNvml("bindings_of_2019"), environ={}))
    assert until(lambda: len(sampler.samples()) >= 5)
    assert sampler.stop() is True
    assert not sampler.is_running
    samples = sampler.samples()
    times = [sample.at_s for sample in samples]
    assert times == sorted(set(times))
    usage = sampler.usage(times[0], times[-1])
    assert usage.gpu_s == pytest.approx(times[-1] - times[0])
    assert sampler.problem is None
    time.sleep(0.05)
    assert sampler.samples() == samples


def test_tests_do_not_see_the_thread(sampling):
    before = threading.active_count(), threading.enumerate()
    sampler = sampling(Scripted())
    assert until(lambda: len(sampler.samples()) >= 2)
    assert (threading.active_count(), threading.enumerate()) == before


def test_broken_driver_is_one_problem(sampling):
    # case 53: sampled, the run goes on
    nvml = ReplayedNvml("init_version_mismatch")
    sampler = sampling(GpuReader(nvml=nvml, environ={}))
    assert until(lambda: len(sampler.samples()) >= 3)
    assert sampler.problem.slug == "version-mismatch"
    assert {sample.readings for sample in sampler.samples()} == {None}
    assert len(nvml.calls) == 1


def test_reader_that_fails_leaves_unknown_time_and_one_problem(sampling):
    def answer(at_s):
        if reader.n_reads in (2, 4):
            raise OSError(f"reading {reader.n_reads}")
        return 1.0

    reader = Scripted(answer)
    sampler = sampling(reader)
    assert until(lambda: len(sampler.samples()) >= 6)
    known = [sample.readings is not None for sample in sampler.samples()][:6]
    assert known == [True, False, True, False, True, True]
    assert sampler.problem.slug == "reader-failed"
    assert "reading 2" in sampler.problem.reason


def test_hang_keeps_nothing_waiting(sampling):
    entered, leave = threading.Event(), threading.Event()

    def answer(at_s):
        entered.set()
        leave.wait(PATIENCE_S)
        return 1.0

    fast_s = [0.0]
    sampler = sampling(Scripted(answer), clock=lambda: time.monotonic() + fast_s[0])
    assert entered.wait(PATIENCE_S)
    assert sampler.problem is None
    fast_s[0] = 60.0
    assert sampler.problem.slug == "hung"
    assert "60 s" in sampler.problem.reason
    start_s = time.monotonic()
    assert sampler.stop(timeout_s=0.05) is False
    assert time.monotonic() - start_s < 5.0
    assert sampler.usage(start_s - 1.0, start_s).gpu_s is None
    leave.set()
    assert sampler.stop(PATIENCE_S) is True
    assert sampler.samples() == ()  # nobody knows of what time the answer was


def test_memory_is_bounded_and_a_long_test_stays_known():
    clock = [0.0]
    sampler = GpuSampler(Scripted(), interval_s=0.2, max_samples=64, clock=lambda: clock[0])
    n_most = 0
    while clock[0] < 7200.0:
        sampler._take()
        n_most = max(n_most, len(sampler.samples()))
        clock[0] += sampler._interval_s
    assert n_most <= 64
    usage = sampler.usage(0.0, 7190.0)
    assert usage.gpu_s == pytest.approx(7190.0)
    assert usage.peak_bytes >= 7100 * 1000
    sampler.forget(7190.0)
    assert sampler.usage(7190.0, 7199.0).gpu_s == pytest.approx(9.0)
    assert sampler._interval_s == 0.2


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.integers(2, 9))
def test_dropping_samples_keeps_the_peak_and_the_unknown(heights, max_samples):
    class Hills(Scripted):
        def read(self, now_s=None, *, reach_s=1.0):
            height = heights[int(now_s) % len(heights)]
            if height == 0:
                return GpuSample(at_s=now_s, reach_s=reach_s)
            reading = DeviceReading(uuid="GPU-1", by=Attribution.DEVICE, held_ratio=1.0, held_bytes=height)
            return GpuSample(at_s=now_s, reach_s=reach_s, readings=(reading,))

    clock = [0.0]
    sampler = GpuSampler(Hills(), interval_s=1.0, max_samples=max_samples, clock=lambda: clock[0])
    seen = []
    for _ in heights:
        seen.append(heights[int(clock[0]) % len(heights)])
        sampler._take()
        clock[0] += sampler._interval_s
    usage = sampler.usage(0.0, clock[0])
    assert (usage.gpu_s is None) == (0 in seen)
    if 0 not in seen:
        assert usage.peak_bytes == max(seen)


def test_forgetting_keeps_what_is_still_needed(sampling):
    clock = [0.0]
    sampler = GpuSampler(Scripted(), interval_s=1.0, clock=lambda: clock[0])
    for _ in range(20):
        sampler._take()
        clock[0] += 1.0
    sampler.forget(10.0)
    assert len(sampler.samples()) < 15
    assert sampler.usage(10.0, 19.0).gpu_s == 9.0
    sampler.forget(1000.0)
    assert len(sampler.samples()) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_waits_for_a_call_and_has_no_thread_in_the_child(sampling):
    entered = threading.Event()
    left_s = []

    def answer(at_s):
        entered.set()
        time.sleep(0.1)
        left_s.append(time.monotonic())
        return 1.0

    sampler = sampling(Scripted(answer))
    assert entered.wait(PATIENCE_S)
    pid = os.fork()
    if pid == 0:
        is_clean = not sampler.is_running and sampler.samples() == () and sampler.stop(0.0)
        sampler._in_nvml.acquire(timeout=0.0)
        os._exit(0 if is_clean and left_s else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    n_reads = len(left_s)
    sampler.resume()
    assert until(lambda: len(left_s) > n_reads)  # the parent goes on


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_does_not_wait_for_a_hanging_call(sampling):
    entered, leave = threading.Event(), threading.Event()

    def answer(at_s):
        entered.set()
        leave.wait(PATIENCE_S)
        return 1.0

    sampling(Scripted(answer))
    assert entered.wait(PATIENCE_S)
    time.sleep(0.3)
    start_s = time.monotonic()
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    assert time.monotonic() - start_s < 0.25 * 5
    leave.set()


def test_a_test_run_ends_as_without_it(tmp_path):
    """Warnings, log records, threads and the exit code of a real run, with NVML missing."""
    (tmp_path / "conftest.py").write_text(
        "from fastci_ml.sources.gpu.reader import GpuReader\n"
        "from fastci_ml.sources.gpu.sampler import GpuSampler\n"
        "def pytest_configure(config):\n"
        "    GpuSampler(GpuReader(), interval_s=0.001).start()\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import logging, threading, time\n"
        "def test_it(caplog, recwarn, capfd):\n"
        "    caplog.set_level(logging.DEBUG)\n"
        "    time.sleep(0.1)\n"
        "    assert not caplog.records and not recwarn.list\n"
        "    assert threading.active_count() == 1\n"
        "    assert capfd.readouterr() == ('', '')\n"
        "def test_fails():\n"
        "    assert False\n"
    )
    done = subprocess.run(
        [*_PYTEST, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "1 failed, 1 passed" in done.stdout


_HANGING = """
import time
from fastci_ml.sources.gpu.reader import GpuReader
from fastci_ml.sources.gpu.sampler import GpuSampler
start_s = time.monotonic()
clock = lambda: start_s + 100 * (time.monotonic() - start_s)
sampler = GpuSampler(GpuReader(), clock=clock)
sampler.start()
n = sum(range(10**6))  # the interpreter is free while the library waits
time.sleep(0.2)
assert sampler.problem.slug == "hung", sampler.problem
assert sampler.samples() == ()
print(time.monotonic() - start_s < 5)
"""


def test_library_that_hangs_does_not_keep_the_process(tmp_path):
    # case 53, another input: nvmlInit never returns; real bindings, a real library
    start_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _HANGING],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "LD_LIBRARY_PATH": str(compile_nvml(tmp_path)), "NVML_HANG_S": "50"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert time.monotonic() - start_s < 30


@pytest.mark.parametrize("options", [{"interval_s": 0.0}, {"max_samples": 1}])
def test_nonsense_is_refused(options):
    with pytest.raises(ValueError, match="expected more than 0"):
        GpuSampler(Scripted(), **options)

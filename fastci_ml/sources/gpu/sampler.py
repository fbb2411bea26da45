"""Samples of the GPUs, taken beside running tests by one thread that they do not notice.

The thread is started below `threading`, so no test that lists or counts threads sees it. It holds no lock of
the interpreter while the driver works, never keeps the process from ending, and may hang for ever: then
samples stop, and what they would have told is unknown.

From Python 3.12 on the interpreter warns of a fork where the process has a second thread of any kind, and a
test may fail of that. So the thread ends before a fork that finds no other, and runs again from `resume` on.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from fastci_ml.records.gpu import GpuProblem, GpuSample, GpuUsage
from fastci_ml.sources.gpu.usage import measure_usage

# A sample speaks for so many intervals around it, and for at least a second: a busy interpreter skips some.
_REACH_INTERVALS = 2.5
_LEAST_REACH_S = 1.0
# NVML answers in milliseconds; a driver in trouble takes seconds, or for ever.
_HUNG_S = 5.0
# A fork waits so long for a call that is under way: its child would inherit NVML's locks as they are.
_FORK_PATIENCE_S = 0.25
_FORK_WARNS = sys.version_info >= (3, 12)
# Bound early: tests put others in their place.
_stat, _sleep = os.stat, time.sleep


class _Reader(Protocol):
    @property
    def problem(self) -> GpuProblem | None: ...

    def read(self, now_s: float | None = None, *, reach_s: float = 1.0) -> GpuSample: ...


class GpuSampler:
    """Takes samples until it is stopped.

    Parameters
    ----------
    reader : GpuReader
        Constructed in the main thread.
    interval_s : float
        Time between samples. Slow answers stretch it: at most half of the time is spent in NVML.
    max_samples : int
        Of more, every second is dropped (of two neighbours the one with less memory in use), and the interval
        doubles: memory is bounded however long a test runs.
    clock : callable
        Monotonic seconds.
    start_thread : callable
        ``_thread.start_new_thread``, as it was before somebody watched who starts threads.
    """

    def __init__(
        self,
        reader: _Reader,
        *,
        interval_s: float = 0.2,
        max_samples: int = 2048,
        clock: Callable[[], float] = time.monotonic,
        start_thread: Callable[..., object] = _thread.start_new_thread,
    ) -> None:
        if interval_s <= 0 or max_samples < 2:
            raise ValueError(
                f"interval {interval_s} s, {max_samples} samples: expected more than 0, at least 2"
            )
        self._reader = reader
        self._first_interval_s = interval_s
        self._max_samples = max_samples
        self._clock = clock
        self._start_thread = start_thread
        self._own_problem: GpuProblem | None = None
        self._is_paused = False
        self.reset()

    @property
    def problem(self) -> GpuProblem | None:
        """Why readings are missing, or None; a call that has not returned for long is one reason."""
        since_s = self._in_flight_since_s
        if since_s is not None and self._clock() - since_s > _HUNG_S:
            reason = f"NVML has not answered for {self._clock() - since_s:.0f} s"
            return GpuProblem(
                slug="hung", reason=reason, hint="nvidia-smi; sudo dmesg | grep -i -e xid -e nvrm"
            )
        return self._reader.problem or self._own_problem

    @property
    def is_running(self) -> bool:
        """Whether the thread runs, in this process."""
        return not self._done.is_set()

    def start(self) -> None:
        """Start the thread; does nothing where it runs."""
        if self.is_running:
            return
        self._stop, self._done = threading.Event(), threading.Event()
        _watch_forks(self)
        atexit.register(self.stop)
        try:
            self._start_thread(self._run, (self._stop, self._done))
        except RuntimeError as error:
            self._done.set()
            self._own_problem = GpuProblem(
                slug="no-thread", reason=f"no thread could be started: {error}", hint="ulimit -u"
            )

    def stop(self, timeout_s: float = 1.0) -> bool:
        """Tell the thread to end, and wait for it at most `timeout_s`.

        Returns
        -------
        bool
            Whether it has ended; one that hangs in the driver is left there.
        """
        self._stop.set()
        atexit.unregister(self.stop)
        return self._done.wait(timeout_s)

    def resume(self) -> None:
        """Start the thread again if it ended for a fork; not before that fork is over in this process."""
        if self._is_paused and not self.is_running:
            self._is_paused = False
            self.start()

    def samples(self) -> tuple[GpuSample, ...]:
        """What is kept, in order."""
        with self._lock:
            return tuple(self._samples)

    def usage(self, start_s: float, end_s: float) -> GpuUsage:
        """Sum up a window, as `measure_usage` does."""
        return measure_usage(self.samples(), start_s, end_s)

    def forget(self, before_s: float) -> None:
        """Drop what says nothing about `before_s` or later, but for the last sample before it."""
        with self._lock:
            n_old = sum(1 for sample in self._samples if sample.at_s + sample.reach_s < before_s)
            del self._samples[: max(0, n_old - 1)]
            if len(self._samples) <= self._max_samples // 4:
                self._interval_s = self._first_interval_s

    def reset(self) -> None:
        """Forget everything, as at first and in the child of a fork: the thread is not there."""
        self._lock = threading.Lock()
        # Held while NVML works, so that a fork can wait for it.
        self._in_nvml = threading.Lock()
        self._forking: set[int] = set()
        self._is_paused = False
        self._stop, self._done = threading.Event(), threading.Event()
        self._done.set()
        self._samples: list[GpuSample] = []
        self._interval_s = self._first_interval_s
        self._in_flight_since_s: float | None = None

    def _run(self, stop: threading.Event, done: threading.Event) -> None:
        try:
            while not stop.is_set():
                took_s = self._take()
                stop.wait(max(self._interval_s - took_s, took_s))
        except Exception as error:  # noqa: BLE001  a callback of the recorder: it never raises beside a test
            self._own_problem = _failed(error)
        finally:
            done.set()

    def _take(self) -> float:
        """Take one sample; the seconds it took."""
        reach_s = max(_LEAST_REACH_S, _REACH_INTERVALS * self._interval_s)
        with self._in_nvml:
            start_s = self._in_flight_since_s = self._clock()
            try:
                sample = self._reader.read(start_s, reach_s=reach_s)
            except Exception as error:  # noqa: BLE001  as in `_run`: the next sample may be fine
                self._own_problem = self._own_problem or _failed(error)
                sample = GpuSample(at_s=start_s, reach_s=reach_s)
            finally:
                self._in_flight_since_s = None
        took_s = self._clock() - start_s
        # After a long wait nobody knows of what time the answers are.
        if took_s <= reach_s:
            self._keep(sample)
        return took_s

    def _keep(self, sample: GpuSample) -> None:
        with self._lock:
            self._samples.append(sample)
            if len(self._samples) > self._max_samples:
                self._interval_s *= 2
                reach_s = max(_LEAST_REACH_S, _REACH_INTERVALS * self._interval_s)
                pairs = zip(self._samples[::2], self._samples[1::2], strict=False)
                odd_one = self._samples[-1:] if len(self._samples) % 2 else []
                kept = [max(pair, key=_weight) for pair in pairs] + odd_one
                self._samples = [one._replace(reach_s=reach_s) for one in kept]

    def hold_for_fork(self) -> None:
        """Before a fork: wait for a call of NVML that is under way, but not for one that hangs."""
        if not self.is_running:
            return
        since_s = self._in_flight_since_s
        is_hung = since_s is not None and self._clock() - since_s > _FORK_PATIENCE_S
        patience_s = 0.0 if is_hung else _FORK_PATIENCE_S
        if _FORK_WARNS and _n_threads() == 2:
            self._pause(patience_s)
        elif self._in_nvml.acquire(timeout=patience_s):
            self._forking.add(threading.get_ident())

    def _pause(self, patience_s: float) -> None:
        self._is_paused = True
        self._stop.set()
        until_s = self._clock() + patience_s
        self._done.wait(patience_s)
        # It has said so, and lives on for some microseconds.
        while _n_threads() > 1 and self._clock() < until_s:
            _sleep(0.0002)

    def release_after_fork(self) -> None:
        """After a fork, in the parent: go on."""
        if threading.get_ident() in self._forking:
            self._forking.discard(threading.get_ident())
            self._in_nvml.release()


def _n_threads() -> int:
    """Threads of this process, ours included, as the kernel counts them; 0 where it cannot be asked."""
    try:
        # A folder of them, one folder each: no event, no list.
        return _stat("/proc/self/task").st_nlink - 2
    except OSError:
        return 0


def _weight(sample: GpuSample) -> tuple[bool, int]:
    """What makes a sample worth keeping: unknown time stays unknown, and peaks stay."""
    if sample.readings is None:
        return True, 0
    return False, sum(reading.held_bytes or 0 for reading in sample.readings)


def _failed(error: Exception) -> GpuProblem:
    reason = f"the reader failed: {type(error).__name__}: {error}"
    return GpuProblem(slug="reader-failed", reason=reason, hint="fastci-ml gpu -v, and report it")


_SAMPLERS: weakref.WeakSet[GpuSampler] = weakref.WeakSet()
_is_watching = False


def _watch_forks(sampler: GpuSampler) -> None:
    """Have forks wait for `sampler`; hooks of forks cannot be taken back, so they are set once."""
    global _is_watching
    _SAMPLERS.add(sampler)
    if _is_watching or not hasattr(os, "register_at_fork"):
        return
    _is_watching = True
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_reset_all)


def _hold_all() -> None:
    for sampler in list(_SAMPLERS):
        sampler.hold_for_fork()


def _release_all() -> None:
    for sampler in list(_SAMPLERS):
        sampler.release_after_fork()


def _reset_all() -> None:
    for sampler in list(_SAMPLERS):
        sampler.reset()

"""What a test took: CPU time, memory of its process, GPUs. Nothing in the process is changed by measuring.

Everything is read from outside of the test, before and after it; counters that a test may read itself
(``ru_maxrss``, torch's peaks) are never reset. What cannot be told so is None, never 0.

On a machine with GPUs one thread of the session samples NVML, and none anywhere else: from Python 3.12 on the
interpreter warns of a fork where the process has a second thread of any kind, and a test may fail of that.
Before such a fork the thread ends, and it runs again from the next test on.
"""

from __future__ import annotations

import os
import re

# Of the time before recording: its watch takes a thread for one that a test started.
from _thread import start_new_thread
from collections.abc import Callable
from time import monotonic, process_time
from typing import TYPE_CHECKING, NamedTuple

from fastci_ml.execution.cuda_peaks import CudaPeak, peak_between, read_peaks
from fastci_ml.records.gpu import Attribution, GpuProblem, GpuUsage
from fastci_ml.sources.gpu.driver import find_no_driver

if TYPE_CHECKING:
    from fastci_ml.sources.gpu.reader import GpuReader
    from fastci_ml.sources.gpu.sampler import GpuSampler

_STATUS = "/proc/self/status"
_STATUS_BYTES = 65536  # the groups of a user stand before what we look for
_RESIDENT = re.compile(rb"\nVmHWM:\s*(\d+) kB\nVmRSS:\s*(\d+) kB\n")
# Memory that comes so near to the highest of the process is as good as the highest.
_NEAR = 0.98
# From one test to the next: what was read of memory is read again after a longer pause. It costs most of all.
_SAME_S = 0.05


class Resources(NamedTuple):
    """What one test took, as the fields of `RunFacts` of the same names have it; None is "not known"."""

    cpu_s: float | None = None
    peak_rss_bytes: int | None = None
    n_gpus: int | None = None
    gpu_s: float | None = None
    gpu_peak_bytes: int | None = None
    gpu_by: str = ""


class _Reading(NamedTuple):
    at_s: float
    cpu_s: float
    resident: tuple[int, int] | None
    cuda: tuple[int, ...] | None


class ResourceMeter:
    """Measures the tests of one process, one after the other.

    Parameters
    ----------
    clock : callable
        Monotonic seconds, those of the GPU samples.

    Attributes
    ----------
    took : Resources
        Of the test that ended last; all unknown from the next one's beginning on.
    first_problem : GpuProblem or None
        Why no GPU can be read, where that was clear at the start.
    """

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self.took = Resources()
        self.first_problem: GpuProblem | None = None
        self._sampler: GpuSampler | None = None
        self._reader: GpuReader | None = None
        # What every window holds, once it is clear that no sample will ever tell more.
        self._settled: GpuUsage | None = None
        # Bound early, as attributes: tests put others in the place of what modules hold.
        self._clock = clock
        self._process_time, self._times = process_time, os.times
        self._open, self._read, self._close = os.open, os.read, os.close
        self._before: _Reading | None = None
        self._latest: _Reading | None = None

    @property
    def is_sampling(self) -> bool:
        """Whether the thread runs that reads GPUs."""
        return self._sampler is not None and self._sampler.is_running

    @property
    def later_problem(self) -> GpuProblem | None:
        """What the driver said after the start, or None."""
        return None if self._sampler is None else self._sampler.problem

    def start(self, reader: GpuReader | None = None) -> None:
        """Begin to read GPUs, where there may be any; from the main thread, as the bindings are imported.

        Parameters
        ----------
        reader : GpuReader, optional
            What to ask; the driver of this machine by default.
        """
        if reader is None:
            self.first_problem = find_no_driver()
            if self.first_problem is not None:
                return
            from fastci_ml.sources.gpu.reader import GpuReader

            reader = GpuReader()
            self.first_problem = reader.problem
            if self.first_problem is not None:
                return
        from fastci_ml.sources.gpu.sampler import GpuSampler

        self._reader, self._sampler = reader, GpuSampler(reader, start_thread=start_new_thread)
        self._sampler.start()

    def finish(self) -> None:
        """End the thread; does nothing where there is none."""
        if self._sampler is not None:
            self._sampler.stop()

    def begin(self) -> None:
        """Before a test."""
        self.took, self._before = Resources(), None
        self._settle()
        if self._sampler is not None and self._settled is None:
            self._sampler.resume()
        self._before = self._now(self._latest)

    def end(self) -> None:
        """After the test: what it took is `took`."""
        before, self._before = self._before, None
        if before is None:
            return
        after = self._latest = self._now()
        took = Resources(cpu_s=max(0.0, after.cpu_s - before.cpu_s), peak_rss_bytes=_peak_rss(before, after))
        usage = self._usage(before.at_s, after.at_s)
        self.took = _with_gpus(took, usage, peak_between(before.cuda, after.cuda))

    def _now(self, earlier: _Reading | None = None) -> _Reading:
        at_s = self._clock()
        if earlier is not None and at_s - earlier.at_s > _SAME_S:
            earlier = None
        children = self._times()
        return _Reading(
            at_s=at_s,
            # Of the process to the microsecond; of children as the kernel has it here, to 0.01 s.
            cpu_s=self._process_time() + children.children_user + children.children_system,
            resident=earlier.resident if earlier else self._resident(),
            cuda=earlier.cuda if earlier else read_peaks(),
        )

    def _resident(self) -> tuple[int, int] | None:
        """The most bytes that the process held so far, and those that it holds; None where not told."""
        try:
            handle = self._open(_STATUS, os.O_RDONLY)
            try:
                found = _RESIDENT.search(self._read(handle, _STATUS_BYTES))
            finally:
                self._close(handle)
        except OSError:
            return None
        return (int(found[1]) << 10, int(found[2]) << 10) if found else None

    def _usage(self, start_s: float, end_s: float) -> GpuUsage:
        if self._settled is not None or self._sampler is None:
            return self._settled or GpuUsage()
        usage = self._sampler.usage(start_s, end_s)
        self._sampler.forget(end_s)
        return usage

    def _settle(self) -> None:
        """End the thread where NVML gave up or shows no devices: nothing will come of it."""
        if self._sampler is None or self._reader is None or self._settled is not None:
            return
        for sample in self._sampler.samples()[-1:]:
            if sample.readings == () or (sample.readings is None and self._reader.problem is not None):
                self._settled = self._sampler.usage(sample.at_s, sample.at_s)
                self._sampler.stop()


def _peak_rss(before: _Reading, after: _Reading) -> int | None:
    """Most bytes that the process held in between, as far as the kernel can tell.

    It keeps the highest of all time. What rose was reached in between, and is exact. Where it stayed, the
    highest of the test lies between what the process held at its ends and that: told if these are near.
    """
    if before.resident is None or after.resident is None:
        return None
    (highest_before, held_before), (highest, held) = before.resident, after.resident
    if highest > highest_before:
        return highest
    # One that fell was reset in between, and says nothing of the time before.
    is_near = highest == highest_before and max(held_before, held) >= _NEAR * highest
    return highest if is_near else None


def _with_gpus(took: Resources, usage: GpuUsage, cuda: CudaPeak | None) -> Resources:
    """Add what NVML saw of the machine and torch of itself.

    Of the two peaks the larger: samples miss what comes and goes between them, torch knows neither what other
    libraries and processes hold nor the memory of a CUDA context.
    """
    n_gpus, gpu_s, peak_bytes, by = usage.n_gpus, usage.gpu_s, usage.peak_bytes, usage.by
    if cuda is not None:
        if n_gpus is None and gpu_s is None and peak_bytes is None:
            by = Attribution.PROCESS
        peak_bytes = max(peak_bytes or 0, cuda.peak_bytes)
        if n_gpus is not None and n_gpus < cuda.n_devices:
            # Taken up between two samples: for how long, nobody saw.
            n_gpus, gpu_s = cuda.n_devices, None
    is_unknown = n_gpus is None and gpu_s is None and peak_bytes is None
    return took._replace(
        n_gpus=n_gpus, gpu_s=gpu_s, gpu_peak_bytes=peak_bytes, gpu_by="" if is_unknown else by.value
    )

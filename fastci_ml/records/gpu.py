"""What was read of GPUs: devices, samples, what one window of time held, and why nothing could be read.

In every field None means "not known". Zero is only said where it was seen to be zero.

Named tuples, not frozen dataclasses as elsewhere: six of those take 8 ms to define, in every process that
runs tests.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class GpuKind(StrEnum):
    """What stands behind one CUDA device."""

    GPU = "gpu"
    MIG = "mig"  # one compute instance of a GPU in MIG mode
    VGPU = "vgpu"  # what a hypervisor gives to this virtual machine


class Attribution(StrEnum):
    """How a reading was tied to the processes that were asked for."""

    PROCESS = "process"  # by process ids that were seen to match
    DEVICE = "device"  # by the devices that the process may use: an upper bound
    UNKNOWN = "unknown"


class GpuProblem(NamedTuple):
    """Why GPU readings are missing, in one line, and what to type.

    Attributes
    ----------
    slug : str
        Stable short name, such as ``library-not-found``.
    reason : str
        What was found.
    hint : str
        A command to type, or a setting to change.
    """

    slug: str
    reason: str
    hint: str

    def __str__(self) -> str:
        return f"GPU readings are missing: {self.reason}"


class GpuDevice(NamedTuple):
    """One device that CUDA can use: a GPU, a MIG compute instance, or a virtual GPU.

    Attributes
    ----------
    uuid : str
        As NVML spells it.
    gpu_index : int
        NVML's index of the GPU, of the parent for a MIG instance.
    name : str
        Product name; empty where unknown.
    kind : GpuKind
        What it is.
    total_bytes : int or None
        Its memory.
    share : float or None
        Compute slices that it has, of those of its GPU: 1.0 but for MIG. The shares of one GPU's instances
        sum to at most 1.
    parent_uuid : str or None
        UUID of the GPU of a MIG instance.
    gpu_instance, compute_instance : int or None
        MIG ids within the GPU.
    """

    uuid: str
    gpu_index: int
    name: str = ""
    kind: GpuKind = GpuKind.GPU
    total_bytes: int | None = None
    share: float | None = 1.0
    parent_uuid: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class GpuProcess(NamedTuple):
    """A process that NVML lists on a device; the id may be of another pid namespace."""

    pid: int
    used_bytes: int | None = None


class DeviceReading(NamedTuple):
    """One device at one time.

    Attributes
    ----------
    uuid : str
        Of the device.
    share : float or None
        As in `GpuDevice`.
    by : Attribution
        How `held_ratio` and `held_bytes` were found.
    held_ratio : float or None
        Part of the device that the process tree held. By process: its share of the processes listed there,
        so that concurrent trees sum to at most 1. By device: 1.0 or 0.0, whether the tree may use the device.
    held_bytes : int or None
        By process: what the tree's processes used. By device: all that is used on the device.
    holders : frozenset of int
        The tree's processes on the device; empty unless by process.
    used_bytes : int or None
        Used on the device by anyone, without what the driver keeps for itself where NVML tells them apart.
    utilization_ratio : float or None
        Part of NVML's last sampling period in which a kernel ran; always None on MIG.
    processes : tuple of GpuProcess or None
        All processes listed.
    """

    uuid: str
    share: float | None = 1.0
    by: Attribution = Attribution.UNKNOWN
    held_ratio: float | None = None
    held_bytes: int | None = None
    holders: frozenset[int] = frozenset()
    used_bytes: int | None = None
    utilization_ratio: float | None = None
    processes: tuple[GpuProcess, ...] | None = None


class GpuSample(NamedTuple):
    """All devices at one time.

    Attributes
    ----------
    at_s : float
        ``time.monotonic()``: the wall clock may step.
    reach_s : float
        Seconds before and after for which the sample speaks where no other is nearer.
    readings : tuple of DeviceReading or None
        Empty where there are no devices, None where nothing is known.
    """

    at_s: float
    reach_s: float = 1.0
    readings: tuple[DeviceReading, ...] | None = None


class GpuUsage(NamedTuple):
    """What a process tree held in one window of time, such as a test.

    Attributes
    ----------
    n_gpus : int or None
        Devices held at any time in the window; a MIG instance counts as one.
    gpu_s : float or None
        Seconds times part of a whole GPU held. None if any of the window is unknown.
    peak_bytes : int or None
        Highest memory seen over all held devices together: a lower bound, as between samples nobody looks.
    utilization_ratio : float or None
        Mean over the time in which it was known for every held device, weighted by share.
    by : Attribution
        The weakest attribution within.
    """

    n_gpus: int | None = None
    gpu_s: float | None = None
    peak_bytes: int | None = None
    utilization_ratio: float | None = None
    by: Attribution = Attribution.UNKNOWN

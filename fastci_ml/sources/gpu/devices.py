"""The devices that NVML shows: whole GPUs, MIG instances with their slices, virtual GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastci_ml.records.gpu import GpuDevice, GpuKind, GpuProblem
from fastci_ml.sources.gpu.nvml import Nvml, NvmlError

_MIG_ENABLED = 1
_VGPU_MODE = 2  # NVML_GPU_VIRTUALIZATION_MODE_VGPU: this machine is the guest
# `MIG 1c.3g.20gb`: compute slices where they are not all of the instance's, its slices, its memory.
_MIG_NAME = re.compile(r"\bMIG (?:(\d+)c\.)?(\d+)g\.")


class FoundDevices(NamedTuple):
    """What an enumeration found.

    Attributes
    ----------
    driver : str
        Its version; empty where NVML does not say.
    devices : list of (GpuDevice, handle)
        In NVML's order.
    problems : list of GpuProblem
        Why GPUs could not be opened.
    is_complete : bool
        Whether each GPU stands for at least one device: else CUDA may count them differently.
    """

    driver: str
    devices: list[tuple[GpuDevice, Any]]
    problems: list[GpuProblem]
    is_complete: bool


def find_devices(nvml: Nvml) -> FoundDevices:
    """Enumerate the devices.

    Parameters
    ----------
    nvml : Nvml
        Initialised.

    Returns
    -------
    FoundDevices
        A GPU that cannot be opened is left out: CUDA cannot use it either, and its handle is not to be used.

    Raises
    ------
    NvmlError
        If NVML does not even count its GPUs.
    """
    driver = nvml.find_text("nvmlSystemGetDriverVersion")
    devices: list[tuple[GpuDevice, Any]] = []
    problems: list[GpuProblem] = []
    is_complete = True
    for index in range(nvml.ask("nvmlDeviceGetCount")):
        n_before = len(devices)
        try:
            handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
        except NvmlError as error:
            reason = f"GPU {index} cannot be opened: {error.text}"
            problems.append(GpuProblem(slug="gpu-unusable", reason=reason, hint="sudo dmesg | grep -i xid"))
        else:
            devices.extend(_devices_of(nvml, index, handle))
        is_complete = is_complete and len(devices) > n_before
    return FoundDevices(driver=driver, devices=devices, problems=problems, is_complete=is_complete)


def _devices_of(nvml: Nvml, index: int, handle: Any) -> Iterator[tuple[GpuDevice, Any]]:
    """The GPU itself, or its instances in MIG mode: then CUDA cannot use it as a whole."""
    # One without a UUID is still told apart from the others.
    uuid = nvml.find_text("nvmlDeviceGetUUID", handle) or f"index-{index}"
    mode = nvml.find("nvmlDeviceGetMigMode", handle)
    if mode is not None and mode[0] == _MIG_ENABLED:
        yield from _instances_of(nvml, index, uuid, handle)
        return
    is_guest = nvml.find("nvmlDeviceGetVirtualizationMode", handle) == _VGPU_MODE
    device = GpuDevice(
        uuid=uuid,
        gpu_index=index,
        name=nvml.find_text("nvmlDeviceGetName", handle),
        kind=GpuKind.VGPU if is_guest else GpuKind.GPU,
        total_bytes=_total_bytes(nvml, handle),
    )
    yield device, handle


def _instances_of(nvml: Nvml, index: int, parent: str, handle: Any) -> Iterator[tuple[GpuDevice, Any]]:
    # As many instances as the GPU has compute slices: 7 on A100 and H100, 4 on A30.
    n_slices = nvml.find("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    for place in range(n_slices):
        instance = nvml.find("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        uuid = "" if instance is None else nvml.find_text("nvmlDeviceGetUUID", instance)
        if not uuid:
            # Most places are empty: an instance takes that of several slices, or is not ours to see.
            continue
        name = nvml.find_text("nvmlDeviceGetName", instance)
        device = GpuDevice(
            uuid=uuid,
            gpu_index=index,
            name=name,
            kind=GpuKind.MIG,
            total_bytes=_total_bytes(nvml, instance),
            share=_share(nvml, instance, name, n_slices),
            parent_uuid=parent,
            gpu_instance=nvml.find("nvmlDeviceGetGpuInstanceId", instance),
            compute_instance=nvml.find("nvmlDeviceGetComputeInstanceId", instance),
        )
        yield device, instance


def _share(nvml: Nvml, instance: Any, name: str, n_slices: int) -> float | None:
    """Compute slices of an instance, of those of its GPU; memory slices may be more (1g.10gb)."""
    attributes = nvml.find("nvmlDeviceGetAttributes", instance)
    n_own = getattr(attributes, "computeInstanceSliceCount", 0) or 0
    if not n_own and (match := _MIG_NAME.search(name)):
        n_own = int(match[1] or match[2])
    return n_own / n_slices if 0 < n_own <= n_slices else None


def _total_bytes(nvml: Nvml, handle: Any) -> int | None:
    try:
        # Where the GPU shares the memory of the machine NVML refuses, or answers with zeros.
        return int(nvml.memory(handle).total) or None
    except NvmlError:
        return None

"""The reader of GPU readings: what a process tree holds on the GPUs of this machine.

It runs inside test processes, so it never raises, never warns, logs nothing (a test may count log records)
and never shuts NVML down (a thread may still be inside). What it could not read is None, and
`GpuReader.problem` says why; the caller shows that once. A call can hang in the driver: only threads that may
hang call it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fastci_ml.records.gpu import (
    Attribution,
    DeviceReading,
    GpuDevice,
    GpuKind,
    GpuProblem,
    GpuProcess,
    GpuSample,
)
from fastci_ml.sources.gpu.devices import find_devices
from fastci_ml.sources.gpu.lineage import Lineage
from fastci_ml.sources.gpu.nvml import GONE, Nvml, NvmlError, load_nvml
from fastci_ml.sources.gpu.problems import Code, explain
from fastci_ml.sources.gpu.visible import find_visible

# Linux allows no higher process id; what is beyond, or 0, comes from bindings that disagree with the driver
# on the layout of the list (nvitop issue 75).
_HIGHEST_PID = 2**22
_SCRAMBLED = "scrambled: nvidia-ml-py does not fit the driver"
# Asked once: a device that refuses so will do so again, and each call costs.
_LASTING = (Code.NOT_SUPPORTED, Code.NO_PERMISSION, Code.FUNCTION_NOT_FOUND)


class GpuReader:
    """Reads what a process tree holds on the GPUs of this machine.

    Parameters
    ----------
    root_pid : int, optional
        Top of the process tree; this process by default.
    nvml : module, optional
        NVIDIA's bindings; imported by default. Construct in the main thread then, see `load_nvml`.
    environ : mapping of str to str, optional
        Decides which devices the tree may use; that of this process by default.
    proc : Path
        The proc file system.

    Attributes
    ----------
    problem : GpuProblem or None
        The first reason for which nothing is known, or a device was lost.
    refusals : dict of (str, str) to NvmlError
        What single devices do not tell: (UUID, "memory", "processes" or "utilization") -> NVML's answer.
    driver : str
        Version of the driver; empty while unknown.
    """

    def __init__(
        self,
        *,
        root_pid: int | None = None,
        nvml: Any = None,
        environ: Mapping[str, str] | None = None,
        proc: Path = Path("/proc"),
    ) -> None:
        self.problem: GpuProblem | None = None
        self.driver = ""
        if nvml is None:
            nvml, self.problem = load_nvml()
        # None once it is given up for good.
        self._nvml = None if nvml is None else Nvml(nvml)
        self._environ = dict(os.environ if environ is None else environ)
        self._lineage = Lineage(os.getpid() if root_pid is None else root_pid, proc)
        # Whether NVML was seen to list one of our ids: until then its silence says nothing (containers).
        self._has_matched = False
        self._forget()

    def devices(self) -> tuple[GpuDevice, ...] | None:
        """All devices that NVML shows, in its order; None if unknown. May hang in the driver."""
        return None if self._opened() is None else tuple(device for device, _ in self._devices)

    def visible(self) -> frozenset[str] | None:
        """UUIDs of the devices that the tree may use; None if unknown. May hang in the driver."""
        return None if self._opened() is None else self._visible

    def read(self, now_s: float | None = None, *, reach_s: float = 1.0) -> GpuSample:
        """Read every device once.

        Parameters
        ----------
        now_s : float, optional
            Time of the sample; ``time.monotonic()`` by default.
        reach_s : float
            Seconds around it for which the sample speaks.

        Returns
        -------
        GpuSample
            With readings None where nothing is known. Never raises; may hang in the driver.
        """
        at_s = time.monotonic() if now_s is None else now_s
        for is_last in (False, True):
            nvml = self._opened()
            if nvml is None:
                break
            try:
                readings = tuple(self._read_device(nvml, device, handle) for device, handle in self._devices)
            except NvmlError as refusal:
                # Other code of this process shut NVML down, and our handles are void: open it once more.
                self._forget()
                if is_last:
                    self._give_up(refusal)
            else:
                return GpuSample(at_s=at_s, reach_s=reach_s, readings=readings)
        return GpuSample(at_s=at_s, reach_s=reach_s)

    def _forget(self) -> None:
        self._pid: int | None = None
        self._devices: list[tuple[GpuDevice, Any]] = []
        self._visible: frozenset[str] | None = None
        self._lost: set[str] = set()
        self.refusals: dict[tuple[str, str], NvmlError] = {}

    def _give_up(self, refusal: NvmlError) -> None:
        self.problem = self.problem or explain(refusal.code, refusal.text, self._environ)
        self._nvml = None

    def _opened(self) -> Nvml | None:
        """NVML, initialised in this process: a fork inherits neither its state nor its handles."""
        if self._nvml is None or self._pid == os.getpid():
            return self._nvml
        self._forget()
        try:
            self._nvml.ask("nvmlInit")
            found = find_devices(self._nvml)
        except NvmlError as refusal:
            self._give_up(refusal)
            return None
        self.problem = self.problem or next(iter(found.problems), None)
        devices = [device for device, _ in found.devices]
        self._visible = find_visible(devices, self._environ, is_complete=found.is_complete)
        self._devices, self.driver, self._pid = found.devices, found.driver, os.getpid()
        return self._nvml

    def _read_device(self, nvml: Nvml, device: GpuDevice, handle: Any) -> DeviceReading:
        memory = self._ask(device, "memory", lambda: nvml.memory(handle))
        listed = self._ask(device, "processes", lambda: nvml.processes(handle))
        rates = None
        if device.kind is not GpuKind.MIG:
            # "Not currently supported" there by NVML's manual, whatever a driver answers: 0 would be a lie.
            rates = self._ask(
                device, "utilization", lambda: nvml.ask("nvmlDeviceGetUtilizationRates", handle)
            )
        if device.uuid in self._lost:
            # Found out by the last of three answers, perhaps: the others are worth nothing.
            return DeviceReading(uuid=device.uuid, share=device.share)
        used_bytes = _used_bytes(memory)
        processes = None if listed is None else tuple(_process(one, device.total_bytes) for one in listed)
        if any(not 0 < process.pid <= _HIGHEST_PID for process in processes or ()):
            processes = None
            self.refusals[device.uuid, "processes"] = NvmlError(Code.UNKNOWN, _SCRAMBLED)
        by, holders = self._attribute(processes)
        held_ratio, held_bytes = self._held(device, used_bytes, processes or (), by, holders)
        return DeviceReading(
            uuid=device.uuid,
            share=device.share,
            by=Attribution.UNKNOWN if held_ratio is None else by,
            held_ratio=held_ratio,
            held_bytes=held_bytes,
            holders=holders,
            used_bytes=used_bytes,
            utilization_ratio=_ratio(getattr(rates, "gpu", None)),
            processes=processes,
        )

    def _ask(self, device: GpuDevice, what: str, call: Callable[[], Any]) -> Any:
        """Answer of NVML, or None where it refuses; raises `NvmlError` only if NVML is not initialised."""
        key = (device.uuid, what)
        if device.uuid in self._lost or (key in self.refusals and self.refusals[key].code in _LASTING):
            return None
        try:
            answer = call()
        except NvmlError as refusal:
            if refusal.code == Code.UNINITIALIZED:
                raise
            self.refusals[key] = refusal
            if refusal.code in GONE:
                self._lost.add(device.uuid)
                told = explain(refusal.code, refusal.text)
                told = told._replace(reason=f"{told.reason}: {device.uuid}")
                self.problem = self.problem or told
            return None
        self.refusals.pop(key, None)
        return answer

    def _attribute(self, processes: tuple[GpuProcess, ...] | None) -> tuple[Attribution, frozenset[int]]:
        """Say which of the processes are ours, if their ids can be trusted."""
        by_device: tuple[Attribution, frozenset[int]] = (Attribution.DEVICE, frozenset())
        if processes is None:
            return by_device
        ours = {process.pid: self._lineage.belongs(process.pid) for process in processes}
        if None in ours.values():
            # Ids of another namespace: one that equals ours would do so by chance.
            return by_device
        holders = frozenset(pid for pid, is_ours in ours.items() if is_ours)
        self._has_matched = self._has_matched or bool(holders)
        if holders or (self._has_matched and not any(map(self._lineage.is_mps_server, ours))):
            return Attribution.PROCESS, holders
        return by_device

    def _held(
        self,
        device: GpuDevice,
        used_bytes: int | None,
        processes: tuple[GpuProcess, ...],
        by: Attribution,
        holders: frozenset[int],
    ) -> tuple[float | None, int | None]:
        """Part of the device that the tree holds, and the memory that goes with it."""
        if by is Attribution.PROCESS:
            ours = [process for process in processes if process.pid in holders]
            return (len(ours) / len(processes) if processes else 0.0), _sum(one.used_bytes for one in ours)
        if self._visible is None:
            return None, None
        return (1.0, used_bytes) if device.uuid in self._visible else (0.0, 0)


def _used_bytes(memory: Any) -> int | None:
    """Memory in use; None where NVML gives no figures, or impossible ones."""
    if memory is None or not 0 <= memory.used <= memory.total or not memory.total:
        return None
    reserved = getattr(memory, "reserved", 0)
    # By NVML's manual up to R525 the second version counts the reserved part as used; drivers do not.
    is_within = memory.used + memory.free + reserved > memory.total
    return int(memory.used - reserved) if is_within and memory.used >= reserved else int(memory.used)


def _process(listed: Any, total_bytes: int | None) -> GpuProcess:
    used = listed.usedGpuMemory
    # Hidden memory is None, 2**64 - 1 in old bindings, or 0 in some containers (HAMi-core issue 112), where a
    # compute context alone takes megabytes; and nothing has more than the device.
    is_sane = isinstance(used, int) and 0 < used <= (2**50 if total_bytes is None else total_bytes)
    return GpuProcess(pid=listed.pid, used_bytes=used if is_sane else None)


def _ratio(percent: Any) -> float | None:
    return percent / 100 if isinstance(percent, int) and 0 <= percent <= 100 else None


def _sum(parts: Iterable[int | None]) -> int | None:
    found = list(parts)
    return None if None in found else sum(part or 0 for part in found)

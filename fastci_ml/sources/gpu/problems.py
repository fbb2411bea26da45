"""NVML's error codes in words that help: what was found, and what to type."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

from fastci_ml.records.gpu import GpuProblem


class Code(IntEnum):
    """The ``nvmlReturn_t`` values that the reader tells apart; old bindings lack names for some."""

    UNINITIALIZED = 1
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    VERSION_MISMATCH = 18
    UNKNOWN = 999


# Code -> slug, what was found, hint.
_WORDS = {
    Code.UNINITIALIZED: (
        "uninitialized",
        "NVML was shut down by other code of this process",
        "look for a call of nvmlShutdown without its nvmlInit",
    ),
    Code.NO_PERMISSION: (
        "no-permission",
        "this user may not talk to the NVIDIA driver",
        "ls -l /dev/nvidiactl /dev/nvidia0",
    ),
    Code.DRIVER_NOT_LOADED: (
        "driver-not-loaded",
        "the NVIDIA driver is installed but not loaded",
        "sudo modprobe nvidia && nvidia-smi",
    ),
    Code.GPU_IS_LOST: (
        "gpu-is-lost",
        "a GPU has fallen off the bus",
        "sudo dmesg | grep -i xid, then restart the machine",
    ),
    Code.RESET_REQUIRED: ("reset-required", "a GPU needs a reset", "sudo dmesg | grep -i xid"),
    Code.OPERATING_SYSTEM: (
        "blocked",
        "the operating system or a control group blocks the GPU",
        "ls -l /dev/nvidia*",
    ),
    Code.VERSION_MISMATCH: (
        "version-mismatch",
        "the NVIDIA driver in the kernel is of another version than its library",
        "cat /proc/driver/nvidia/version; restart the machine, or the container after it",
    ),
    Code.UNKNOWN: (
        "unknown-error",
        "NVML fails with an unknown error; a container loses its GPUs so when systemd reloads on the host",
        "nvidia-smi; in a container: start it again",
    ),
}


def explain(
    code: int, text: str = "", environ: Mapping[str, str] | None = None, devices: Path = Path("/dev")
) -> GpuProblem:
    """Say why NVML refused.

    Parameters
    ----------
    code : int
        NVML's return value.
    text : str
        NVML's own words, for codes that we have none for.
    environ : mapping of str to str, optional
        Environment of the process: it tells a container without GPUs from a machine without a driver.
    devices : Path
        Folder of the device nodes.

    Returns
    -------
    GpuProblem
        One line and a hint.

    Examples
    --------
    >>> print(explain(18).reason)
    the NVIDIA driver in the kernel is of another version than its library
    >>> explain(23, "Insufficient Resources").reason
    'NVML failed with code 23: Insufficient Resources'
    """
    if code == Code.LIBRARY_NOT_FOUND:
        return _no_library(environ or {}, devices)
    if code in _WORDS:
        slug, reason, hint = _WORDS[Code(code)]
        return GpuProblem(slug=slug, reason=reason, hint=hint)
    return GpuProblem(
        slug=f"nvml-{code}", reason=f"NVML failed with code {code}: {text or 'no words'}", hint="nvidia-smi"
    )


def _no_library(environ: Mapping[str, str], devices: Path) -> GpuProblem:
    slug, asked = "library-not-found", environ.get("NVIDIA_VISIBLE_DEVICES")
    if (devices / "nvidiactl").exists():
        # CUDA may well work here: the container toolkit mounts libcuda and libnvidia-ml separately.
        return GpuProblem(
            slug=slug,
            reason="libnvidia-ml.so.1 is missing although the NVIDIA driver is there",
            hint="start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    if asked in ("void", "none"):
        return GpuProblem(
            slug=slug,
            reason=f"this container was started without GPUs (NVIDIA_VISIBLE_DEVICES={asked})",
            hint="docker run --gpus all ...",
        )
    return GpuProblem(
        slug=slug,
        reason="libnvidia-ml.so.1 is not found: no NVIDIA driver here",
        hint="nvidia-smi; nothing to do on a machine without NVIDIA GPUs",
    )

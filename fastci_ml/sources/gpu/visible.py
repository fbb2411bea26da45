"""Which devices a process may use: the rules of ``CUDA_VISIBLE_DEVICES``.

``NVIDIA_VISIBLE_DEVICES`` is no rule for processes: the container toolkit reads it when a container starts,
NVML and CUDA then show what it let in (in a privileged container: everything), and NVIDIA's base images set
it to ``all`` on machines without any GPU.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from fastci_ml.records.gpu import GpuDevice, GpuKind

_LEADING_NUMBER = re.compile(r"[+-]?[0-9]+")
# The spelling of drivers before R470: parent, GPU instance, compute instance.
_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-f-]+)/(\d+)/(\d+)")


def find_visible(
    devices: Sequence[GpuDevice], environ: Mapping[str, str], *, is_complete: bool = True
) -> frozenset[str] | None:
    """Say which devices CUDA shows to a process.

    Parameters
    ----------
    devices : sequence of GpuDevice
        All devices that NVML shows, in its order.
    environ : mapping of str to str
        The environment that the process started with.
    is_complete : bool
        Whether every GPU could be read: CUDA does not count those that cannot be used.

    Returns
    -------
    frozenset of str or None
        UUIDs; None where numbers cannot be tied to devices: CUDA counts the fastest first unless
        ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID``, NVML by bus.

    Notes
    -----
    CUDA C++ Programming Guide, "CUDA Environment Variables"; MIG User Guide, "CUDA Device Enumeration": of
    several MIG instances CUDA uses the first, and no whole GPU beside it.

    Examples
    --------
    >>> two = [GpuDevice(uuid="GPU-1a", gpu_index=0), GpuDevice(uuid="GPU-2b", gpu_index=1)]
    >>> sorted(find_visible(two, {}))
    ['GPU-1a', 'GPU-2b']
    >>> sorted(find_visible(two, {"CUDA_VISIBLE_DEVICES": "1,-1,0"}))
    ['GPU-2b']
    >>> sorted(find_visible(two, {"CUDA_VISIBLE_DEVICES": "GPU-2"}))
    ['GPU-2b']
    """
    given = environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return _usable(devices)
    if given.startswith("MIG-"):
        return _by_name(given, "MIG-", [d for d in devices if d.kind is GpuKind.MIG])
    if given.startswith("GPU-"):
        return _by_gpu_name(given, devices)
    return _by_number(given, devices, environ, is_complete)


def _usable(devices: Sequence[GpuDevice]) -> frozenset[str]:
    """Devices that CUDA enumerates, of those that it may."""
    instances = [device for device in devices if device.kind is GpuKind.MIG]
    return frozenset(device.uuid for device in (instances[:1] or devices))


def _by_name(given: str, prefix: str, candidates: Sequence[GpuDevice]) -> frozenset[str]:
    words = list(itertools.takewhile(lambda word: word.startswith(prefix), given.split(",")))
    found: list[str] = []
    for word in words:
        matching = [device.uuid for device in candidates if _is_named(device, word)]
        if len(matching) != 1:
            break  # names nothing, or more than one: the list ends here
        found += matching
    # A device named twice leaves none; so does a word, even where the list has ended before.
    is_repeated = len(set(words)) < len(words) or len(set(found)) < len(found)
    return frozenset() if is_repeated else frozenset(found)


def _is_named(device: GpuDevice, word: str) -> bool:
    if old := _OLD_MIG.fullmatch(word):
        ids = (device.parent_uuid, device.gpu_instance, device.compute_instance)
        return ids == (old[1], int(old[2]), int(old[3]))
    return device.uuid.startswith(word)


def _by_gpu_name(given: str, devices: Sequence[GpuDevice]) -> frozenset[str]:
    """Devices of the GPUs that are named; a GPU in MIG mode stands for its instances."""
    gpus = {d.parent_uuid or d.uuid: d for d in devices}
    named = _by_name(given, "GPU-", [GpuDevice(uuid=uuid, gpu_index=d.gpu_index) for uuid, d in gpus.items()])
    return _usable([device for device in devices if (device.parent_uuid or device.uuid) in named])


def _by_number(
    given: str, devices: Sequence[GpuDevice], environ: Mapping[str, str], is_complete: bool
) -> frozenset[str] | None:
    gpus = sorted({device.gpu_index for device in devices})
    # As strtoul reads them: `1gpu` is 1, and what is no number ends the list.
    numbers = [_LEADING_NUMBER.match(word.strip()) for word in given.split(",")]
    asked = itertools.takewhile(
        lambda place: place >= 0, (int(found[0]) if found else -1 for found in numbers)
    )
    places = list(asked)
    if len(set(places)) < len(places):
        return frozenset()
    chosen = list(itertools.takewhile(lambda place: place < len(gpus), places))
    products = {device.name.partition(" MIG ")[0] for device in devices}
    # Of equal GPUs none is the fastest, and the whole set is the same in any order.
    is_same_order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len(products) <= 1
    is_certain = is_same_order or len(chosen) in (0, len(gpus))
    if places and not (is_complete and is_certain):
        return None
    indices = {gpus[place] for place in chosen}
    return _usable([device for device in devices if device.gpu_index in indices])

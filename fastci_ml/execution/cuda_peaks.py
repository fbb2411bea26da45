"""The most GPU memory that torch gave out, where a test has torch loaded and CUDA initialised already.

Nothing here imports torch, initialises CUDA or resets a counter: a test may look at any of them.
"""

from __future__ import annotations

import sys
from typing import NamedTuple


class CudaPeak(NamedTuple):
    """What torch's allocator gave out during a test.

    Attributes
    ----------
    n_devices : int
        Devices that it came from.
    peak_bytes : int
        The most, as ``torch.cuda.max_memory_allocated`` has it; of several devices the sum, though each may
        have had its most at another time.
    """

    n_devices: int
    peak_bytes: int


def read_peaks() -> tuple[int, ...] | None:
    """Most bytes given out so far on each device of this process; empty before CUDA is initialised.

    Returns
    -------
    tuple of int or None
        In torch's order; None where torch does not tell.
    """
    # Not by way of `torch`: the attribute of a module that is loaded lazily would load it.
    cuda = sys.modules.get("torch.cuda")
    if cuda is None:
        return ()
    try:
        if cuda.is_initialized() is not True:
            return ()
        # `max_memory_allocated` itself builds a table of all its figures, ten times as long.
        stats = [cuda.memory_stats_as_nested_dict(number) for number in range(cuda.device_count())]
        peaks = tuple(one["allocated_bytes"]["all"]["peak"] for one in stats)
    except Exception:  # noqa: BLE001  foreign code, which a test may have replaced or an allocator may lack
        return None
    return peaks if all(type(peak) is int and peak >= 0 for peak in peaks) else None


def peak_between(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> CudaPeak | None:
    """Tell what was given out between two readings.

    Parameters
    ----------
    before, after : tuple of int or None
        From `read_peaks`.

    Returns
    -------
    CudaPeak or None
        None where no peak changed: it is from before then, and nobody knows what came up to it.

    Notes
    -----
    A peak that rose was reached in between, so it is exact. One that fell was reset in between, by the
    program, and reached after that: the time before may have had more.

    Examples
    --------
    >>> peak_between((), (512, 0))
    CudaPeak(n_devices=1, peak_bytes=512)
    >>> peak_between((512, 64), (512, 0)) is None
    True
    """
    if before is None or after is None:
        return None
    earlier = before + (0,) * (len(after) - len(before))
    changed = [new for old, new in zip(earlier, after, strict=False) if new != old and new > 0]
    return CudaPeak(n_devices=len(changed), peak_bytes=sum(changed)) if changed else None

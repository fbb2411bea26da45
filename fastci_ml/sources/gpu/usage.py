"""What a window of time held, from samples: pure arithmetic.

A sample speaks for the time that is nearer to it than to any other, at most for its reach. Between two
samples that lie further apart a device counts as held if the same processes held it on both sides (a CUDA
context does not come and go unseen), or if it was known by device, which does not change. All other time is
unknown, and a window that contains any has no GPU-seconds: unknown never becomes 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fastci_ml.records.gpu import Attribution, DeviceReading, GpuSample, GpuUsage


class _Cell(NamedTuple):
    """A stretch of time in which nothing changes; readings are None where nothing is known."""

    start_s: float
    end_s: float
    readings: tuple[DeviceReading, ...] | None


def measure_usage(samples: Iterable[GpuSample], start_s: float, end_s: float) -> GpuUsage:
    """Sum up what was held from `start_s` to `end_s`.

    Parameters
    ----------
    samples : iterable of GpuSample
        In any order.
    start_s, end_s : float
        ``time.monotonic()``; a window may be shorter than the time between samples, or a single moment.

    Returns
    -------
    GpuUsage
        GPU-seconds add up over adjoining windows, and lie within the window times the devices' shares.

    Raises
    ------
    ValueError
        If the window ends before it starts, or is no number.

    Notes
    -----
    Two tests that use one GPU at the same time (xdist workers): by process each gets its part of the
    processes there, and they sum to at most the whole. By device nobody can tell, so each gets the whole: an
    upper bound.

    Examples
    --------
    >>> held = DeviceReading(uuid="GPU-1", by=Attribution.DEVICE, held_ratio=1.0, held_bytes=2**30)
    >>> samples = [GpuSample(at_s=t, readings=(held,)) for t in (0.0, 1.0, 2.0)]
    >>> measure_usage(samples, 0.5, 1.75)
    GpuUsage(n_gpus=1, gpu_s=1.25, peak_bytes=1073741824, utilization_ratio=None,
             by=<Attribution.DEVICE: 'device'>)
    >>> measure_usage(samples, 2.5, 9.0).gpu_s is None
    True
    """
    if not (math.isfinite(start_s) and math.isfinite(end_s) and start_s <= end_s):
        raise ValueError(f"window from {start_s} to {end_s}: expected two times in order")
    cells = list(_clip(_cells(_in_order(samples)), start_s, end_s))
    peak_bytes, utilization_ratio = _peak(cells), _utilization(cells)
    uuids = {reading.uuid for cell in cells for reading in cell.readings or ()}
    if not cells or any(_is_unknown(cell, uuids) for cell in cells):
        return GpuUsage(peak_bytes=peak_bytes, utilization_ratio=utilization_ratio)
    readings = [reading for cell in cells for reading in cell.readings or ()]
    by = Attribution.PROCESS
    if any(reading.by is not Attribution.PROCESS for reading in readings):
        by = Attribution.DEVICE
    return GpuUsage(
        n_gpus=len({reading.uuid for reading in readings if reading.held_ratio}),
        gpu_s=_gpu_seconds(cells),
        peak_bytes=peak_bytes,
        utilization_ratio=utilization_ratio,
        by=by,
    )


def _in_order(samples: Iterable[GpuSample]) -> list[GpuSample]:
    """By time; of several at one time one, whatever order they came in."""
    ordered = sorted(samples, key=lambda sample: sample.at_s)
    if any(a.at_s == b.at_s for a, b in itertools.pairwise(ordered)):
        ordered.sort(key=lambda sample: (sample.at_s, repr(sample)))
        last = {sample.at_s: sample for sample in ordered}
        ordered = list(last.values())
    return ordered


def _cells(samples: Sequence[GpuSample]) -> Iterator[_Cell]:
    """All time, cut where what is known changes."""
    if not samples:
        yield _Cell(-math.inf, math.inf, None)
        return
    yield _Cell(-math.inf, samples[0].at_s - samples[0].reach_s, None)
    start_s = samples[0].at_s - samples[0].reach_s
    for this, following in itertools.pairwise(samples):
        middle_s = (this.at_s + following.at_s) / 2
        end_s = min(middle_s, this.at_s + this.reach_s)
        yield _Cell(start_s, end_s, this.readings)
        start_s = max(middle_s, following.at_s - following.reach_s)
        if end_s < start_s:
            yield _Cell(end_s, start_s, _bridge(this, following))
    last = samples[-1]
    yield _Cell(start_s, last.at_s + last.reach_s, last.readings)
    yield _Cell(last.at_s + last.reach_s, math.inf, None)


def _clip(cells: Iterable[_Cell], start_s: float, end_s: float) -> Iterator[_Cell]:
    """Parts of cells within the window; of a window that is one moment, the first cell there."""
    for cell in cells:
        left_s, right_s = max(cell.start_s, start_s), min(cell.end_s, end_s)
        if left_s < right_s or (start_s == end_s and left_s == right_s):
            yield _Cell(left_s, right_s, cell.readings)
            if start_s == end_s:
                return


def _bridge(before: GpuSample, after: GpuSample) -> tuple[DeviceReading, ...] | None:
    if before.readings is None or after.readings is None:
        return None
    later = {reading.uuid: reading for reading in after.readings}
    if {reading.uuid for reading in before.readings} != set(later):
        return None
    return tuple(_between(reading, later[reading.uuid]) for reading in before.readings)


def _between(before: DeviceReading, after: DeviceReading) -> DeviceReading:
    is_same = (before.by, before.held_ratio, before.holders) == (after.by, after.held_ratio, after.holders)
    # By process, nobody on both sides leaves room for a short visit.
    if is_same and (before.by is Attribution.DEVICE or before.held_ratio):
        return DeviceReading(
            uuid=before.uuid,
            share=before.share,
            by=before.by,
            held_ratio=before.held_ratio,
            holders=before.holders,
        )
    return DeviceReading(uuid=before.uuid, share=before.share)


def _is_unknown(cell: _Cell, uuids: set[str]) -> bool:
    """Whether anything may have been held that is not known: a device that is only at times there, too."""
    if cell.readings is None or len(cell.readings) != len(uuids):
        return True
    return any(reading.held_ratio is None for reading in cell.readings)


def _gpu_seconds(cells: Sequence[_Cell]) -> float | None:
    parts = []
    for cell in cells:
        for reading in cell.readings or ():
            if not reading.held_ratio:
                continue
            if reading.share is None:
                return None
            parts.append((cell.end_s - cell.start_s) * reading.held_ratio * reading.share)
    return math.fsum(parts)


def _held(cell: _Cell) -> list[DeviceReading] | None:
    """Readings of the held devices; None where it is unknown which they are."""
    if cell.readings is None or any(r.held_ratio is None for r in cell.readings):
        return None
    return [reading for reading in cell.readings if reading.held_ratio]


def _peak(cells: Sequence[_Cell]) -> int | None:
    peaks: list[int] = []
    for cell in cells:
        held = _held(cell)
        if held is None or any(reading.held_bytes is None for reading in held):
            continue
        peaks.append(sum(reading.held_bytes or 0 for reading in held))
    return max(peaks, default=None)


def _utilization(cells: Sequence[_Cell]) -> float | None:
    total, weight = 0.0, 0.0
    for cell in cells:
        held = _held(cell)
        if not held or any(r.utilization_ratio is None or r.share is None for r in held):
            continue
        # A window that is one moment has no length, and still a mean.
        length_s = (cell.end_s - cell.start_s) or 1.0
        for reading in held:
            part = length_s * (reading.share or 0.0)
            total += part * (reading.utilization_ratio or 0.0)
            weight += part
    return total / weight if weight else None

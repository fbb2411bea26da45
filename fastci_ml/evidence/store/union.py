"""Which records of one segment are in any of many posting lists."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fastci_ml.evidence.store.postings import BITS, GAPS, WIDE, split, unpack

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def unite(blobs: Iterable[bytes], without: bytes | None, n_records: int) -> list[int]:
    """Numbers that are in any of `blobs` and not in `without`, ascending.

    numpy does it where the caller has it loaded anyway, as `rank` has: at a million tests four times
    faster. Loading it here would cost more than it saves, and is not ours to do in a pinned image.

    Raises
    ------
    ValueError
        If one is no posting list, or reaches past `n_records`.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "frombuffer"):
        return _unite_plain(blobs, without, n_records)
    return _unite_numpy(numpy, blobs, without, n_records)


def _unite_plain(blobs: Iterable[bytes], without: bytes | None, n_records: int) -> list[int]:
    seen: set[int] = set()
    bits = 0
    for blob in blobs:
        kind, body = split(blob)
        if kind == BITS:
            bits |= int.from_bytes(body, "little")
        else:
            seen.update(unpack(blob))
    if bits:
        seen.update(unpack(bytes([BITS]) + bits.to_bytes(bits.bit_length() // 8 + 1, "little")))
    if without is not None:
        seen.difference_update(unpack(without))
    found = sorted(seen)
    if found and found[-1] > n_records:
        raise ValueError(f"posting list holds {found[-1]}, expected at most {n_records}")
    return found


def _unite_numpy(numpy: Any, blobs: Iterable[bytes], without: bytes | None, n_records: int) -> list[int]:
    np = numpy
    lists: dict[int, list[bytes]] = {GAPS: [], WIDE: []}
    bits = np.zeros(n_records // 8 + 1, np.uint8)
    for blob in blobs:
        kind, body = split(blob)
        if kind == BITS:
            if len(body) > len(bits):
                raise ValueError(f"posting list of {len(body)} bytes, expected at most {len(bits)}")
            part = np.frombuffer(body, np.uint8)
            np.bitwise_or(bits[: len(part)], part, out=bits[: len(part)])
        else:
            lists[kind].append(body)
    mask = np.zeros(len(bits) * 8 + 1, bool)
    mask[1:] = np.unpackbits(bits, bitorder="little")
    try:
        for kind, dtype, skip in ((GAPS, "u1", 255), (WIDE, "<u2", 65535)):
            for numbers in _chunks(np, lists[kind], dtype, skip):
                mask[numbers] = True
        if without is not None:
            mask[unpack(without)] = False
    except IndexError as error:
        raise ValueError(f"posting list reaches past {n_records}") from error
    found: list[int] = np.flatnonzero(mask).tolist()
    if found and found[-1] > n_records:
        raise ValueError(f"posting list holds {found[-1]}, expected at most {n_records}")
    return found


def _chunks(numpy: Any, bodies: list[bytes], dtype: str, skip: int) -> Iterable[npt.NDArray[np.int64]]:
    """Numbers of many lists of gaps, by one running sum over them all."""
    np = numpy
    first = 0
    while first < len(bodies):
        last, n_bytes = first, 0
        # A few megabytes at a time: what does not fit the cache of the processor is slower.
        while last < len(bodies) and n_bytes < 1 << 20:
            n_bytes += len(bodies[last])
            last += 1
        gaps = np.frombuffer(b"".join(bodies[first:last]), dtype)
        sums = np.cumsum(gaps, dtype=np.int64)
        lengths = np.array([len(body) for body in bodies[first:last]]) // gaps.itemsize
        starts = np.concatenate(([0], sums[np.cumsum(lengths)[:-1] - 1]))
        sums -= np.repeat(starts, lengths)
        yield sums[gaps != skip]
        first = last

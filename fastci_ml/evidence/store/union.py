"""Which records of one segment are in any of many posting lists."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from fastci_ml.evidence.store.postings import BITS, GAPS, WIDE, DamagedListError, split, unpack, walk

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Running sums of more than this do not stay in the cache of the processor.
_CHUNK_BYTES = 1 << 18


def unite(blobs: Iterable[bytes], without: bytes | None, n_records: int, base: int) -> array[int]:
    """Numbers that are in any of `blobs` and not in `without`, ascending, each with `base` added.

    numpy does it where the caller has it loaded anyway, as `rank` has: at a million tests in a third of the
    time. To load it for this would cost more than it saves.

    Raises
    ------
    DamagedListError
        If one is no posting list, or reaches past `n_records`.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "frombuffer"):
        return _unite_plain(blobs, without, n_records, base)
    return _unite_numpy(numpy, blobs, without, n_records, base)


def _unite_plain(blobs: Iterable[bytes], without: bytes | None, n_records: int, base: int) -> array[int]:
    seen: set[int] = set()
    bits = 0
    for blob in blobs:
        kind, body = split(blob)
        if kind == BITS:
            bits |= int.from_bytes(body, "little")
        else:
            seen.update(walk(kind, body))
    seen.update(walk(BITS, bits.to_bytes(bits.bit_length() // 8 + 1, "little")))
    if without is not None:
        seen.difference_update(unpack(without))
    found = sorted(seen)
    if found and not 1 <= found[0] <= found[-1] <= n_records:
        raise DamagedListError(f"it holds {found[0]} to {found[-1]}, expected 1 to {n_records}")
    return array("q", map(base.__add__, found))


def _unite_numpy(
    numpy: Any, blobs: Iterable[bytes], without: bytes | None, n_records: int, base: int
) -> array[int]:
    np = numpy
    lists: dict[int, list[bytes]] = {GAPS: [], WIDE: []}
    bits = np.zeros(n_records // 8 + 1, np.uint8)
    for blob in blobs:
        kind, body = split(blob)
        if kind == BITS:
            if len(body) > len(bits):
                raise DamagedListError(f"it has {len(body)} bytes, expected at most {len(bits)}")
            part = np.frombuffer(body, np.uint8)
            np.bitwise_or(bits[: len(part)], part, out=bits[: len(part)])
        else:
            lists[kind].append(body)
    # Place 0 stands for no record, and the last byte may hold more bits than there are records.
    mask = np.zeros(len(bits) * 8 + 1, bool)
    mask[1:] = np.unpackbits(bits, bitorder="little")
    try:
        for kind, dtype, skip in ((GAPS, "u1", 255), (WIDE, "<u2", 65535)):
            for numbers in _numbers(np, lists[kind], dtype, skip):
                mask[numbers] = True
        if without is not None:
            mask[unpack(without)] = False
    except IndexError as error:
        raise DamagedListError(f"it reaches past {n_records}") from error
    if mask[0] or mask[n_records + 1 :].any():
        raise DamagedListError(f"it holds numbers that are not from 1 to {n_records}")
    numbers = np.flatnonzero(mask).astype(np.int64, copy=False)
    numbers += base
    found = array("q")
    found.frombytes(numbers.view(np.uint8).data)
    return found


def _numbers(numpy: Any, bodies: list[bytes], dtype: str, skip: int) -> Iterator[npt.NDArray[np.int64]]:
    """Numbers of many lists of gaps, by one running sum over as many as the cache holds."""
    np = numpy
    first = 0
    while first < len(bodies):
        last, n_bytes = first, 0
        while last < len(bodies) and (last == first or n_bytes + len(bodies[last]) <= _CHUNK_BYTES):
            n_bytes += len(bodies[last])
            last += 1
        gaps = np.frombuffer(b"".join(bodies[first:last]), dtype)
        sums = np.cumsum(gaps, dtype=np.int64)
        if last - first > 1:
            lengths = np.fromiter(map(len, bodies[first:last]), np.int64, last - first) // gaps.itemsize
            starts = sums[np.cumsum(lengths)[:-1] - 1]
            sums[lengths[0] :] -= np.repeat(starts, lengths[1:])
        yield sums[gaps != skip]
        first = last

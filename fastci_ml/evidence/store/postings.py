r"""Posting lists: which records of a segment touched a thing, as few bytes as possible.

A list holds numbers from 1, ascending. Its first byte says how the rest is written:

- ``GAPS``: one byte for each gap, 255 for "advance by 255, no record here". Reading is a running sum.
- ``WIDE``: the same in two bytes, 65535 the one without a record, for what is sparse.
- ``BITS``: a bitset, lowest bit first, for what is dense; bit 0 is number 1.

`DEFLATED` is added where the rest is compressed: tests of one file touch the same units, so gaps repeat.
"""

from __future__ import annotations

import operator
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, compress

from fastci_ml.errors import EvidenceError

GAPS, WIDE, BITS = 0, 1, 2
DEFLATED = 16
# Bits are written where gaps would be shorter than this on average: they are read 30 times faster.
_DENSE_GAP = 8
_SMALL_BYTES = 16


class _Codes(dict[int, bytes]):
    """How a gap is written, by the gap: made on first use, so that joining many never leaves C."""

    def __init__(self, code_of: Callable[[int], bytes]) -> None:
        self._code_of = code_of

    def __missing__(self, gap: int) -> bytes:
        code = self._code_of(gap)
        # Larger ones are rare, and long.
        if gap < _N_KEPT:
            self[gap] = code
        return code


_N_KEPT = 4096
_gap_codes = _Codes(lambda gap: b"\xff" * (gap // 255) + bytes([gap % 255]))
_wide_codes = _Codes(lambda gap: b"\xff\xff" * (gap // 65535) + (gap % 65535).to_bytes(2, "little"))
_gap_digits = _Codes(lambda gap: b"0" * (gap - 1) + b"1")


def pack(numbers: Sequence[int]) -> bytes:
    r"""Posting list of ascending numbers from 1, of which there is at least one.

    Examples
    --------
    >>> pack([1, 2, 300])
    b'\x00\x01\x01\xff+'
    >>> unpack(pack([1, 2, 300]))
    [1, 2, 300]
    """
    gaps = list(map(operator.sub, numbers, chain((0,), numbers)))
    n, last = len(numbers), numbers[-1]
    if last < _DENSE_GAP * n:
        digits = b"".join(map(_gap_digits.__getitem__, gaps))
        return _deflated(BITS, int(digits[::-1], 2).to_bytes(last // 8 + 1, "little").rstrip(b"\0"))
    if last > 255 * n:
        return _deflated(WIDE, b"".join(map(_wide_codes.__getitem__, gaps)))
    try:
        body = bytes(gaps)
    except ValueError:
        body = b"\xff"
    if 255 in body:
        body = b"".join(map(_gap_codes.__getitem__, gaps))
    return _deflated(GAPS, body)


def _deflated(kind: int, body: bytes) -> bytes:
    if len(body) >= _SMALL_BYTES:
        # A small window for a small list: setting up the full one takes six times as long as the work.
        level, window, memory = (6, -9, 1) if len(body) <= 512 else (4, -15, 8)
        packer = zlib.compressobj(level, zlib.DEFLATED, window, memory)
        packed = packer.compress(body) + packer.flush()
        # What saves less than a fifth is not worth its reading.
        if len(packed) * 5 < len(body) * 4:
            return bytes([kind | DEFLATED]) + packed
    return bytes([kind]) + body


class DamagedListError(EvidenceError):
    """A posting list that nobody has packed."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the evidence store is damaged: of a posting list, {found}", hint="fastci-ml doctor"
        )


def split(blob: bytes) -> tuple[int, bytes]:
    """Kind and body of a posting list, inflated; raises DamagedListError if it is none."""
    kind, body = (blob[0], blob[1:]) if len(blob) > 1 else (-1, b"")
    if kind & ~DEFLATED not in (GAPS, WIDE, BITS):
        raise DamagedListError(f"the kind is {kind}, expected 0 to 2")
    if kind & DEFLATED:
        try:
            body = zlib.decompress(body, -15)
        except zlib.error as error:
            raise DamagedListError(f"the body does not inflate: {error}") from error
    kind &= ~DEFLATED
    if kind == WIDE and len(body) % 2:
        raise DamagedListError(f"the body has {len(body)} bytes, expected an even number")
    return kind, body


def unpack(blob: bytes) -> list[int]:
    """Inverse of `pack`; raises DamagedListError."""
    return list(walk(*split(blob)))


def has(blob: bytes, number: int) -> bool:
    """Whether a posting list holds a number; raises DamagedListError."""
    kind, body = split(blob)
    if kind == BITS:
        bit = number - 1
        return bit >> 3 < len(body) and bool(body[bit >> 3] >> (bit & 7) & 1)
    return number in walk(kind, body)


def walk(kind: int, body: bytes) -> Iterator[int]:
    """Numbers of a list, by what `split` returned; nothing in it is a loop of Python's."""
    if kind == BITS:
        # There is no faster way over the set bits of a number than its digits.
        digits = bin(int.from_bytes(body, "little"))[:1:-1].encode().translate(_DIGIT_VALUES)
        return compress(range(1, len(digits) + 1), digits)
    gaps: Sequence[int] = body
    skip = 255
    if kind == WIDE:
        wide = array("H", body)
        if sys.byteorder == "big":
            wide.byteswap()
        gaps, skip = wide, 65535
    if skip not in gaps:
        return accumulate(gaps)
    return compress(accumulate(gaps), map(skip.__ne__, gaps))


_DIGIT_VALUES = bytes.maketrans(b"01", b"\0\1")

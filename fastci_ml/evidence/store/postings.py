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
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress

GAPS, WIDE, BITS = 0, 1, 2
DEFLATED = 16
# Bits are written where gaps would be shorter than this on average: they are read 30 times faster.
_DENSE_GAP = 8
_SMALL_BYTES = 16


class _GapCodes(dict[int, bytes]):
    """Bytes of a gap; made on first use."""

    def __missing__(self, gap: int) -> bytes:
        code = b"\xff" * (gap // 255) + bytes([gap % 255])
        if gap < 4096:
            self[gap] = code
        return code


class _GapDigits(dict[int, bytes]):
    """A gap as binary digits, the record's last; made on first use."""

    def __missing__(self, gap: int) -> bytes:
        digits = b"0" * (gap - 1) + b"1"
        if gap < 4096:
            self[gap] = digits
        return digits


_gap_codes = _GapCodes()
_gap_digits = _GapDigits()


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
    if numbers[-1] < _DENSE_GAP * len(numbers):
        digits = b"".join(map(_gap_digits.__getitem__, gaps))
        body = int(digits[::-1], 2).to_bytes(numbers[-1] // 8 + 1, "little").rstrip(b"\0")
        return _deflated(BITS, body)
    try:
        body = bytes(gaps)
    except ValueError:
        body = b"\xff"
    if 255 in body:
        body = b"".join(map(_gap_codes.__getitem__, gaps))
        if len(body) > 2 * len(gaps):
            wide = _wide(gaps)
            if len(wide) < len(body):
                return _deflated(WIDE, wide)
    return _deflated(GAPS, body)


def _wide(gaps: Iterable[int]) -> bytes:
    values = array("H")
    for gap in gaps:
        values.extend([65535] * (gap // 65535))
        values.append(gap % 65535)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _deflated(kind: int, body: bytes) -> bytes:
    if len(body) >= _SMALL_BYTES:
        # A small window for a small list: setting up the full one takes six times as long as the work.
        window, memory = (-9, 1) if len(body) <= 512 else (-15, 8)
        packer = zlib.compressobj(6, zlib.DEFLATED, window, memory)
        packed = packer.compress(body) + packer.flush()
        # What saves less than a fifth is not worth its reading.
        if len(packed) * 5 < len(body) * 4:
            return bytes([kind | DEFLATED]) + packed
    return bytes([kind]) + body


def split(blob: bytes) -> tuple[int, bytes]:
    """Kind and body of a posting list, inflated.

    Raises
    ------
    ValueError
        If it is none.
    """
    kind = blob[0] if blob else -1
    body = blob[1:]
    if kind & DEFLATED:
        kind ^= DEFLATED
        try:
            body = zlib.decompress(body, -15)
        except zlib.error as error:
            raise ValueError(f"posting list does not inflate: {error}") from error
    if kind not in (GAPS, WIDE, BITS):
        raise ValueError(f"posting list of kind {kind}, expected 0 to 2")
    return kind, body


def unpack(blob: bytes) -> list[int]:
    """Inverse of `pack`."""
    kind, body = split(blob)
    if kind == BITS:
        return _numbers_of_bits(body)
    return list(_numbers_of_gaps(kind, body))


def has(blob: bytes, number: int) -> bool:
    """Whether a posting list holds a number."""
    kind, body = split(blob)
    if kind == BITS:
        bit = number - 1
        return bit >> 3 < len(body) and bool(body[bit >> 3] >> (bit & 7) & 1)
    return number in _numbers_of_gaps(kind, body)


def _numbers_of_bits(body: bytes) -> list[int]:
    # Python has no faster way over the set bits of a number than its digits.
    digits = bin(int.from_bytes(body, "little"))[:1:-1].encode().translate(_DIGIT_VALUES)
    return list(compress(range(1, len(digits) + 1), digits))


_DIGIT_VALUES = bytes.maketrans(b"01", b"\0\1")


def _numbers_of_gaps(kind: int, body: bytes) -> Iterator[int]:
    gaps: Sequence[int] = body
    skip = 255
    if kind == WIDE:
        gaps = array("H", body)
        skip = 65535
        if sys.byteorder == "big":
            gaps.byteswap()
    if skip not in gaps:
        return accumulate(gaps)
    return compress(accumulate(gaps), map(skip.__ne__, gaps))

"""Sets of small numbers as the bits of one."""

from __future__ import annotations

from collections.abc import Iterator


def bits(mask: int) -> Iterator[int]:
    """Places of the bits that are set, ascending.

    Examples
    --------
    >>> list(bits(0b1001))
    [0, 3]
    """
    text = f"{mask:b}"[::-1]
    place = text.find("1")
    while place >= 0:
        yield place
        place = text.find("1", place + 1)

"""Reading one line of a bundle; what it says is another module's."""

from __future__ import annotations

import json
import zlib
from typing import Any


def unseal(line: bytes) -> list[Any] | None:
    """Inverse of `seal`; None for anything that is not a whole line of ours.

    Examples
    --------
    >>> from fastci_ml.evidence.bundle.lines import seal
    >>> unseal(seal(["end", 1]))
    ['end', 1]
    >>> unseal(seal(["end", 1])[:-3]) is None
    True
    """
    if len(line) < 11 or line[8:9] != b" " or line[-1:] != b"\n":
        return None
    body = line[9:-1]
    if b"%08x" % zlib.crc32(body) != line[:8]:
        return None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) and value and isinstance(value[0], str) else None

"""Lines of a bundle: JSON behind a checksum, so that a torn or overwritten line is seen as such.

A bundle, version ``fastci.bundle/1``, is one file that is only appended to. Each line is eight hexadecimal
digits (CRC-32 of what follows), a blank, one JSON array and a newline. The first word of an array says what
it is; numbers are given by the bundle, from 0, for each kind of thing on its own:

=============================================  ==========================================================
``["begin", schema, {provenance}]``            first line; fields of `Provenance`
``["file", n, path, blob]``                    file n; also a directory (blob of its sorted names)
``["code", n, file, qualname, first line]``    code object n
``["capture", n, kind, label, {parts}]``       what ran in one stretch; the same n again adds to it
``["ran", n, {facts}]``                        the test of capture n has ended; fields of `RunFacts`
``["process", {facts}]``                       a child is about to end; fields of `ProcessFacts`
``["edge", importer file, imported file]``     a module of the repository imported another
``["end", number of lines before]``            last line: the process closed its bundle itself
=============================================  ==========================================================
"""

from __future__ import annotations

import json
import zlib
from typing import Any

SCHEMA = "fastci.bundle/1"
SUFFIX = ".fastci-bundle"
# A longer line is damage: what one line can ask of memory is bounded.
MAX_LINE_BYTES = 16 << 20


class _Encoder(json.JSONEncoder):
    # Bound early: a test may put something in the place of these.
    encode = json.JSONEncoder.encode
    iterencode = json.JSONEncoder.iterencode


_encode = _Encoder(separators=(",", ":")).encode


def seal(line: list[Any]) -> bytes:
    r"""One line of a bundle.

    Examples
    --------
    >>> seal(["end", 1])
    b'c2748001 ["end",1]\n'
    """
    # ASCII: lone surrogates, which odd paths and ids hold, survive as escapes.
    body = _encode(line).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(body), body)


def unseal(line: bytes) -> list[Any] | None:
    """Inverse of `seal`; None for anything that is not a whole line of ours.

    Examples
    --------
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

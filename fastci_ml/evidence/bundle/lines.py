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
``["exec", what it is]``                       another program takes the place of this one, if nothing follows
``["stay"]``                                   it did not
``["process", {facts}]``                       a child is about to end; fields of `ProcessFacts`
``["edge", importer file, imported file]``     a module of the repository imported another
``["end", number of lines before]``            last line: the process closed its bundle itself
=============================================  ==========================================================
"""

from __future__ import annotations

# Bound early: a test may put something in the place of these. The C encoder by itself, for the module around
# it takes longer to load than all else that a recorded child does at its start.
from _json import encode_basestring_ascii, make_encoder
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "fastci.bundle/1"
SUFFIX = ".fastci-bundle"
# A longer line is damage: what one line can ask of memory is bounded.
MAX_LINE_BYTES = 16 << 20


def _refuse(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} has no place on a line")


# Without a look for circles, indents and sorting. In ASCII: lone surrogates, which odd paths and ids hold,
# survive as escapes.
_encode = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, True)


def seal(line: list[Any]) -> bytes:
    r"""One line of a bundle.

    Examples
    --------
    >>> seal(["end", 1])
    b'c2748001 ["end",1]\n'
    """
    body = "".join(_encode(line, 0)).encode("ascii")
    return b"%08x %s\n" % (crc32(body), body)

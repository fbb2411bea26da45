"""The sources that a recorded process ran, by git's blob id, in one file beside its bundle.

With them a bundle says what ran wherever it is merged: on another machine, at another commit, and for a
file that was never committed. One file, for making hundreds of them takes longer than all else that a
recording does at its start.

A pack is a row of entries: the blob id, a blank, the number of bytes that follow the newline, and these
bytes, which are the content as zlib packs it. It has no end mark: an entry says itself whether it is whole.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from zlib import decompressobj
from zlib import error as ZlibError  # noqa: N812  zlib's own name says nothing here

from fastci_ml.errors import ReportError
from fastci_ml.evidence.bundle.blob_id import blob_id
from fastci_ml.evidence.bundle.lines import SUFFIX
from fastci_ml.evidence.bundle.source_pack_writer import PACK_SUFFIX
from fastci_ml.sources.regular_files import open_regular

_head_of = re.compile(rb"([0-9a-f]{40}) ([0-9]{1,12})\n").fullmatch
_MAX_HEAD_BYTES = 40 + 1 + 12 + 1
# A process runs thousands of files; what a pack can ask of memory is bounded.
_MAX_ENTRIES = 250_000


def pack_of(bundle: Path) -> Path:
    """Where the sources of a bundle lie.

    Examples
    --------
    >>> pack_of(Path("7-ab.fastci-bundle")).name
    '7-ab.fastci-sources'
    """
    return bundle.with_name(bundle.name.removesuffix(SUFFIX) + PACK_SUFFIX)


class SourcePack:
    """What a pack holds.

    Parameters
    ----------
    path : Path
        One that is not there, or is no regular file, holds nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Where the bytes of each blob begin, and how many they are.
        self._places: dict[str, tuple[int, int]] = {}
        with contextlib.suppress(ReportError, OSError), open_regular(path) as stream:
            self._places = dict(islice(_entries(stream), _MAX_ENTRIES))

    def __bool__(self) -> bool:
        return bool(self._places)

    def get(self, blob: str, max_bytes: int = 64 << 20) -> bytes | None:
        """Content of a blob; None when it is not here, damaged, or larger than `max_bytes`."""
        if blob not in self._places:
            return None
        start, n_bytes = self._places[blob]
        try:
            with open_regular(self._path) as stream:
                stream.seek(start)
                packed = stream.read(min(n_bytes, max_bytes))
            unpacker = decompressobj()
            content = unpacker.decompress(packed, max_bytes)
        except (ReportError, OSError, ZlibError):
            return None
        return content if unpacker.eof and blob_id(content) == blob else None


def _entries(stream: BinaryIO) -> Iterator[tuple[str, tuple[int, int]]]:
    """Blob id and place of each whole entry, up to the first that is not one."""
    n_bytes = stream.seek(0, 2)
    stream.seek(0)
    while head := _head_of(stream.readline(_MAX_HEAD_BYTES)):
        start = stream.tell()
        end = start + int(head[2])
        if end > n_bytes:
            return
        yield head[1].decode("ascii"), (start, end - start)
        stream.seek(end)

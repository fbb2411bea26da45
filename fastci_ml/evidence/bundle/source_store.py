"""Sources that recorded tests ran, by git's blob id, beside the bundles.

With them a bundle says what ran wherever it is merged: on another machine, at another commit, and for a
file that was never committed.
"""

from __future__ import annotations

import contextlib
import re
from hashlib import sha1
from os import O_CREAT, O_TRUNC, O_WRONLY, close, getpid, makedirs, replace, stat, unlink, write
from os import open as open_file
from pathlib import Path
from zlib import compress, decompressobj
from zlib import error as ZlibError  # noqa: N812  zlib's own name says nothing here

from fastci_ml.errors import ReportError
from fastci_ml.sources.regular_files import read_regular

# Functions of `os` are bound early, and methods of `Path` are not called, where sources are kept while a test
# runs: a test may have put something else in their place, and may count its calls.
FOLDER = "sources"
_is_blob = re.compile(r"[0-9a-f]{40}").fullmatch


def blob_id(content: bytes) -> str:
    """Git's id of a blob of this content.

    Examples
    --------
    >>> blob_id(b"")
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    # A name of content, not a protection: git's own choice.
    return sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


class SourceStore:
    """Compressed files of one folder, each written once and whole.

    Parameters
    ----------
    directory : Path
        Folder of bundles; sources lie in ``sources/`` below it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory / FOLDER
        self._top = str(self.directory)
        self._made: set[str] = set()

    def path(self, blob: str) -> Path:
        """Where the content of a blob lies, or would."""
        return self.directory / blob[:2] / f"{blob[2:]}.z"

    def put(self, blob: str, content: bytes) -> None:
        """Keep a content; raises OSError where the folder cannot be written."""
        folder = f"{self._top}/{blob[:2]}"
        target = f"{folder}/{blob[2:]}.z"
        if folder not in self._made:
            makedirs(folder, exist_ok=True)
            self._made.add(folder)
        with contextlib.suppress(FileNotFoundError):
            stat(target)
            return
        # Workers of one session write the same file: each its own copy, and the last rename wins.
        draft = f"{target}.{getpid()}.tmp"
        try:
            _write_file(draft, compress(content, 1))
            replace(draft, target)
        except OSError:
            with contextlib.suppress(OSError):
                unlink(draft)
            raise

    def get(self, blob: str, max_bytes: int = 64 << 20) -> bytes | None:
        """Content of a blob; None when it is not here, damaged, or larger than `max_bytes`."""
        if _is_blob(blob) is None:
            return None
        try:
            packed = read_regular(self.path(blob), max_bytes)
            unpacker = decompressobj()
            content = unpacker.decompress(packed, max_bytes)
        except (ReportError, ZlibError):
            return None
        return content if unpacker.eof and blob_id(content) == blob else None


def _write_file(path: str, data: bytes) -> None:
    handle = open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0o644)
    try:
        written = write(handle, data)
        while written < len(data):
            written += write(handle, data[written:])
    finally:
        close(handle)

"""Sources that recorded tests ran, by git's blob id, beside the bundles.

With them a bundle says what ran wherever it is merged: on another machine, at another commit, and for a
file that was never committed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import zlib
from pathlib import Path

from fastci_ml.errors import ReportError
from fastci_ml.sources.regular_files import read_regular

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
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


class SourceStore:
    """Compressed files of one folder, each written once and whole.

    Parameters
    ----------
    directory : Path
        Folder of bundles; sources lie in ``sources/`` below it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory / FOLDER

    def path(self, blob: str) -> Path:
        """Where the content of a blob lies, or would."""
        return self.directory / blob[:2] / f"{blob[2:]}.z"

    def put(self, blob: str, content: bytes) -> None:
        """Keep a content; raises OSError where the folder cannot be written."""
        target = self.path(blob)
        if target.exists():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        # Workers of one session write the same file: each its own copy, and the last rename wins.
        draft = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        try:
            draft.write_bytes(zlib.compress(content, 1))
            draft.replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    def get(self, blob: str, max_bytes: int = 64 << 20) -> bytes | None:
        """Content of a blob; None when it is not here, damaged, or larger than `max_bytes`."""
        if _is_blob(blob) is None:
            return None
        try:
            packed = read_regular(self.path(blob), max_bytes)
            unpacker = zlib.decompressobj()
            content = unpacker.decompress(packed, max_bytes)
        except (ReportError, zlib.error):
            return None
        return content if unpacker.eof and blob_id(content) == blob else None

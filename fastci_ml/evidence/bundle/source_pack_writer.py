"""Writing the sources that a process runs; `source_pack` says what such a file is like."""

from __future__ import annotations

from os import getpid
from zlib import compress

from fastci_ml.evidence.bundle.append_file import AppendFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

PACK_SUFFIX = ".fastci-sources"
# Of files that the processes of a session share while they record: named after the outermost bundle.
SHARED_SUFFIX = ".fastci-shared"
COUNT_SUFFIX = ".fastci-count"
PROCESSES_SUFFIX = ".fastci-processes"
# Bound early: a test may put something else in its place.
_open = open


class SourcePackWriter:
    """The pack of this process.

    Parameters
    ----------
    path : Path or str
        Must not exist; made when there is something to keep.
    shared : SharedSources, optional
        What other processes of the session keep in packs of their own.
    """

    def __init__(self, path: Path | str, shared: SharedSources | None = None) -> None:
        self._path = path
        self._file: AppendFile | None = None
        self._shared = shared
        self._known = set() if shared is None else shared.known()
        self._is_torn = False
        self._pid = getpid()

    def put(self, blob: str, content: bytes) -> None:
        """Keep a content, once; raises OSError where it cannot be written."""
        # The pack of a forked child is another one.
        if blob in self._known or getpid() != self._pid:
            return
        if self._file is None:
            self._file = AppendFile(self._path)
        if self._is_torn:
            raise OSError(f"{self._path}: an earlier source could not be written whole")
        packed = compress(content, 1)
        self._is_torn = True
        self._file.append(b"%b %d\n%b" % (blob.encode("ascii"), len(packed), packed))
        self._is_torn = False
        self._known.add(blob)
        if self._shared is not None:
            self._shared.add(blob)

    def close(self, *, wait: bool = True) -> None:
        """Let go of the file; with `wait`, once all is on the disk."""
        if self._file is not None and self._file.is_ours:
            self._file.close(wait=wait)


class SharedSources:
    """Names of the contents that lie in any pack of one session, in a file that all its processes add to.

    Five hundred children run the same files; without it each would pack them anew. It may be lost, or end in
    half a name: then some contents are kept twice.

    Parameters
    ----------
    path : str
        Made where missing.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def known(self) -> set[str]:
        """Blob ids so far; none where the file cannot be read."""
        try:
            with _open(self._path, "rb") as stream:
                return set(stream.read().decode("ascii", "replace").split("\n"))
        except OSError:
            return set()

    def add(self, blob: str) -> None:
        """Add one; raises OSError where it cannot be written."""
        with _open(self._path, "ab", buffering=0) as stream:
            stream.write(b"%b\n" % blob.encode("ascii"))

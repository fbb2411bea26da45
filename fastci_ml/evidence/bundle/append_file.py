"""A file that one process only appends to, while tests may do anything to the process."""

from __future__ import annotations

import fcntl
import os
from os import fstat, fsync, getpid, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

# What is called while tests run is bound early: they may put something else in its place.

# The lowest number of our descriptor: those below it are closed and taken again by whoever redirects output.
_MIN_HANDLE = 64
_close = os.close


class AppendFile:
    """A new file; what was appended to it is the system's, and no kill of the process loses it.

    Parameters
    ----------
    path : Path or str
        Must not exist.

    Raises
    ------
    OSError
        If the file cannot be written; also from `append` and `close`.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path
        # Closed on exec, so that no child program can hold it open.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try:
            self._handle = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, _MIN_HANDLE)
            os.close(handle)
        except OSError:
            # Fewer descriptors are allowed than that: the one that we have will do.
            self._handle = handle
        found = fstat(self._handle)
        self._file = (found.st_dev, found.st_ino)
        self._pid = getpid()

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that made it, and no forked child."""
        return getpid() == self._pid

    def append(self, data: bytes) -> None:
        """Hand over all of it."""
        self._check_handle()
        # A write to a file may be cut short by a full disk; what follows then fails.
        written = write(self._handle, data)
        while written < len(data):
            written += write(self._handle, data[written:])

    def close(self, *, wait: bool = True) -> None:
        """Let go of it; with `wait`, once it is on the disk."""
        self._check_handle()
        if wait:
            fsync(self._handle)
        _close(self._handle)

    def _check_handle(self) -> None:
        """Refuse another file: a test may have closed ours and been given its number."""
        found = fstat(self._handle)
        if (found.st_dev, found.st_ino) != self._file:
            raise OSError(f"{self.path}: its descriptor was closed, and is another file's by now")

"""Files of strangers: opened only where they are regular files, read only up to a limit.

A folder of CI artifacts may hold pipes that nobody writes to, sockets, devices and links that lead to
themselves. Opening one of those as a file may block for ever.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from fastci_ml.errors import ReportError

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
# Against what may take the place of a regular file between the look at it and the opening. Neither flag
# exists everywhere, and neither changes how a regular file is read.
_OPEN_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises
    ------
    ReportError
        If the path leads nowhere, or to something else; says to what.
    """
    try:
        _check_mode(path, path.stat().st_mode)
        descriptor = os.open(path, _OPEN_FLAGS)
    except OSError as error:
        raise ReportError(f"{path}: {_reason(path, error)}") from error
    except ValueError as error:  # a name that no system can hold: JSON may spell any
        raise ReportError(f"{path}: no name of a file: {error}") from error
    try:
        _check_mode(path, os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Content of a small regular file.

    Raises
    ------
    ReportError
        As `open_regular`; also if the file is larger than `most_bytes`.
    """
    with open_regular(path) as file:
        try:
            content = file.read(most_bytes + 1)
        except OSError as error:
            raise ReportError(f"{path}: cannot be read: {error}") from error
    if len(content) > most_bytes:
        raise ReportError(f"{path}: more than {most_bytes:,} bytes: refused")
    return content


def _check_mode(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        found = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
        raise ReportError(f"{path}: {found}, expected a regular file")


def _reason(path: Path, error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "a link that leads back to itself, expected a regular file"
    if error.errno == errno.ENOENT and path.is_symlink():
        return "a link to a file that is not there"
    return f"cannot be read: {error}"

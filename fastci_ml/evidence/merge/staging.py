"""A folder for what a merge unpacks or fetches, bounded, and removed when it is done.

A merge may be killed: what it left is removed by the next one. Each folder has a lock file beside it, held by
the merge that works there, so that two at once leave each other alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.lines import SUFFIX
from fastci_ml.evidence.bundle.source_pack_writer import PACK_SUFFIX
from fastci_ml.evidence.merge.problems import as_line
from fastci_ml.evidence.seals import SEAL_SUFFIX

OUR_SUFFIXES = (SUFFIX, PACK_SUFFIX, SEAL_SUFFIX)
ZIP_SUFFIX = ".zip"

# Of one merge: far above what CI leaves, below what fills a disk.
_MAX_FILES = 100_000
_MAX_BYTES = 8 << 30
_MAX_FILE_BYTES = 512 << 20
_MAX_PROBLEMS = 1_000
_PIECE_BYTES = 1 << 20
_LOCK_SUFFIX = ".lock"
_MAX_TRIES = 20
_is_name_of_ours = re.compile(r"[0-9a-f]{32}").fullmatch
_is_plain_name = re.compile(r"[A-Za-z0-9_+=][A-Za-z0-9._+=-]{0,150}").fullmatch


class RefusedError(Exception):
    """What cannot be staged, in words; the rest can."""


class Staging:
    """Files of strangers on their way into a merge; a context manager.

    Nothing is made before the first file comes. Names of strangers are never used as paths: a file lies in a
    folder that we number, under its own name only where that is a plain one.

    Parameters
    ----------
    parent : Path
        Folder for this and for those of other merges; made where missing.

    Attributes
    ----------
    problems : list of str
        One line for each thing that could not be staged.
    """

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._folder: Path | None = None
        self._lock = -1
        self._labels: dict[str, str] = {}
        self._n_folders = 0
        self._n_files = 0
        self._n_bytes = 0
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._folder is not None:
            _remove(self._folder)
            os.close(self._lock)

    @property
    def folder(self) -> Path | None:
        """Where the files lie; None while there is none."""
        return self._folder

    @property
    def n_files(self) -> int:
        """Files that were staged."""
        return self._n_files

    def owns(self, path: Path) -> bool:
        """Whether a path lies where merges stage: it is some merge's, and gone soon."""
        return path.absolute().is_relative_to(self._parent.absolute())

    def add_problem(self, text: str) -> None:
        """Add a problem, as one line."""
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(as_line(text))
        elif len(self.problems) == _MAX_PROBLEMS:
            self.problems.append("more of the kind, which are not listed")

    def new_folder(self) -> Path:
        """Folder for files that belong together.

        Raises
        ------
        EvidenceError
            If it cannot be made.
        """
        try:
            if self._folder is None:
                self._folder = self._begin()
            self._n_folders += 1
            folder = self._folder / f"{self._n_folders:06}"
            folder.mkdir()
        except OSError as error:
            raise self._failed(error) from error
        return folder

    def put(
        self, folder: Path, name: str, label: str, read: Callable[[int], bytes], *, n_declared: int = 0
    ) -> Path:
        """Stage one file.

        Parameters
        ----------
        folder : Path
            From `new_folder`.
        name : str
            As its owner calls it, with one of `OUR_SUFFIXES` or `ZIP_SUFFIX`.
        label : str
            What to call it in a problem.
        read : callable
            Gives the next bytes, at most as many as are asked for; none at the end.
        n_declared : int
            Size that its owner says it has; what comes is counted all the same.

        Raises
        ------
        RefusedError
            If it is too large, or a file of that name is there.
        EvidenceError
            If it cannot be written. What `read` raises goes on to the caller. No half file is left.
        """
        if self._n_files >= _MAX_FILES:
            raise RefusedError(f"more than {_MAX_FILES:,} files")
        self._check_size(n_declared)
        path = folder / _our_name(name)
        try:
            stream = path.open("xb")
        except FileExistsError:
            raise RefusedError("another file of that name came before it") from None
        except OSError as error:
            raise self._failed(error) from error
        try:
            with stream:
                n_bytes = 0
                while piece := read(_PIECE_BYTES):
                    n_bytes += len(piece)
                    self._check_size(n_bytes)
                    try:
                        stream.write(piece)
                        stream.flush()
                    except OSError as error:
                        raise self._failed(error) from error
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self._n_files += 1
        self._n_bytes += n_bytes
        self._labels[str(path)] = label
        return path

    def drop(self, path: Path) -> None:
        """Take a file back, such as a zip that was unpacked."""
        with contextlib.suppress(OSError):
            path.unlink()

    def relabel(self, line: str) -> str:
        """A line about staged files, in the words of whoever gave them."""
        if self._folder is None or str(self._folder) not in line:
            return line
        place = re.escape(str(self._folder))
        line = re.sub(
            rf"{place}/[0-9]{{6}}/[A-Za-z0-9._+=-]+", lambda match: self._labels.get(match[0], match[0]), line
        )
        return as_line(line.replace(str(self._folder), "the artifacts"))

    def _begin(self) -> Path:
        if self._parent.is_symlink():
            # A repository may hold one: what it leads to is not ours to write to, or to clean.
            raise OSError("found a link, expected a folder")
        for lock in sorted(self._parent.glob(f"*{_LOCK_SUFFIX}")):
            if _is_name_of_ours(lock.stem):
                _remove_left(lock)
        for _ in range(_MAX_TRIES):
            self._parent.mkdir(parents=True, exist_ok=True)
            folder = self._parent / uuid.uuid4().hex
            handle = _hold(folder.with_suffix(_LOCK_SUFFIX), is_new=True)
            if handle is not None:
                self._lock = handle
                folder.mkdir(mode=0o700)
                return folder
        raise OSError("other merges remove what this one makes")

    def _check_size(self, n_bytes: int) -> None:
        if n_bytes > _MAX_FILE_BYTES:
            raise RefusedError(f"more than {_MAX_FILE_BYTES:,} bytes")
        if self._n_bytes + n_bytes > _MAX_BYTES:
            raise RefusedError(f"more than {_MAX_BYTES:,} bytes in all")

    def _failed(self, error: OSError) -> EvidenceError:
        return EvidenceError(
            f"{self._parent}: artifacts cannot be unpacked here: {error}",
            hint="unzip them, and merge the folder",
        )


def _our_name(name: str) -> str:
    """Name of a staged file: its own, or one of ours. A bundle and its sources keep one stem."""
    suffix = next(suffix for suffix in (*OUR_SUFFIXES, ZIP_SUFFIX) if name.lower().endswith(suffix))
    stem = name[: -len(suffix)]
    if not _is_plain_name(stem):
        stem = uuid.uuid5(uuid.NAMESPACE_OID, stem.encode("utf-8", "surrogatepass").hex()).hex
    return stem + suffix


def _hold(lock: Path, *, is_new: bool = False) -> int | None:
    """Handle of a lock file that nobody else holds; None where somebody does, or it is gone."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if is_new else 0)
    try:
        handle = os.open(lock, flags, 0o600)
    except FileNotFoundError:
        # Another merge removed the file, or the empty folder.
        return None
    except OSError:
        if is_new:
            raise
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # It may have been removed between the two calls: then it is no lock that others see.
        is_ours = os.fstat(handle).st_ino == lock.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        is_ours = False
    except OSError:
        # No locks here, as on some network disks: then nothing is taken for left behind.
        is_ours = is_new
    if is_ours:
        return handle
    os.close(handle)
    return None


def _remove_left(lock: Path) -> None:
    """Remove what a killed merge left, if it did."""
    handle = _hold(lock)
    if handle is not None:
        _remove(lock.with_suffix(""))
        os.close(handle)


def _remove(folder: Path) -> None:
    # The lock goes last: what has one is found again. Links are removed, not followed.
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        with contextlib.suppress(OSError):
            folder.with_suffix(_LOCK_SUFFIX).unlink()
    with contextlib.suppress(OSError):
        folder.parent.rmdir()

"""Which files belong to the repository, and what they hold."""

from __future__ import annotations

import sys
from os import fsencode, getcwd, listdir, lstat, readlink, stat
from os.path import basename, dirname, exists, isdir, isfile, join, normpath, realpath
from stat import S_ISLNK

from fastci_ml.evidence.bundle.blob_id import blob_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from fastci_ml.evidence.bundle.source_pack_writer import SourcePackWriter

# Folders that hold what tools made or installed, by name, wherever they lie below the root.
_NOT_OURS = frozenset(
    {
        ".eggs",
        ".fastci",
        ".git",
        ".hypothesis",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        "__pycache__",
        "dist-packages",
        "node_modules",
        "site-packages",
    }
)
_INSTALLED = ("site-packages", "dist-packages")
# What pytest makes in the repository on the way to its cache.
_PASSING = "pytest-cache-files-"
# Reading a file while its test runs must not cost more than the test.
_MAX_HASHED_BYTES = 64 << 20
# Bound early, as the functions above: a test may put something else in their place.
_open = open


class ProjectFiles:
    """The files of one repository, as this process meets them.

    Parameters
    ----------
    root : Path or str
        Top of the repository.
    outside : iterable of Path or str
        Folders that are never part of it, such as that of our own files.
    started_ns : int
        When this process began, in the clock of file times: sources that changed later are not what ran.
    sources : SourcePackWriter
        Where sources that ran are kept.

    Attributes
    ----------
    changed : set of str
        Sources that were written after the start.
    differing : set of str
        Sources of which a copy ran that is not the same.
    sources : SourcePackWriter
        As given; of a forked child another one.
    is_reading : bool
        Whether we are reading a file just now: what a watch sees then is no doing of the tests.
    """

    def __init__(
        self, root: Path | str, outside: Iterable[Path | str], started_ns: int, sources: SourcePackWriter
    ) -> None:
        # As given and as resolved: code objects name whichever was on sys.path.
        tops = dict.fromkeys((str(root), realpath(root)))
        self._tops = tuple(top.rstrip("/") + "/" for top in tops)
        self._never = _as_prefixes(map(str, outside))
        # An interpreter around the repository says nothing about what is in it.
        self._outside = tuple(
            folder
            for folder in _as_prefixes([sys.prefix])
            if not any(top.startswith(folder) for top in self._tops)
        )
        self._cwd = getcwd()
        self._started_ns = started_ns
        self.sources = sources
        self._paths: dict[str, str | None] = {}
        # Of folders of Python files outside: where the package that they are in lies.
        self._places: dict[str, tuple[str, bool]] = {}
        self._blobs: dict[str, str | None] = {}
        self._data: dict[str, tuple[tuple[int, int, int], str | None]] = {}
        self.changed: set[str] = set()
        self.differing: set[str] = set()
        self.is_reading = False

    def relative(self, filename: str) -> str | None:
        """Path from the root with ``/``, of a file or folder of the repository; None for all others.

        The root itself is ``.``, as `Path` has it.
        A package that is installed from the repository, or runs from another checkout of it, counts as the
        files of the repository.
        """
        try:
            return self._paths[filename]
        except KeyError:
            pass
        self.is_reading = True
        try:
            path = self._paths[filename] = self._relative(filename)
        finally:
            self.is_reading = False
        return path

    def _relative(self, filename: str) -> str | None:
        if not filename or filename[0] == "<":
            return None
        full = normpath(join(self._cwd, filename))
        if full.startswith(self._never):
            return None
        if full + "/" in self._tops:
            return "."
        for top in self._tops:
            if full.startswith(top) and not full.startswith(self._outside):
                path = full[len(top) :]
                if _NOT_OURS.isdisjoint(path.split("/")) and _PASSING not in path:
                    return path
        return self._origin_of_copy(full)

    def _origin_of_copy(self, full: str) -> str | None:
        """Path of the file that one outside of the repository is a copy or another state of."""
        if not full.endswith(".py"):
            return None
        folder, is_package = self._place_of_package(dirname(full))
        # A module by itself is a copy only where packages are installed: elsewhere names repeat by chance.
        if not is_package and basename(folder) not in _INSTALLED:
            return None
        tail = full[len(folder) :].lstrip("/")
        for path in (tail, f"src/{tail}"):
            origin = join(self._tops[0], path)
            if exists(origin) and realpath(origin) != realpath(full):
                if _read(origin) != _read(full):
                    self.differing.add(path)
                return path
        return None

    def _place_of_package(self, folder: str) -> tuple[str, bool]:
        """Where the outermost package around a folder lies, and whether there is a package at all."""
        try:
            return self._places[folder]
        except KeyError:
            pass
        if exists(join(folder, "__init__.py")):
            place = self._place_of_package(dirname(folder))[0], True
        else:
            place = folder, False
        self._places[folder] = place
        return place

    def absolute(self, path: str) -> str:
        """Where a file of the repository lies."""
        return self._tops[0] + path

    def source_blob(self, path: str) -> str | None:
        """Blob id of a Python file that ran, as it is when this is first asked; its content is kept."""
        try:
            return self._blobs[path]
        except KeyError:
            pass
        self.is_reading = True
        try:
            blob = self._blobs[path] = self._keep(path)
        finally:
            self.is_reading = False
        return blob

    def _keep(self, path: str) -> str | None:
        full = self.absolute(path)
        content = _read(full)
        if content is None:
            return None
        if stat(full).st_mtime_ns > self._started_ns:
            self.changed.add(path)
        blob = blob_id(content)
        self.sources.put(blob, content)
        return blob

    def data_blob(self, path: str) -> str | None:
        """Blob id of a file that was read, or of the sorted names of a folder, as they are now.

        That of a link is git's, of the path that it holds: what it leads to is another file. None when it
        cannot be read, or is larger than what can be hashed while a test waits.
        """
        full = self.absolute(path)
        self.is_reading = True
        try:
            found = lstat(full)
            state = (found.st_mtime_ns, found.st_size, found.st_ino)
            known = self._data.get(path)
            if known is not None and known[0] == state:
                return known[1]
            is_link = S_ISLNK(found.st_mode)
            blob = blob_id(fsencode(readlink(full))) if is_link else _hash(full, found.st_size)
        except OSError:
            return None
        finally:
            self.is_reading = False
        self._data[path] = (state, blob)
        return blob


def _as_prefixes(folders: Iterable[str]) -> tuple[str, ...]:
    """How paths below folders begin, by the names of the folders and by what these lead to."""
    return tuple(
        name.rstrip("/") + "/" for folder in folders for name in dict.fromkeys((folder, realpath(folder)))
    )


def listing_blob(names: list[str]) -> str:
    """Blob id of what a folder holds: its sorted names, one a line; what tools leave behind is no part of it.

    Examples
    --------
    >>> listing_blob(["b.py", "__pycache__", "a.py"]) == listing_blob(["a.py", "b.py"])
    True
    """
    kept = sorted(name for name in names if name not in _NOT_OURS)
    return blob_id("\n".join(kept).encode("utf-8", "surrogateescape"))


def _hash(full: str, n_bytes: int) -> str | None:
    if isdir(full):
        return listing_blob(listdir(full))
    if not isfile(full) or n_bytes > _MAX_HASHED_BYTES:
        return None
    content = _read(full)
    return None if content is None else blob_id(content)


def _read(full: str) -> bytes | None:
    try:
        with _open(full, "rb") as stream:
            return stream.read()
    except OSError:
        return None

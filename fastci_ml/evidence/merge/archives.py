"""Unpacking the zip files that CI systems give out for artifacts. Anybody may have made them."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from io import BufferedReader
from pathlib import Path

from fastci_ml.errors import ReportError
from fastci_ml.evidence.merge.staging import OUR_SUFFIXES, ZIP_SUFFIX, RefusedError, Staging
from fastci_ml.sources.regular_files import open_regular

# The list of members at the end of a zip is read at once, and takes some ten times as much in memory.
_MAX_DIRECTORY_BYTES = 16 << 20
# A zip in a zip is what a CI system makes of an artifact that was packed before. There is no reason for more.
_MAX_DEPTH = 2
# The others of the standard library unpack any amount at once.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_IS_ENCRYPTED = 0x1
_BEGINNINGS = (b"PK\x03\x04", b"PK\x05\x06")
# What the standard library says of a zip, or of a member, that is damaged or made to do harm.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    IndexError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    struct.error,
    ValueError,  # also of names that are no UTF-8
)


def is_archive(path: Path) -> bool:
    """Whether a file is a zip: by its name, or by how it begins."""
    if path.name.lower().endswith(ZIP_SUFFIX):
        return not path.is_dir()
    try:
        with open_regular(path) as stream:
            return stream.read(4) in _BEGINNINGS
    except (ReportError, OSError):
        return False


def find_archives(folder: Path, staging: Staging) -> list[Path]:
    """Zips below a folder, sorted; not those that merges are unpacking."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.name.lower().endswith(ZIP_SUFFIX) and not path.is_dir() and not staging.owns(path)
    )


def unpack(path: Path, label: str, staging: Staging, depth: int = 1) -> None:
    """Stage bundles, sources and seals of a zip, and of the zips in it.

    Parameters
    ----------
    path : Path
        The zip.
    label : str
        What to call it in a problem.
    staging : Staging
        Where they go. What cannot be used is a problem there, and the rest is staged.
    depth : int
        1 for a zip that lies in no other.

    Raises
    ------
    EvidenceError
        If nothing can be staged at all.
    """
    n_before, n_problems = staging.n_files, len(staging.problems)
    try:
        with open_regular(path) as stream, zipfile.ZipFile(_BoundedReads(stream)) as archive:
            _unpack_members(archive, label, staging, depth)
    except ReportError as error:
        staging.add_problem(str(error).replace(str(path), label))
    except RefusedError as error:
        staging.add_problem(f"{label}: {error}")
    except UnicodeDecodeError:
        staging.add_problem(
            f"{label}: the zip names a member by what is no UTF-8, though it says so: refused"
        )
    except _DAMAGE as error:
        staging.add_problem(f"{label}: not readable as a zip: {_words(error)}")
    if (staging.n_files, len(staging.problems)) == (n_before, n_problems):
        staging.add_problem(f"{label}: no bundle in it")


def _unpack_members(archive: zipfile.ZipFile, label: str, staging: Staging, depth: int) -> None:
    folders: dict[str, Path] = {}
    for member in archive.infolist():
        # As it is in the zip: `filename` ends at the first zero byte. .NET has written backslashes.
        name = member.orig_filename.replace("\\", "/")
        is_zip = name.lower().endswith(ZIP_SUFFIX)
        if not is_zip and not name.endswith(OUR_SUFFIXES):
            continue
        full_label = f"{label}: {member.orig_filename}"
        try:
            _check(name, member, depth)
            parent, _, base = name.rpartition("/")
            if is_zip:
                folder = staging.new_folder()
            elif parent in folders:
                folder = folders[parent]
            else:
                folder = folders[parent] = staging.new_folder()
            with archive.open(member) as stream:
                staged = staging.put(folder, base, full_label, stream.read, n_declared=member.file_size)
        except RefusedError as error:
            staging.add_problem(f"{full_label}: {error}")
            continue
        except _DAMAGE as error:
            staging.add_problem(f"{full_label}: cannot be unpacked: {_words(error)}")
            continue
        if is_zip:
            unpack(staged, full_label, staging, depth + 1)
            staging.drop(staged)


def _check(name: str, member: zipfile.ZipInfo, depth: int) -> None:
    """Refuse what no recording leaves; its name would lead nowhere anyway."""
    if depth >= _MAX_DEPTH and name.lower().endswith(ZIP_SUFFIX):
        raise RefusedError("a zip in a zip in a zip")
    parts = name.split("/")
    if name.startswith("/") or ":" in parts[0] or ".." in parts or "\0" in name:
        raise RefusedError("a name that leads out of the zip")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise RefusedError("a link or a device, expected a regular file")
    if member.flag_bits & _IS_ENCRYPTED:
        raise RefusedError("encrypted")
    if member.compress_type not in _METHODS:
        raise RefusedError(f"packed by method {member.compress_type}, expected 0 or 8 (deflate)")


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


class _BoundedReads:
    """A file that is not read in pieces larger than a list of members may be."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream
        self.seek, self.tell, self.seekable = stream.seek, stream.tell, stream.seekable

    def read(self, n_bytes: int = -1) -> bytes:
        if n_bytes <= _MAX_DIRECTORY_BYTES:
            found = self._stream.read(n_bytes if n_bytes >= 0 else _MAX_DIRECTORY_BYTES + 1)
            if len(found) <= _MAX_DIRECTORY_BYTES:
                return found
        raise RefusedError(f"its list of members takes more than {_MAX_DIRECTORY_BYTES:,} bytes")

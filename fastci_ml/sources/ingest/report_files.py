"""Which files are test reports, and of what kind, by their content; and which run.json speaks for them."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from fastci_ml.errors import ReportError
from fastci_ml.sources.ingest import run_file
from fastci_ml.sources.regular_files import open_regular

_HEAD_BYTES = 8192
_TABLE_SUFFIXES = (".csv", ".parquet", ".tsv")
_REPORT_SUFFIXES = (".xml", ".jsonl")
_PACKED_SUFFIXES = (*_REPORT_SUFFIXES, ".json")
# First bytes of what must be unpacked before anybody can read it.
_PACKED = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip (an empty one)"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
)
_ARCHIVE_SUFFIXES = (".zip", ".tar", ".tgz", ".7z")


class ReportKind(StrEnum):
    """Reader that a file needs."""

    JUNIT = "junit"
    REPORTLOG = "reportlog"
    TABLE = "table"


class PackedError(ReportError):
    """A file is packed: what is in it cannot be told without unpacking it."""


@dataclass(frozen=True, slots=True)
class ReportFile:
    """One report, and the run.json of its folder or the nearest above, up to the path that was asked for."""

    path: Path
    kind: ReportKind
    run_file: Path | None


@dataclass(slots=True)
class Listing:
    """What lies in the places that were asked for.

    Attributes
    ----------
    files : list of ReportFile
        In the order of the places, then by path; one file that is reached in several ways comes once for
        each run.json that speaks for it.
    run_files : list of Path
        Every run.json, also those beside which no report lies.
    problems, warnings : list of str
        One line for each thing that should be a report and is none, and for each that was passed over.
    spoiled : set of Path
        Run.json files that speak for one of these things.
    """

    files: list[ReportFile] = field(default_factory=list)
    run_files: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    spoiled: set[Path] = field(default_factory=set)

    def add_problem(self, path: Path, top: Path, text: str) -> None:
        """Add the line of one thing; `top` is the place that was asked for."""
        self.problems.append(text)
        speaker = _run_file_of(path, top)
        if speaker is not None:
            self.spoiled.add(speaker)


def find_reports(paths: Sequence[Path], *, has_mapping: bool) -> tuple[list[ReportFile], list[str]]:
    """Reports and problems of `list_reports`, for callers who know of one run only."""
    listing = list_reports(paths, has_mapping=has_mapping)
    return listing.files, listing.problems


def list_reports(paths: Sequence[Path], *, has_mapping: bool) -> Listing:
    """Look for reports among files and below folders.

    Parameters
    ----------
    paths : sequence of Path
        A file that is named must be a report; below a folder, files of other kinds are passed over, except
        for those that by their name or place should be one. Links to files are followed, those to folders
        are not: they may lead anywhere.
    has_mapping : bool
        Whether tables can be read.
    """
    listing = Listing()
    seen: dict[str, set[Path | None]] = {}
    for top in paths:
        if not os.path.lexists(top):
            listing.problems.append(f"{top}: no such file or folder")
        elif os.path.isdir(top):  # noqa: PTH112  False, not an error, where nobody may look
            _list_folder(top, listing, seen, has_mapping=has_mapping)
        elif top.name != run_file.NAME:
            _list_file(top, listing, seen, has_mapping=has_mapping)
    listing.run_files += [file.run_file for file in listing.files if file.run_file is not None]
    listing.run_files = list(dict.fromkeys(listing.run_files))
    return listing


def _list_file(path: Path, listing: Listing, seen: dict[str, set[Path | None]], *, has_mapping: bool) -> None:
    try:
        _add(path, recognise(path, has_mapping=has_mapping), path.parent, listing, seen)
    except ReportError as error:
        listing.add_problem(path, path.parent, str(error))


def _list_folder(
    top: Path, listing: Listing, seen: dict[str, set[Path | None]], *, has_mapping: bool
) -> None:
    folders: list[Path] = []  # those that are named like a report
    n_before = len(listing.files)
    for path in _walk(top, listing, folders):
        if path.name == run_file.NAME:
            listing.run_files.append(path)
            continue
        inner = path.with_suffix("").suffix
        try:
            kind = recognise(path, has_mapping=has_mapping and path.suffix in _TABLE_SUFFIXES)
        except PackedError as error:
            if inner in _PACKED_SUFFIXES or path.suffix in _REPORT_SUFFIXES:
                listing.add_problem(path, top, str(error))
            elif path.suffix in _ARCHIVE_SUFFIXES or inner in _ARCHIVE_SUFFIXES:
                listing.warnings.append(str(error))
        except ReportError as error:
            if _should_be_report(path):
                listing.add_problem(path, top, str(error))
        else:
            _add(path, kind, top, listing, seen)
    found = [file.path for file in listing.files[n_before:]]
    for folder in folders:
        # A container that is to mount a file that is not there makes a folder of that name.
        if not any(path.is_relative_to(folder) for path in found):
            text = f"{folder}: a folder, expected a report or a folder of reports"
            listing.add_problem(folder, top, text)


def _add(
    path: Path, kind: ReportKind, top: Path, listing: Listing, seen: dict[str, set[Path | None]]
) -> None:
    """Take a report in, unless it is in already for the same run.json."""
    speaker = _run_file_of(path, top)
    speakers = seen.setdefault(_identity(path), set())
    # Two shards may hold links to one file: each of them claims it, and which is right is for others to say.
    # Without a run.json a second way to the file tells nothing new.
    if speaker not in speakers and not (speaker is None and speakers):
        speakers.add(speaker)
        listing.files.append(ReportFile(path, kind, speaker))


def _identity(path: Path) -> str:
    """Text that is the same for every way to one file, hard links included."""
    try:
        found = path.stat()
    except OSError:
        return os.path.realpath(path)  # it has just gone away
    return f"{found.st_dev} {found.st_ino}" if found.st_ino else os.path.realpath(path)


def recognise(path: Path, *, has_mapping: bool = False) -> ReportKind:
    """Kind of one file by its first bytes.

    Raises
    ------
    ReportError
        If it is no report that we read.
    """
    with open_regular(path) as file:
        try:
            head = file.read(_HEAD_BYTES)
        except OSError as error:
            raise ReportError(f"{path}: cannot be read: {error}") from error
    if not head:
        raise ReportError(f"{path}: empty: the run that was to write it did not get that far")
    packing = next((name for magic, name in _PACKED if head.startswith(magic)), "")
    if packing or head[257:262] == b"ustar":
        raise PackedError(f"{path}: packed ({packing or 'tar'}): unpack it first")
    text = _without_marks(head)
    if text.startswith(b"<"):
        if b"<testsuite" in text or b":testsuite" in text:
            return ReportKind.JUNIT
        raise ReportError(f"{path}: XML without <testsuite> at its start, expected a JUnit report")
    if text.startswith(b"{") and b'"$report_type"' in text:
        return ReportKind.REPORTLOG
    if has_mapping:
        return ReportKind.TABLE
    if head.startswith(b"PAR1") or path.suffix in _TABLE_SUFFIXES:
        raise ReportError(f"{path}: a table needs --preset, --table or --map to say what its columns are")
    raise ReportError(f"{path}: neither JUnit XML nor a pytest report log")


def _without_marks(head: bytes) -> bytes:
    """Text without NULs between its letters and a mark before them: UTF-16 looks the same then."""
    return head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")


def _should_be_report(path: Path) -> bool:
    """Whether a file that is no report is worth a line: a JUnit file that was cut off, or nobody can tell."""
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_BYTES)
    except (ReportError, OSError):
        return True  # it cannot be looked into
    # With a root of its own an XML file is something else, a coverage report say.
    text = _without_marks(head)
    return path.suffix == ".xml" and not (text.startswith(b"<") and re.search(rb"<[A-Za-z]", text))


def _walk(top: Path, listing: Listing, report_folders: list[Path]) -> Iterator[Path]:
    """Files below a folder, by path; a line for each place that cannot be looked into."""
    inside = os.path.realpath(top)

    def tell(error: OSError) -> None:
        text = f"{error.filename}: cannot be looked into: {error.strerror}"
        listing.add_problem(Path(error.filename), top, text)

    for folder, folders, files in os.walk(top, onerror=tell):
        folders.sort()
        for name in folders:
            path = Path(folder, name)
            if path.suffix == ".xml":
                report_folders.append(path)
            if path.is_symlink() and not _is_within(os.path.realpath(path), inside):
                listing.warnings.append(
                    f"{path}: a link to a folder outside of {top}, not followed: name it to have it read"
                )
        for name in sorted(files):
            path = Path(folder, name)
            if _is_worth_a_look(path):
                yield path


def _is_worth_a_look(path: Path) -> bool:
    """Whether a name in a folder is that of a file, or of something in the place of a report."""
    if path.name == run_file.NAME or path.suffix in _REPORT_SUFFIXES:
        return True
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        # A link to nothing or to itself is of no interest under another name; what cannot be seen may be.
        return error.errno not in (errno.ENOENT, errno.ELOOP)


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _run_file_of(path: Path, top: Path) -> Path | None:
    for folder in (path.parent, *path.parent.parents):
        candidate = folder / run_file.NAME
        # Whatever it is: a run.json that cannot be read must not make that of the folder above speak.
        if os.path.lexists(candidate):
            return candidate
        if folder == top:
            return None
    return None

"""Which files are test reports, and of what kind, by their content; and which run.json speaks for them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fastci_ml.errors import ReportError
from fastci_ml.sources import run_file

_HEAD_BYTES = 8192
_TABLE_SUFFIXES = (".csv", ".parquet", ".tsv")


class ReportKind(StrEnum):
    """Reader that a file needs."""

    JUNIT = "junit"
    REPORTLOG = "reportlog"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class ReportFile:
    """One report, and the run.json of its folder or the nearest above, up to the path that was asked for."""

    path: Path
    kind: ReportKind
    run_file: Path | None


def find_reports(paths: Sequence[Path], *, has_mapping: bool) -> tuple[list[ReportFile], list[str]]:
    """Reports among files and below folders, and a line for each file that should be one and is not.

    Parameters
    ----------
    paths : sequence of Path
        A file that is named must be a report; below a folder, files of other kinds are passed over.
    has_mapping : bool
        Whether tables can be read.

    Returns
    -------
    reports : list of ReportFile
        In the order of `paths`, then by path; each file once.
    problems : list of str
        One line each.
    """
    reports: dict[Path, ReportFile] = {}
    problems: list[str] = []
    for top in paths:
        if not top.exists():
            problems.append(f"{top}: no such file or folder")
            continue
        is_named = not top.is_dir()
        for path in [top] if is_named else _walk(top):
            if path.name == run_file.NAME or path.resolve() in reports:
                continue
            try:
                kind = recognise(path, has_mapping=has_mapping and (is_named or _looks_like_table(path)))
            except ReportError as error:
                if is_named or (path.suffix == ".xml" and not _has_other_root(path)):
                    problems.append(str(error))
                continue
            folder = path.parent if is_named else top
            reports[path.resolve()] = ReportFile(path, kind, _run_file_of(path, folder))
    return list(reports.values()), problems


def recognise(path: Path, *, has_mapping: bool = False) -> ReportKind:
    """Kind of one file by its first bytes.

    Raises
    ------
    ReportError
        If it is no report that we read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error}") from error
    if not head:
        raise ReportError(f"{path}: empty: the run that was to write it did not get that far")
    # NULs between the letters and a mark before them: UTF-16 looks the same without.
    text = head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
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


def _looks_like_table(path: Path) -> bool:
    return path.suffix in _TABLE_SUFFIXES


def _has_other_root(path: Path) -> bool:
    """Whether an XML file is something else (a coverage report), and no JUnit file that was cut off early."""
    try:
        with path.open("rb") as file:
            return re.search(rb"<[A-Za-z]", file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False


def _walk(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        folders.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_file():  # no sockets, no pipes that would block
                yield path


def _run_file_of(path: Path, top: Path) -> Path | None:
    for folder in (path.parent, *path.parent.parents):
        candidate = folder / run_file.NAME
        if candidate.is_file():
            return candidate
        if folder == top:
            return None
    return None

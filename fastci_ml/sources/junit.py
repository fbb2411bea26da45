"""JUnit XML, streamed into columns: one pass with expat, no tree, text bodies dropped.

Per case the parser calls one short function that keeps the attributes; everything else is done a block of
cases at a time by Arrow and numpy. What is rare (failures, skips, reruns) is kept apart by row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastci_ml.errors import ReportError
from fastci_ml.sources.junit_cases import RESULT_TAGS, CaseEvent, attempts_of_cases
from fastci_ml.sources.junit_ids import JunitIds
from fastci_ml.sources.reports import Report

_BLOCK_BYTES = 1 << 18
# Enough for the first line of a message and for the rules of `failures`.
_TEXT_LIMIT = 4_000
_ROOTS = ("testsuites", "testsuite")
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+\.\d+")
_NAMES = ("classname", "name", "time", "file")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Reader:
    """Expat handlers, and the columns that they fill.

    Parameters
    ----------
    path : Path
        For messages.
    ids : JunitIds
        Turns names into node ids, block by block.
    """

    def __init__(self, path: Path, ids: JunitIds) -> None:
        self._path = path
        self._ids = ids
        self._cases: list[list[str]] = []  # of the current block; emptied in place
        # Elements that ended since they were last counted. A C function as the handler of every end
        # costs a tenth of a Python one.
        self._ended: list[str] = []
        self._case_tags = {"testcase"}
        self._n_ended_cases = 0
        self._n_flushed = 0
        self._has_root = False
        self._text: list[str] = []
        self._text_of: tuple[int, CaseEvent] | None = None
        self.node_ids: list[pa.Array] = []
        self.is_joined: list[np.ndarray] = []
        self.durations_s: list[np.ndarray] = []
        self.events: dict[int, list[CaseEvent]] = {}
        self.suites: list[tuple[str, str]] = []
        self.n_outside = 0
        self.n_bad_times = 0

    def read(self, file: BinaryIO) -> None:
        """Parse a whole file."""
        self._parser = parser = expat.ParserCreate()
        parser.ordered_attributes = True  # lists of names and values: half the size of dictionaries
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._start_handler()
        parser.EndElementHandler = self._ended.append
        try:
            while block := file.read(_BLOCK_BYTES):
                parser.Parse(block, False)
                self._flush()
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise ReportError(f"{self._path}: torn or no XML: {error}") from error
        except (LookupError, ValueError) as error:
            raise ReportError(f"{self._path}: unknown encoding: {error}") from error
        self._end_text()

    def _start_handler(self) -> Callable[[str, list[str]], None]:
        keep, other = self._cases.append, self._start_other

        def start(tag: str, attributes: list[str]) -> None:
            if tag == "testcase":
                keep(attributes)
            else:
                other(tag, attributes)

        return start

    def _start_other(self, full_tag: str, attributes: list[str]) -> None:
        tag = full_tag.rpartition(":")[2]  # namespaces carry no meaning in any flavour
        if not self._has_root:
            self._has_root = True
            if tag not in _ROOTS:
                raise ReportError(f"{self._path}: root element <{tag}>, expected <testsuites> or <testsuite>")
        self._count_ended()
        n_rows = self._n_flushed + len(self._cases)
        if tag == "testcase":
            self._case_tags.add(full_tag)
            self._cases.append(attributes)
        elif tag == "testsuite":
            suite = _dictionary(attributes)
            self.suites.append((suite.get("timestamp", ""), suite.get("time", "")))
        elif tag in RESULT_TAGS:
            if n_rows == self._n_ended_cases:
                self.n_outside += 1
            else:
                self._add_event(n_rows - 1, tag, _dictionary(attributes))

    def _count_ended(self) -> None:
        self._n_ended_cases += sum(map(self._ended.count, self._case_tags))
        self._ended.clear()

    def _add_event(self, row: int, tag: str, attributes: dict[str, str]) -> None:
        self._end_text()
        get = attributes.get
        event = CaseEvent(tag, get("type", ""), get("message", "")[:_TEXT_LIMIT])
        self.events.setdefault(row, []).append(event)
        if not event.message and tag != "skipped":
            self._text_of = row, event
            self._parser.CharacterDataHandler = self._add_text

    def _add_text(self, text: str) -> None:
        if self._ended or sum(map(len, self._text)) > _TEXT_LIMIT:
            self._end_text()
        else:
            self._text.append(text[:_TEXT_LIMIT])

    def _end_text(self) -> None:
        """The result that had no message attribute is over: its text becomes the message."""
        self._parser.CharacterDataHandler = None
        if self._text_of is not None:
            row, event = self._text_of
            place = self.events[row].index(event)
            message = "".join(self._text)[:_TEXT_LIMIT]
            self.events[row][place] = replace(event, message=message)
        self._text_of = None
        self._text.clear()

    def _flush(self) -> None:
        """Turn the block's attributes into columns."""
        if not self._text_of:
            self._count_ended()
        cases = self._cases
        if not cases:
            return
        blank = [""] * len(cases)
        classnames, names, times, files = (column or blank for column in _columns(cases))
        node_ids, is_joined = self._ids.map(
            pa.array(classnames, pa.string()).dictionary_encode(),
            pa.array(names, pa.string()),
            pa.array(files, pa.string()).dictionary_encode() if any(files) else None,
        )
        self.node_ids.append(node_ids)
        self.is_joined.append(is_joined)
        durations_s, n_bad = parse_times(times)
        self.durations_s.append(durations_s)
        self.n_bad_times += n_bad
        self._n_flushed += len(cases)
        cases.clear()

    def _refuse_doctype(self, *_: object) -> None:
        raise ReportError(f"{self._path}: a document type is declared, which no test report needs: refused")


def read_junit(path: Path, ids: JunitIds | None = None) -> Report:
    """Read one JUnit XML file.

    Parameters
    ----------
    path : Path
        Any flavour: suites nested to any depth, a bare ``<testsuite>``, namespaces, xunit1 and xunit2.
    ids : JunitIds, optional
        How class names become node ids; by naming convention alone when absent.

    Returns
    -------
    Report
        Rows in the order of the file. A test that comes several times has that many tries; of those, a case
        without any result that another try follows is `UNKNOWN`, because rerun plugins write failed tries so.
        A missing, empty or unreadable time is NaN. Times of day without a zone are read as UTC.

    Raises
    ------
    ReportError
        If the file is no JUnit, torn, or declares a document type (which entity bombs need).
    """
    reader = _Reader(path, JunitIds() if ids is None else ids)
    try:
        with path.open("rb") as file:
            reader.read(file)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error}") from error
    return _report(reader)


def parse_times(texts: Sequence[str]) -> tuple[np.ndarray, int]:
    """Seconds from the ``time`` attributes.

    Returns
    -------
    durations_s : float64 array
        NaN where the text is empty, negative or no number; a single comma is ambiguous and so unknown.
    n_bad : int
        How many were there and could not be read.

    Examples
    --------
    >>> parse_times(["0.5", "", "1,024.12", "0,160"])
    (array([5.00000e-01,         nan, 1.02412e+03,         nan]), 1)
    """
    try:
        seconds = pc.cast(pa.array(texts, pa.string()), pa.float64())
        durations_s = np.from_dlpack(seconds).copy()
    except pa.ArrowInvalid:
        durations_s = np.array([_seconds(text) for text in texts], np.float64)
    durations_s[~(np.isfinite(durations_s) & (durations_s >= 0))] = np.nan
    n_unknown = int(np.isnan(durations_s).sum())
    return durations_s, n_unknown - sum(not text.strip() for text in texts) if n_unknown else 0


def _seconds(text: str) -> float:
    text = text.strip()
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _report(reader: _Reader) -> Report:
    blocks = pa.chunked_array(reader.node_ids, pa.string())
    node_ids = blocks.dictionary_encode().combine_chunks()
    is_joined = np.concatenate([np.empty(0, bool), *reader.is_joined])
    durations_s = np.concatenate([np.empty(0), *reader.durations_s])
    started_us, finished_us = _span(reader.suites, float(np.nansum(durations_s)))
    notes = []
    if reader.n_outside:
        notes.append(f"{reader.n_outside} results outside of any test case were left out")
    if reader.n_bad_times:
        notes.append(f"{reader.n_bad_times} times could not be read and count as unknown")
    report = attempts_of_cases(node_ids, is_joined, durations_s, reader.events)
    return replace(report, run_started_us=started_us, run_finished_us=finished_us, notes=tuple(notes))


def _columns(cases: list[list[str]]) -> list[list[str]]:
    """Class names, names, times and files of a block; no files at all where no case has one."""
    n_cases, keys = len(cases), cases[0][::2]
    flat = list(chain.from_iterable(cases))
    width = 2 * len(keys)
    # Nearly always all cases have the same attributes in the same order: then slices are the columns. No case
    # has an attribute twice, so equal counts leave no room for anything else.
    is_regular = len(flat) == width * n_cases and all(
        flat[2 * place :: width].count(key) == n_cases for place, key in enumerate(keys)
    )
    if is_regular:
        return [flat[2 * keys.index(key) + 1 :: width] if key in keys else [] for key in _NAMES]
    rows = [_dictionary(case) for case in cases]
    return [[row.get(key, "") for row in rows] for key in _NAMES]


def _dictionary(attributes: list[str]) -> dict[str, str]:
    return dict(zip(attributes[::2], attributes[1::2], strict=True))


def _span(suites: list[tuple[str, str]], total_s: float) -> tuple[int | None, int | None]:
    """Start of the first suite and end of the last, microseconds since 1970; None when no suite says."""
    starts_us, ends_us = [], []
    for timestamp, time in suites:
        try:
            started = datetime.fromisoformat(timestamp.strip())
        except ValueError:
            continue
        if started.tzinfo is None:
            started = started.replace(tzinfo=UTC)
        started_us = (started - _EPOCH) // timedelta(microseconds=1)
        wall_s = parse_times([time])[0][0]
        starts_us.append(started_us)
        # Without a wall time of the suite, one process that ran everything is the best guess.
        ends_us.append(started_us + round(1e6 * float(total_s if np.isnan(wall_s) else wall_s)))
    return min(starts_us, default=None), max(ends_us, default=None)

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
from fastci_ml.records.plans import FOLLOWED_PROPERTY
from fastci_ml.sources.failure_rules import FailureRules
from fastci_ml.sources.junit_cases import RESULT_TAGS, CaseEvent, attempts_of_cases
from fastci_ml.sources.junit_ids import JunitIds
from fastci_ml.sources.reports import Report, known_durations_s, total_us

_BLOCK_BYTES = 1 << 17
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
        self._n_flushed = 0
        self._has_root = False
        # Results whose parent has not ended yet: only its end tells whether they are of a case or of a suite.
        self._results: list[CaseEvent] = []
        self._depth = 0  # of elements below that parent
        self._text: list[str] = []
        self.node_ids: list[pa.Array] = []
        self.is_joined: list[np.ndarray] = []
        self.durations_s: list[np.ndarray] = []
        self.events: dict[int, list[CaseEvent]] = {}
        self.suites: list[tuple[str, str]] = []
        self.properties: set[tuple[str, str]] = set()
        self.n_outside = 0
        self.n_bad_times = 0

    def read(self, file: BinaryIO) -> None:
        """Parse a whole file."""
        self._parser = parser = expat.ParserCreate()
        parser.ordered_attributes = True  # lists of names and values: half the size of dictionaries
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._start = parser.StartElementHandler = self._start_handler()
        try:
            while block := file.read(_BLOCK_BYTES):
                parser.Parse(block, False)
                self._flush()
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise ReportError(f"{self._path}: torn or no XML: {error}") from error
        except (LookupError, ValueError) as error:
            raise ReportError(f"{self._path}: unknown encoding: {error}") from error

    def _start_handler(self) -> Callable[[str, list[str]], None]:
        keep, other = self._cases.append, self._start_other

        def start(tag: str, attributes: list[str]) -> None:
            if tag == "testcase":
                keep(attributes)
            else:
                other(tag, attributes)

        return start

    def _start_other(self, tag: str, attributes: list[str]) -> None:
        tag = tag.rpartition(":")[2]  # namespaces carry no meaning in any flavour
        if not self._has_root:
            self._has_root = True
            if tag not in _ROOTS:
                raise ReportError(f"{self._path}: root element <{tag}>, expected <testsuites> or <testsuite>")
        if tag == "testcase":
            self._cases.append(attributes)
        elif tag == "testsuite":
            suite = _dictionary(attributes)
            self.suites.append((suite.get("timestamp", ""), suite.get("time", "")))
        elif tag == "property":
            found = _dictionary(attributes)
            # Only what our own plugin wrote: other properties are anybody's, and any number of them.
            if found.get("name") == FOLLOWED_PROPERTY:
                self.properties.add((FOLLOWED_PROPERTY, found.get("value", "")[:_TEXT_LIMIT]))
        elif tag in RESULT_TAGS:
            # Ends matter from here to the end of the parent only: handling all of them would cost a tenth.
            self._parser.StartElementHandler = self._start_beside_result
            self._parser.EndElementHandler = self._end_beside_result
            self._begin_result(tag, _dictionary(attributes))

    def _begin_result(self, tag: str, attributes: dict[str, str]) -> None:
        get = attributes.get
        self._depth = 1
        self._results.append(CaseEvent(tag, get("type", ""), get("message", "")[:_TEXT_LIMIT]))
        if tag != "skipped" and not self._results[-1].message:
            self._parser.CharacterDataHandler = self._add_text

    def _start_beside_result(self, tag: str, attributes: list[str]) -> None:
        name = tag.rpartition(":")[2]
        if self._depth:
            self._depth += 1  # markup inside of a result
        elif name in RESULT_TAGS:
            self._begin_result(name, _dictionary(attributes))
        elif name in ("testcase", "testsuite"):
            self._end_parent(is_case=False)  # a parent with such children is a suite
            self._start(tag, attributes)
        else:
            self._depth = 1

    def _end_beside_result(self, tag: str) -> None:
        if not self._depth:
            self._end_parent(is_case=tag.rpartition(":")[2] == "testcase")
            return
        self._depth -= 1
        if not self._depth and self._parser.CharacterDataHandler is not None:
            self._parser.CharacterDataHandler = None
            self._results[-1] = replace(self._results[-1], message="".join(self._text)[:_TEXT_LIMIT])
            self._text.clear()

    def _end_parent(self, *, is_case: bool) -> None:
        self._parser.StartElementHandler, self._parser.EndElementHandler = self._start, None
        if is_case:
            row = self._n_flushed + len(self._cases) - 1
            self.events.setdefault(row, []).extend(self._results)
        else:
            self.n_outside += len(self._results)
        self._results = []

    def _add_text(self, text: str) -> None:
        if sum(map(len, self._text)) < _TEXT_LIMIT:
            self._text.append(text[:_TEXT_LIMIT])

    def _flush(self) -> None:
        """Turn the block's attributes into columns."""
        cases = self._cases
        if not cases:
            return
        blank = [""] * len(cases)
        classnames, names, times, files = (column or blank for column in _columns(cases))
        node_ids, is_joined = self._ids.map(classnames, names, files)
        self.node_ids.append(node_ids)
        self.is_joined.append(is_joined)
        durations_s, n_bad = parse_times(times)
        self.durations_s.append(durations_s)
        self.n_bad_times += n_bad
        self._n_flushed += len(cases)
        cases.clear()

    def _refuse_doctype(self, *_: object) -> None:
        raise ReportError(f"{self._path}: a document type is declared, which no test report needs: refused")


def read_junit(path: Path, ids: JunitIds | None = None, rules: FailureRules | None = None) -> Report:
    """Read one JUnit XML file.

    Parameters
    ----------
    path : Path
        Any flavour: suites nested to any depth, a bare ``<testsuite>``, namespaces, xunit1 and xunit2.
    ids : JunitIds, optional
        How class names become node ids; by naming convention alone when absent.
    rules : FailureRules, optional
        Of failure classes; the shipped ones by default.

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
    return _report(reader, rules)


def parse_times(texts: Sequence[str]) -> tuple[np.ndarray, int]:
    """Seconds from the ``time`` attributes.

    Returns
    -------
    durations_s : float64 array
        NaN where the text is empty, no number or none that a duration can be; a single comma is ambiguous
        and so unknown.
    n_bad : int
        How many were there and could not be read.

    Examples
    --------
    >>> parse_times(["0.5", "", "1,024.12", "0,160"])
    (array([5.00000e-01,         nan, 1.02412e+03,         nan]), 1)
    """
    try:
        seconds = pc.cast(pa.array(texts, pa.string()), pa.float64())
        durations_s = known_durations_s(np.from_dlpack(seconds))
    except pa.ArrowInvalid:
        durations_s = known_durations_s(np.array([_seconds(text) for text in texts], np.float64))
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


def _report(reader: _Reader, rules: FailureRules | None) -> Report:
    blocks = pa.chunked_array(reader.node_ids, pa.string())
    node_ids = blocks.dictionary_encode().combine_chunks()
    is_joined = np.concatenate([np.empty(0, bool), *reader.is_joined])
    durations_s = np.concatenate([np.empty(0), *reader.durations_s])
    started_us, finished_us = _span(reader.suites, total_us(durations_s))
    notes = []
    if reader.n_outside:
        notes.append(f"{reader.n_outside} results outside of any test case were left out")
    if reader.n_bad_times:
        notes.append(f"{reader.n_bad_times} times could not be read and count as unknown")
    report = attempts_of_cases(node_ids, is_joined, durations_s, reader.events, rules)
    return replace(
        report,
        run_started_us=started_us,
        run_finished_us=finished_us,
        notes=tuple(notes),
        properties=tuple(sorted(reader.properties)),
    )


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


def _span(suites: list[tuple[str, str]], cases_us: int) -> tuple[int | None, int | None]:
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
        ends_us.append(started_us + (cases_us if np.isnan(wall_s) else round(1e6 * float(wall_s))))
    return min(starts_us, default=None), max(ends_us, default=None)

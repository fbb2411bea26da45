"""JUnit XML files of any flavour, as reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

import numpy as np

from fastci_ml.errors import ReportError
from fastci_ml.sources.failures.rules import FailureRules
from fastci_ml.sources.junit.cases import attempts_of_cases
from fastci_ml.sources.junit.durations import duration_of, is_decimal_comma, single_comma
from fastci_ml.sources.junit.ids import JunitIds
from fastci_ml.sources.junit.parser import JunitParser
from fastci_ml.sources.junit.suites import Suite, SuiteIndex
from fastci_ml.sources.junit.xml_repair import XmlRepair
from fastci_ml.sources.regular_files import open_regular
from fastci_ml.sources.reports import Report, total_us

_BLOCK_BYTES = 1 << 17
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The file ends where its root has not ended: nothing that a repair may complete.
_TORN = tuple(
    expat.errors.codes[message]
    for message in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
)


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
        without any result that another try follows is a failed try or a pass if the header of its suite
        settles that, else `UNKNOWN`. A missing, empty or unreadable time is NaN. Times of day without a zone
        are read as UTC. What XML forbids is repaired, and a note says how often.

    Raises
    ------
    ReportError
        If the file is no JUnit, torn, beyond repair, or declares a document type (which entity bombs need).
    """
    ids = JunitIds() if ids is None else ids
    with open_regular(path) as file:
        try:
            parser, notes = _parse(path, file, ids, rules)
        except OSError as error:
            raise ReportError(f"{path}: cannot be read: {error}") from error
    return _report(parser, notes)


def _parse(
    path: Path, file: BinaryIO, ids: JunitIds, rules: FailureRules | None
) -> tuple[JunitParser, list[str]]:
    """The file parsed, and notes on what had to be repaired for that."""
    parser = JunitParser(path, ids, rules)
    try:
        parser.parse(_blocks(file), is_repaired=False)
    except expat.ExpatError as error:
        if error.code in _TORN:
            raise ReportError(_torn(path, error)) from error
    except (LookupError, ValueError, Warning):
        pass  # an encoding that expat does not know, or whose decoder warns: the repair decodes it
    else:
        return parser, []
    file.seek(0)
    repair = XmlRepair()
    parser = JunitParser(path, ids, rules)
    n_behind = 0
    try:
        parser.parse(repair.blocks(file), is_repaired=True)
    except expat.ExpatError as error:
        if error.code in _TORN:
            raise ReportError(_torn(path, error)) from error
        file.seek(0)
        n_behind = _n_behind_root(path, XmlRepair().blocks(file))
        if not n_behind:
            raise ReportError(f"{path}: no XML, and nothing that can be repaired: {error}") from error
        parser.finish()
    notes = []
    if repair.n_illegal:
        notes.append(f"{repair.n_illegal} characters or bytes that XML forbids were spelled out")
    if repair.n_markup:
        notes.append(f"{repair.n_markup} bare ampersands or brackets were read as what they are")
    if repair.n_before or n_behind:
        notes.append(f"{repair.n_before + n_behind} characters around the report were left out")
    if repair.declared:
        notes.append(f"declared as {repair.declared}, read as {repair.encoding}")
    return parser, notes


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK_BYTES):
        yield block


def _n_behind_root(path: Path, blocks: Iterator[bytes]) -> int:
    """Length of the text behind the end of the root; 0 if there is none, or the root does not end.

    Text there hides nothing: what a tool printed, or zeros of a file system. Elements there may be results.
    """
    parser = expat.ParserCreate("utf-8")
    depth, ended_at = 0, -1

    def start(_: str, __: object) -> None:
        nonlocal depth
        depth += 1

    def end(_: str) -> None:
        nonlocal depth, ended_at
        depth -= 1
        if not depth:
            ended_at = parser.CurrentByteIndex

    parser.StartElementHandler, parser.EndElementHandler = start, end
    n_fed = n_behind = 0
    for block in blocks:
        behind = block
        if ended_at < 0:
            try:
                parser.Parse(block, False)
            except expat.ExpatError:
                if ended_at < 0:
                    return 0
            if ended_at < 0:
                n_fed += len(block)
                continue
            # The tag may have begun in the block before.
            behind = block[max(0, ended_at - n_fed) :].partition(b">")[2]
        if b"<" in behind:  # a bare one is spelled out by now
            raise ReportError(f"{path}: more elements behind the end of the root, expected one report a file")
        n_behind += len(behind.strip())
    return n_behind


def _torn(path: Path, error: expat.ExpatError) -> str:
    return f"{path}: torn: it ends before its root element does ({error})"


def _report(parser: JunitParser, notes: list[str]) -> Report:
    columns = parser.columns
    node_ids, is_joined, durations_s = columns.joined()
    unread = _read_commas(parser, durations_s)
    n_bad_times = columns.n_bad_times + len(unread)
    started_us, finished_us = _span(parser.suites, total_us(durations_s))
    if parser.n_outside:
        notes.append(f"{parser.n_outside} results outside of any test case were left out")
    if n_bad_times:
        example = columns.bad_time or unread[0][:40]
        notes.append(f"{n_bad_times} times could not be read and count as unknown, such as {example!r}")
    if columns.n_cut_names:
        notes.append(f"{columns.n_cut_names} cases have names that are too long to be any, and were cut")
    if parser.n_left_out:
        notes.append(f"{parser.n_left_out} results of cases with more than a thousand of them were left out")
    report = attempts_of_cases(
        node_ids,
        is_joined,
        durations_s,
        columns.results,
        suites=parser.suites,
        nameless=columns.nameless,
        n_outside=parser.n_outside,
    )
    return replace(
        report,
        run_started_us=started_us,
        run_finished_us=finished_us,
        notes=(*notes, *report.notes),
        properties=tuple(sorted(parser.properties)),
    )


def _read_commas(parser: JunitParser, durations_s: np.ndarray) -> list[str]:
    """Read times with a single comma where the total of their suite settles it; returns the others."""
    commas = parser.columns.commas
    if not commas:
        return []
    index = SuiteIndex(parser.suites)
    rows = np.fromiter(commas, np.int64, len(commas))
    places = index.places(rows)
    unread: list[str] = []
    for place in np.unique(places).tolist():
        of_suite = rows[places == place].tolist()
        texts = [commas[row] for row in of_suite]
        suite = index.leaves[place] if place >= 0 else None
        if suite is not None and is_decimal_comma(
            texts, float(np.nansum(durations_s[suite.start : suite.end])), suite.time
        ):
            durations_s[of_suite] = [single_comma(text) for text in texts]
        else:
            unread += texts
    return unread


def _span(suites: Sequence[Suite], cases_us: int) -> tuple[int | None, int | None]:
    """Start of the first suite and end of the last, microseconds since 1970; None when no suite says."""
    starts_us, ends_us = [], []
    for suite in suites:
        try:
            started = datetime.fromisoformat(suite.timestamp.strip())
        except ValueError:
            continue
        if started.tzinfo is None:
            started = started.replace(tzinfo=UTC)
        started_us = (started - _EPOCH) // timedelta(microseconds=1)
        wall_s = duration_of(suite.time)
        starts_us.append(started_us)
        # Without a wall time of the suite, one process that ran everything is the best guess.
        ends_us.append(started_us + (cases_us if np.isnan(wall_s) else round(1e6 * wall_s)))
    return min(starts_us, default=None), max(ends_us, default=None)

"""JUnit XML, streamed: one pass with expat, no tree, text bodies dropped.

Per case the parser calls one short function that keeps the attributes; `junit_columns` makes columns of them,
a block at a time. What is rare (failures, skips, reruns, suites) is kept apart by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from xml.parsers import expat

from fastci_ml.errors import ReportError
from fastci_ml.records.plans import FOLLOWED_PROPERTY
from fastci_ml.sources.failures.rules import FailureRules
from fastci_ml.sources.junit.columns import CaseColumns
from fastci_ml.sources.junit.ids import JunitIds
from fastci_ml.sources.junit.results import (
    RESULT_TAGS,
    CaseEvent,
    needs_text,
    result_of_case,
)
from fastci_ml.sources.junit.roots import ROOTS, describe_root
from fastci_ml.sources.junit.suites import Suite, suite_of

# Enough for the first line of a message and for the rules of `failures`.
_TEXT_LIMIT = 4_000
# What no tag needs; expat holds an unfinished tag in memory.
_TAG_LIMIT_BYTES = 32 << 20
_RESULT_LIMIT = 1_000
_SUITES = ("testsuite", "testsuites")


class JunitParser:
    """Expat handlers, and the columns that they fill.

    Parameters
    ----------
    path : Path
        For messages.
    ids : JunitIds
        Turns names into node ids, block by block.
    rules : FailureRules or None
        Of failure classes.

    Attributes
    ----------
    columns : CaseColumns
        Of all cases.
    suites : list of Suite
        In the order of the file, the root last if it is none itself.
    properties : set of (str, str)
        Those of our own plugin.
    n_outside, n_left_out : int
        Results outside of cases; results of cases that had too many.
    """

    def __init__(self, path: Path, ids: JunitIds, rules: FailureRules | None) -> None:
        self._path = path
        self._rules = rules
        self._cases: list[list[str]] = []  # of the current block; emptied in place
        self._has_root = False
        # Results whose parent has not ended yet: only its end tells whether they are of a case or of a suite.
        self._results: list[CaseEvent] = []
        self._depth = 0  # of elements below that parent
        self._text: list[str] = []
        self._n_text = 0
        self._is_text_kept = False
        self._outer: Suite | None = None
        self._open: list[Suite] = []  # suites after the first
        self._idle_end: Callable[[str], None] | None = None
        self.columns = CaseColumns(ids)
        self.suites: list[Suite] = []
        self.properties: set[tuple[str, str]] = set()
        self.n_outside = self.n_left_out = 0

    def parse(self, blocks: Iterator[bytes], *, is_repaired: bool) -> None:
        """Parse a whole file.

        Parameters
        ----------
        blocks : iterator of bytes
            Its content.
        is_repaired : bool
            Whether it comes from `XmlRepair`: then it is UTF-8.

        Raises
        ------
        ReportError
            If it is no JUnit, or more than a report may be.
        xml.parsers.expat.ExpatError
            If it is no XML.
        LookupError or ValueError or Warning
            If its encoding is unknown.
        """
        self._parser = parser = expat.ParserCreate("utf-8" if is_repaired else None)
        parser.ordered_attributes = True  # lists of names and values: half the size of dictionaries
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._start = parser.StartElementHandler = self._start_handler()
        for block in self._chunks(blocks):
            parser.Parse(block, False)
            self._flush()
        parser.Parse(b"", True)
        self.finish()

    def finish(self) -> None:
        """Close what is open, at the end of the file, or where expat stopped behind the end of the root."""
        self._flush()
        if len(self.suites) == 1:
            self.suites[0].end = self._n_cases
        if self._outer is not None:
            self._outer.end = self._n_cases
            self._outer.is_leaf = False
            self.suites.append(self._outer)

    def _chunks(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Blocks as expat should get them: it scans an unfinished tag anew, so each time twice as much."""
        held: list[bytes] = []
        n_held = n_fed = 0
        for block in blocks:
            n_waiting = n_fed - max(0, self._parser.CurrentByteIndex)
            if n_waiting + n_held > _TAG_LIMIT_BYTES:
                raise ReportError(
                    f"{self._path}: line {self._parser.CurrentLineNumber}: a tag or comment of more than "
                    f"{_TAG_LIMIT_BYTES >> 20} MiB, which no test report needs: refused"
                )
            held.append(block)
            n_held += len(block)
            if n_held >= n_waiting:
                yield b"".join(held)
                held.clear()
                n_fed += n_held
                n_held = 0
        if held:
            yield b"".join(held)

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
            if tag not in ROOTS:
                raise ReportError(f"{self._path}: {describe_root(tag)}")
        if tag == "testcase":
            self._cases.append(attributes)
        elif tag in _SUITES:
            self._start_suite(tag, _dictionary(attributes))
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

    def _start_suite(self, tag: str, attributes: dict[str, str]) -> None:
        suite = suite_of(attributes, self._n_cases)
        if tag == "testsuites":
            if self._outer is None:
                self._outer = suite
            return
        self.suites.append(suite)
        if len(self.suites) > 1:
            # With one suite, as pytest writes it, its end is that of the file: no end need be looked at.
            if self._idle_end is None:
                self.suites[0].end = self._n_cases
                self._idle_end = self._parser.EndElementHandler = self._end_suite
            if self._open:
                self._open[-1].is_leaf = False
            self._open.append(suite)

    def _end_suite(self, tag: str) -> None:
        if tag.rpartition(":")[2] != "testsuite":
            return
        if self._open:
            self._open.pop().end = self._n_cases
        else:  # the first one, which was open when ends began to be looked at
            self.suites[0].end = self._n_cases
            self.suites[0].is_leaf = False

    @property
    def _n_cases(self) -> int:
        return self.columns.n_cases + len(self._cases)

    def _begin_result(self, tag: str, attributes: dict[str, str]) -> None:
        get = attributes.get
        self._depth = 1
        event = CaseEvent(
            tag, get("type", "")[:_TEXT_LIMIT], get("message", "")[:_TEXT_LIMIT], get("time", "")
        )
        if len(self._results) < _RESULT_LIMIT:
            self._results.append(event)
        else:
            self.n_left_out += 1
            if tag != "skipped":
                self._results[-1] = event
        if needs_text(event):
            self._is_text_kept = True
            self._n_text = 0
            self._parser.CharacterDataHandler = self._add_text

    def _start_beside_result(self, tag: str, attributes: list[str]) -> None:
        name = tag.rpartition(":")[2]
        if self._depth:
            self._depth += 1  # markup inside of a result
        elif name in RESULT_TAGS:
            self._begin_result(name, _dictionary(attributes))
        elif name == "testcase" or name in _SUITES:
            self._end_parent(is_case=False)  # a parent with such children is a suite
            self._start(tag, attributes)
        else:
            self._depth = 1

    def _end_beside_result(self, tag: str) -> None:
        if not self._depth:
            self._end_parent(is_case=tag.rpartition(":")[2] == "testcase")
            if self._idle_end is not None:
                self._idle_end(tag)
            return
        self._depth -= 1
        if not self._depth and self._is_text_kept:
            self._is_text_kept = False
            self._parser.CharacterDataHandler = None
            event = self._results[-1]
            lines = [event.message, *self._text] if event.message else self._text
            self._results[-1] = replace(event, message="".join(lines)[:_TEXT_LIMIT])
            self._text.clear()

    def _end_parent(self, *, is_case: bool) -> None:
        self._parser.StartElementHandler, self._parser.EndElementHandler = self._start, self._idle_end
        if is_case and self._n_cases:
            row = self._n_cases - 1
            before = self.columns.results.get(row)
            # A case inside of another: what failed first stands.
            if before is None or not before.tries[-1].outcome.is_failure:
                self.columns.results[row] = result_of_case(self._results, self._rules)
        else:
            self.n_outside += len(self._results)
        self._results = []

    def _add_text(self, text: str) -> None:
        if not self._n_text and self._results[-1].message:
            text = f"\n{text.lstrip()}"
        self._text.append(text[:_TEXT_LIMIT])
        self._n_text += len(text)
        if self._n_text >= _TEXT_LIMIT:
            self._parser.CharacterDataHandler = None

    def _flush(self) -> None:
        if self._cases:
            self.columns.add(self._cases)
            self._cases.clear()

    def _refuse_doctype(self, *_: object) -> None:
        raise ReportError(f"{self._path}: a document type is declared, which no test report needs: refused")


def _dictionary(attributes: list[str]) -> dict[str, str]:
    return dict(zip(attributes[::2], attributes[1::2], strict=True))

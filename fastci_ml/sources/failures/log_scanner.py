"""What matters of a log that is too long to keep: its exceptions, and lines that a pattern may match."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from fastci_ml.sources.failures.rules import Pattern
from fastci_ml.sources.failures.texts import CHAINED, TRACEBACK, without_prefix

_HEAD = TRACEBACK.encode()
_LINE_LIMIT = 4_000
_MARK_LIMIT = 400
# A process ends at its last exception, and the first may be what led to it.
_N_FIRST, _N_LAST = 8, 8
_N_MESSAGE_LINES = 12
# torchrun's list of failed ranks is one message.
_LIST_HEAD = "ChildFailedError"
_N_LIST_LINES, _LIST_CHARACTERS = 2_000, 60_000
# Loggers write right after an exception, and what they say is not its message.
_LOG_LINE = re.compile(
    r"\[?[EWIFD]\d{3,4}[ :]|\[[EWID] |\d{4}-\d\d-\d\d|(?:ERROR|WARNING|WARN|INFO|DEBUG|CRITICAL)\b"
    r"|/.{1,300}:\d{1,6}: |[\w.-]{1,80}:\d{1,9}:\d{1,9} \["
)


class LogScanner:
    """Collects from blocks of a log, in order.

    Parameters
    ----------
    patterns : sequence of Pattern
        Lines that none of them may match are passed over.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        needs = {text for pattern in patterns for text in pattern.needs}
        self._needs = [text.encode() for text in sorted(needs)]
        self._others = [pattern for pattern in patterns if not pattern.needs]
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=_N_LAST)
        self._marks: dict[object, list[tuple[int, str]]] = {}
        self._n_bytes = 0  # in the blocks before
        self._message: list[str] = []  # exceptions of one chain so far
        self._n_left = 0  # lines that may still belong to the message
        self._frames_below: int | None = None  # indentation of the head of a traceback
        self._has_prefix = False

    def feed(self, block: bytes) -> None:
        """Take a block of whole lines."""
        if b"\r" in block:
            # A progress bar writes its lines over one another.
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        for need in self._needs:
            if need in block:
                self._mark_lines(block, need)
        if self._others:
            self._search_lines(block)
        place = 0
        while place < len(block):
            if self._is_idle():
                found = block.find(_HEAD, place)
                if found < 0:
                    break
                place = _line_at(block, found)[0]
            _, end = _line_at(block, place)
            self._follow(_decoded(block[place:end]))
            place = end + 1
        self._n_bytes += len(block)

    def interrupt(self) -> None:
        """The next block does not follow on the last: what was begun ends."""
        self._close()

    def finish(self) -> tuple[list[str], str]:
        """Exceptions, each with those that it came from, and the lines that a pattern may match."""
        self._close()
        marks = sorted({mark for marks in self._marks.values() for mark in marks})
        return [*self._first, *self._last], "\n".join(line for _, line in marks)

    def _mark_lines(self, block: bytes, need: bytes) -> None:
        """Keep the first two and the last two lines with a text: a log may say the same a million times."""
        place, marks = 0, []
        for _ in range(2):
            if (found := block.find(need, place)) < 0:
                break
            start, place = _line_at(block, found)
            marks.append(start)
        place = len(block)
        for _ in range(2):
            if (found := block.rfind(need, 0, place)) < 0:
                break
            place = _line_at(block, found)[0]
            marks.append(place)
        for start in sorted(set(marks)):
            self._keep(need, block, start)

    def _search_lines(self, block: bytes) -> None:
        place = 0
        while place < len(block):
            _, end = _line_at(block, place)
            line = without_prefix(_decoded(block[place:end]))
            for pattern in self._others:
                if pattern.search(line):
                    self._keep(pattern.source, block, place)
            place = end + 1

    def _keep(self, key: object, block: bytes, start: int) -> None:
        line = without_prefix(_decoded(block[start : _line_at(block, start)[1]]))
        marks = self._marks.setdefault(key, [])
        if len(marks) == 4:
            del marks[2]
        marks.append((self._n_bytes + start, line[:_MARK_LIMIT]))

    def _follow(self, raw: str) -> None:
        """Follow tracebacks: head, frames, message, and whether another one follows from it."""
        line = without_prefix(raw).rstrip()
        indent = len(line) - len(line.lstrip(" "))
        if self._frames_below is not None:
            if line and indent <= self._frames_below:
                self._frames_below = None
                self._begin_message(raw, line)
        elif line.endswith(TRACEBACK) and not self._is_in_list():
            if self._n_left >= 0:  # no "the above exception" before it
                self._close()
            self._frames_below = indent
        elif self._message:
            self._continue_message(raw, line)

    def _begin_message(self, raw: str, line: str) -> None:
        self._message.append(line)
        self._has_prefix = raw.rstrip() != line
        self._n_left = _N_LIST_LINES if _LIST_HEAD in line else _N_MESSAGE_LINES

    def _continue_message(self, raw: str, line: str) -> None:
        if line in CHAINED:
            self._n_left = -1  # the next traceback is of the same chain
            return
        if not line:
            if not self._is_in_list() and self._n_left > 0:
                self._n_left = 0  # only a chained one can follow
            return
        is_over = self._n_left <= 0 or (raw.rstrip() != line) != self._has_prefix or _LOG_LINE.match(line)
        if is_over or sum(map(len, self._message)) > _LIST_CHARACTERS:
            self._close()
            return
        self._message.append(line)
        self._n_left -= 1

    def _is_idle(self) -> bool:
        return not self._message and self._frames_below is None

    def _is_in_list(self) -> bool:
        return self._n_left > _N_MESSAGE_LINES

    def _close(self) -> None:
        """What was followed is complete."""
        if self._message:
            text = "\n".join(self._message)
            if len(self._first) < _N_FIRST:
                self._first.append(text)
            else:
                self._last.append(text)
        self._message, self._n_left, self._frames_below = [], 0, None


def exceptions_in(text: str) -> list[str]:
    r"""Exceptions whose tracebacks stand in a text, each with those that it came from.

    Examples
    --------
    >>> exceptions_in("child said: Traceback (most recent call last):\n  File 'x'\nOSError: y\n\nend")
    ['OSError: y']
    """
    scanner = LogScanner(())
    scanner.feed(text.encode("utf-8", "replace"))
    return scanner.finish()[0]


def _line_at(block: bytes, place: int) -> tuple[int, int]:
    """Where the line around a place begins and ends."""
    end = block.find(b"\n", place)
    return block.rfind(b"\n", 0, place) + 1, len(block) if end < 0 else end


def _decoded(raw: bytes) -> str:
    return raw[:_LINE_LIMIT].decode("utf-8", "replace")

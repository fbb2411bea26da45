"""What a failure says in its own words, and what those state outright.

Own words are what is left without the source that pytest quotes, the frames of tracebacks and the prefixes of
launchers. They may state an assertion, an error of the program, exit statuses, or a list of failed ranks. All
of it takes any text, and time in proportion to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from signal import Signals
from textwrap import dedent

# Longer texts are judged by their two ends: an exception starts a message, or ends a log.
TEXT_LIMIT = 16_000
# torchrun lists every rank of a node with its traceback.
_LIST_LIMIT = 64_000
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,30}[A-Za-z]")
# `[rank3]: `, `[default0]:` (torchrun), `2026-01-02T03:04:05.678Z ` (CI log).
_PREFIX = re.compile(r"(?:\[[A-Za-z_]{0,20}\d{1,6}\]:[ ]?|\d{4}-\d\d-\d\dT[\d:.]{8,20}Z[ ])")
_PREFIX_STARTS = frozenset("[0123456789")
_PYTEST_MARK = "E   "
TRACEBACK = "Traceback (most recent call last):"
CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_DOTTED = r"(?:[A-Za-z_][\w.]{0,100}\.)?"
_ASSERTION = re.compile(
    rf"{_DOTTED}(?:\w{{0,60}}AssertionError|AssertionFailedError|ComparisonFailure)\b"
    r"|assert\b|Failed: (?!Timeout)"
    r"|.{0,300}: Assertion [`'\"].{1,300}[`'\"] failed"  # assert() of C
    r"|.{0,300}device-side assert triggered"
)
# Nothing outside of the program raises these; what they quote is data.
_PROGRAM_ERROR = re.compile(
    rf"{_DOTTED}(?:AttributeError|TypeError|ValueError|KeyError|IndexError|LookupError|NameError|UnboundLocalError"
    r"|ZeroDivisionError|ArithmeticError|OverflowError|NotImplementedError|RecursionError|SyntaxError"
    r"|IndentationError|UnicodeDecodeError|UnicodeEncodeError|StopIteration|ModuleNotFoundError)(?::|$)"
)
# Each with a text that it cannot do without: looking for that is a tenth of the work.
_STATUSES = (
    ("exit", re.compile(r"\bexit(?:ed with)? ?(?:code|status)\s{0,20}[:=]?\s{0,3}(-?\d{1,3})\b")),
    ("died with", re.compile(r"\bdied with <Signals\.(SIG[A-Z0-9]{1,10}): \d{1,3}>")),
    ("terminated", re.compile(r"\bterminated (?:with|by) signal (SIG[A-Z0-9]{1,10})\b")),
    ("received by PID", re.compile(r"\bSignal \d{1,3} \((SIG[A-Z0-9]{1,10})\) received by PID\b")),
)
_SIGNAL_CODES = range(129, 160)  # how a shell says that signal n - 128 ended its child
_ENTRY = re.compile(
    r"^ {1,4}rank {1,8}: (?P<rank>\d{1,6})[^\n]{0,60}\n"
    r" {1,4}exitcode {1,4}: (?P<status>-?\d{1,3})[^\n]{0,80}\n"
    r" {1,4}error_file {0,4}:[^\n]{0,4000}\n {1,4}traceback {1,4}: (?P<head>[^\n]{0,4000})",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """What one process of a distributed run left of its failure.

    Attributes
    ----------
    name : str
        ``rank 3``, or the name of its log.
    failed_at_s : float or None
        Seconds since 1970 as the process itself wrote them; None when unknown.
    status : int or None
        Exit code, or minus the signal; None when unknown.
    messages : tuple of str
        Its exceptions in its own words, first to last; causes and what followed from them are one.
    log : str
        Lines of its log that a rule may know.
    """

    name: str
    failed_at_s: float | None = None
    status: int | None = None
    messages: tuple[str, ...] = ()
    log: str = ""


def bounded(text: str, limit: int = TEXT_LIMIT) -> str:
    r"""The text, or its two ends where it is longer than `limit`.

    Examples
    --------
    >>> bounded("abcdefgh", 4)
    'ab\ngh'
    """
    return text if len(text) <= limit else f"{text[: limit // 2]}\n{text[-(limit // 2) :]}"


def without_prefix(line: str) -> str:
    """One line of a log without colours and without what launchers and CI systems write before it.

    Examples
    --------
    >>> without_prefix("[rank1]: ValueError: x"), without_prefix("2026-01-02T03:04:05.1Z [default0]:x")
    ('ValueError: x', 'x')
    """
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    while line[:1] in _PREFIX_STARTS and (match := _PREFIX.match(line)):
        line = line[match.end() :]
    return line


def own_words(text: str) -> str:
    r"""What a failure says itself: no quoted source, no frames, no prefixes.

    Parameters
    ----------
    text : str
        A message, or a whole report of one as pytest and tracebacks write it.

    Examples
    --------
    >>> own_words("    def test_x():\n>       open('/f')\nE       OSError: disk full\n\nx.py:3: OSError")
    'OSError: disk full'
    >>> own_words('Traceback (most recent call last):\n  File "x.py", line 1\n    raise A("x")\nA: x')
    'A: x'
    """
    kept: list[str] = []
    frames_below = -1  # indentation of a traceback's head; deeper lines are its frames
    for line in said(text).split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if frames_below >= 0 and (indent > frames_below or not line.strip()):
            continue
        frames_below = -1
        if TRACEBACK in line:
            frames_below = indent
        elif line.strip() not in CHAINED:
            kept.append(line.rstrip("\r"))
    return "\n".join(kept).strip("\n")


def said(text: str) -> str:
    r"""Text without prefixes and colours, and without the source that pytest quotes; tracebacks stay.

    Examples
    --------
    >>> said(">   run()\nE   RuntimeError: child:\nE   Traceback (most recent call last):\nE     File")
    'RuntimeError: child:\nTraceback (most recent call last):\n  File'
    """
    lines = [without_prefix(line) for line in bounded(text).split("\n")]
    if any(line.startswith(_PYTEST_MARK) for line in lines):
        lines = dedent("\n".join(line[1:] for line in lines if line.startswith("E "))).split("\n")
    return "\n".join(lines)


def assertion_in(words: str) -> str:
    r"""First line of a failure's own words that is an assertion or a verdict of the test; empty without one.

    Examples
    --------
    >>> assertion_in("RuntimeError: worker says\nAssertionError: 1 != 2")
    'AssertionError: 1 != 2'
    """
    may_be = "ssert" in words or "Failed: " in words or "ComparisonFailure" in words
    return _first_line_that(_ASSERTION, words) if may_be else ""


def program_error_in(words: str) -> str:
    """First line of a failure's own words that is an error which only a program makes; empty without one.

    Examples
    --------
    >>> program_error_in("ValueError: 'No space left on device' is no size"), program_error_in("OSError: x")
    ("ValueError: 'No space left on device' is no size", '')
    """
    return _first_line_that(_PROGRAM_ERROR, words) if "Error" in words or "StopIteration" in words else ""


def exit_statuses(words: str) -> frozenset[int]:
    """Exit codes that the text states; signals are negative, also where a shell or a container wrote 128 + n.

    Examples
    --------
    >>> sorted(exit_statuses("died with <Signals.SIGSEGV: 11>. Container: exit code 137, exitcode: 1"))
    [-11, -9, 1]
    """
    found: set[int] = set()
    for needed, pattern in _STATUSES:
        for text in pattern.findall(words) if needed in words else ():
            if text.startswith("SIG"):
                found |= {-signal.value for signal in Signals if signal.name == text}
            else:
                code = int(text)
                found.add(128 - code if code in _SIGNAL_CODES else code)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class LauncherList:
    """Failed ranks as a launcher lists them, and whether the list is there to its end."""

    entries: tuple[RankFailure, ...]
    is_whole: bool


def launcher_list(text: str) -> LauncherList:
    """Failed ranks from the message of torchrun's ChildFailedError.

    The time that torchrun gives is left out: for a process without an error file it is when torchrun looked.
    So is its choice of a root cause, which goes by that time: a killed rank comes after those that missed it.

    Returns
    -------
    LauncherList
        Without entries where the text holds no such list; not whole where it was cut off.
    """
    text = bounded(text, _LIST_LIMIT)
    matches = list(_ENTRY.finditer(text)) if "exitcode" in text else []
    if not matches:
        return LauncherList((), is_whole=False)
    ends = [match.start() for match in matches[1:]] + [len(text)]
    entries = tuple(_entry(match, text[match.end() : end]) for match, end in zip(matches, ends, strict=True))
    root = text.find("Root Cause (first observed failure)")
    is_whole = 0 <= root < matches[-1].start() and "\n====" in text[matches[-1].end() :]
    return LauncherList(entries, is_whole)


def _entry(match: re.Match[str], below: str) -> RankFailure:
    words = ""
    if match["head"].startswith(TRACEBACK):
        # The traceback ends where the next part of the list begins; it is indented by two.
        below = below.partition("\n----")[0].partition("\n====")[0]
        words = own_words(match["head"] + "\n".join(line.removeprefix("  ") for line in below.split("\n")))
    return RankFailure(
        name=f"rank {match['rank']}", status=int(match["status"]), messages=(words,) if words else ()
    )


def _first_line_that(pattern: re.Pattern[str], words: str) -> str:
    for line in words.split("\n"):
        # Exception groups draw their tree before the names.
        line = line.lstrip(" |+-")
        if pattern.match(line):
            return line
    return ""

"""Seconds from the texts that test reports give as times: what is certain is read, the rest is unknown.

Reports are written in the locale of their machine, by hand-made loggers, and with units. A wrong duration is
worse than none: it moves a test to another place of a plan, an unknown one is estimated from the history.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastci_ml.records.outcomes import LONGEST_S
from fastci_ml.sources.reports import known_durations_s

_NAN = float("nan")
# Nobody writes a duration in so many characters, and patterns should not meet megabytes.
_LONGEST_TEXT = 64
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?")
# Certain: two kinds of separators, of which the first is for thousands, or one that comes twice.
_GROUPED = (
    (re.compile(r"\d{1,3}(?:,\d{3})+\.\d+"), ",", "."),
    (re.compile(r"\d{1,3}(?:,\d{3}){2,}"), ",", "."),
    (re.compile(r"\d{1,3}(?:\.\d{3})+,\d+"), ".", ","),
    (re.compile(r"\d{1,3}(?:\.\d{3}){2,}"), ".", ","),
    (re.compile(r"\d{1,3}(?:'\d{3})+(?:\.\d+)?"), "'", "."),
    (re.compile(r"\d{1,3}(?:'\d{3})+,\d+"), "'", ","),
    (re.compile(r"\d{1,3}(?: \d{3})+(?:\.\d+)?"), " ", "."),
    (re.compile(r"\d{1,3}(?: \d{3})+,\d+"), " ", ","),
)
_UNITS_S = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "\N{GREEK SMALL LETTER MU}s", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-9),
}
_NUMBER = r"\d+(?:\.\d+)?"
_WITH_UNIT = re.compile(rf"({_NUMBER}) ?({'|'.join(_UNITS_S)})")
# "1h2m3.5s" needs its seconds: a lone "2m" may be anything.
_HOURS_TO_SECONDS = re.compile(rf"(?:(\d+) ?h ?)?(?:(\d+) ?m(?:in)? ?)?({_NUMBER}) ?s")
_ISO = re.compile(rf"p(?:(\d+)d)?t(?=\d)(?:(\d+)h)?(?:(\d+)m)?(?:({_NUMBER})s)?")
# "01:02" may be minutes or hours; three fields, with days before them in .NET, are certain.
_CLOCK = re.compile(r"(?:(\d+)\.)?(\d{1,3}):([0-5]?\d):([0-5]?\d(?:\.\d+)?)")
_COMMA = re.compile(r"\d+,\d+")
_COMMA_OF_THOUSANDS = re.compile(r"[1-9]\d{0,2},\d{3}")
_SPECIAL = str.maketrans(
    {
        "\N{ARABIC DECIMAL SEPARATOR}": ".",
        "\N{ARABIC THOUSANDS SEPARATOR}": "'",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{MICRO SIGN}": "\N{GREEK SMALL LETTER MU}",
        "\N{MINUS SIGN}": "-",
    }
)


def parse_durations(texts: Sequence[str]) -> tuple[np.ndarray, dict[int, str]]:
    """Seconds from many texts.

    Parameters
    ----------
    texts : sequence of str, shape (n,)
        Empty where a report has none.

    Returns
    -------
    durations_s : float64 array, shape (n,)
        NaN where the text is empty, no duration, or more than one.
    odd : dict of int to str
        Place and text of those that are there and were not read.

    Examples
    --------
    >>> parse_durations(["0.5", "", "1,024.12", "0,160"])
    (array([5.00000e-01,         nan, 1.02412e+03,         nan]), {3: '0,160'})
    """
    try:
        seconds = pc.cast(pa.array(texts, pa.string()), pa.float64())
        durations_s = known_durations_s(np.from_dlpack(seconds))
    except pa.ArrowInvalid:
        durations_s = np.array([duration_of(text) for text in texts], np.float64)
    unread = np.flatnonzero(np.isnan(durations_s)).tolist()
    return durations_s, {place: texts[place] for place in unread if texts[place].strip()}


def duration_of(text: str) -> float:
    """Seconds that one text stands for, NaN unless that is certain.

    Examples
    --------
    >>> [duration_of(text) for text in ("1.024,12", "1'024.5", "12 ms", "PT1M1.5S", "00:01:02.5", "1e3")]
    [1024.12, 1024.5, 0.012, 61.5, 62.5, 1000.0]
    >>> [duration_of(text) for text in ("0,160", "01:02", "-0.5", "NaN", "soon")]
    [nan, nan, nan, nan, nan]
    """
    if len(text) > _LONGEST_TEXT:
        return _NAN
    text = _plain(text)
    seconds = float(text) if _PLAIN.fullmatch(text) else _odd_seconds(text)
    return seconds if 0 <= seconds <= LONGEST_S else _NAN


def is_decimal_comma(texts: Sequence[str], others_s: float, total: str) -> bool:
    """Whether single commas are decimal, as the total of their suite has it.

    Parameters
    ----------
    texts : sequence of str
        Times of the suite that `single_comma` knows.
    others_s : float
        Sum of the suite's other times.
    total : str
        Time of the whole suite.

    Returns
    -------
    bool
        True only if the sum with decimal commas is the total and the sum with commas for thousands is not.

    Examples
    --------
    >>> is_decimal_comma(["0,160", "0,240"], 0.1, "0.5")
    True
    >>> is_decimal_comma(["1,160"], 0.0, "1,160"), is_decimal_comma(["1,160"], 0.0, "1160")
    (False, False)
    """
    total = _plain(total)
    known = [] if _COMMA.fullmatch(total) else [duration_of(total)]
    all_texts = [_plain(text) for text in texts] + ([] if known else [total])
    decimal_s = [float(text.replace(",", ".")) for text in all_texts] + known
    if not _agrees(sum(decimal_s[:-1]) + others_s, decimal_s[-1], len(texts)):
        return False
    if not all(_COMMA_OF_THOUSANDS.fullmatch(text) for text in all_texts):
        return True
    thousands_s = [float(text.replace(",", "")) for text in all_texts] + known
    return not _agrees(sum(thousands_s[:-1]) + others_s, thousands_s[-1], len(texts))


def single_comma(text: str) -> float:
    """Seconds of a text with one comma and no other separator if the comma is decimal; NaN for other texts.

    Examples
    --------
    >>> single_comma("0,160"), single_comma("1,024.12")
    (0.16, nan)
    """
    text = _plain(text) if len(text) <= _LONGEST_TEXT else ""
    return float(text.replace(",", ".")) if _COMMA.fullmatch(text) else _NAN


def _agrees(sum_s: float, total_s: float, n_rounded: int) -> bool:
    # Suites add their own set-up to the sum, and every time is rounded to milliseconds.
    return abs(sum_s - total_s) <= 0.05 * total_s + 0.001 * (n_rounded + 1)


def _plain(text: str) -> str:
    """Text in lower case with ASCII digits, separators and blanks."""
    text = text.lower()
    if text.isascii():
        return text.strip()
    text = text.translate(_SPECIAL)
    digits = (unicodedata.decimal(letter, None) for letter in text)
    letters = (letter if digit is None else str(digit) for letter, digit in zip(text, digits, strict=True))
    return "".join(" " if letter.isspace() else letter for letter in letters).strip()


def _odd_seconds(text: str) -> float:
    for pattern, thousands, decimal in _GROUPED:
        if pattern.fullmatch(text):
            return float(text.replace(thousands, "").replace(decimal, "."))
    if match := _WITH_UNIT.fullmatch(text):
        return float(match[1]) * _UNITS_S[match[2]]
    if match := _HOURS_TO_SECONDS.fullmatch(text):
        return _sum_s("0", *match.groups())
    if match := _ISO.fullmatch(text) or _CLOCK.fullmatch(text):
        return _sum_s(*match.groups())
    return _NAN


def _sum_s(days: str | None, hours: str | None, minutes: str | None, seconds: str | None) -> float:
    parts = (float(part or 0) for part in (days, hours, minutes, seconds))
    return sum(part * unit_s for part, unit_s in zip(parts, (86_400, 3_600, 60, 1), strict=True))

"""Times of reports: what is certain is read, the rest is unknown, and nothing unknown is 0."""

from __future__ import annotations

import math
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.sources.junit.durations import duration_of, parse_durations
from fastci_ml.sources.junit.reader import read_junit

NAN = math.nan


def read(folder: Path, times: list[str], total: str | None = None) -> tuple[list[float], tuple[str, ...]]:
    """Durations and notes of a report with these times, one case each."""
    cases = "".join(
        f"<testcase classname='t' name='a{i}' time={quoteattr(time)}/>" for i, time in enumerate(times)
    )
    head = "" if total is None else f" time={quoteattr(total)}"
    path = folder / "j.xml"
    path.write_text(f"<testsuite{head}>{cases}</testsuite>", encoding="utf-8")
    report = read_junit(path)
    return report.durations_s.tolist(), report.notes


CERTAIN = {
    "1,024.12": 1024.12,  # case 31
    "2,000,000.5": 2_000_000.5,
    "1,024,000": 1_024_000.0,
    "1.024,12": 1024.12,
    "1.024.000": 1_024_000.0,
    "1'024.5": 1024.5,
    "1\N{RIGHT SINGLE QUOTATION MARK}024,5": 1024.5,
    "1 024.5": 1024.5,
    "1\N{NO-BREAK SPACE}024,5": 1024.5,
    "1\N{NARROW NO-BREAK SPACE}024": 1024.0,
    "\N{NO-BREAK SPACE}1.5": 1.5,
    "PT1.5S": 1.5,
    "PT1H1M": 3660.0,
    "P1DT1S": 86_401.0,
    "1.5s": 1.5,
    "1.5 seconds": 1.5,
    "12 ms": 0.012,
    "3 \N{MICRO SIGN}s": 3e-6,
    "1h2m3.5s": 3723.5,
    "00:01:02.5": 62.5,
    "1.02:03:04": 93_784.0,
    "1e3": 1000.0,
    "1E-3": 0.001,
    "+.5": 0.5,
    "\N{ARABIC-INDIC DIGIT ONE}\N{ARABIC DECIMAL SEPARATOR}\N{ARABIC-INDIC DIGIT FIVE}": 1.5,
    "\N{DEVANAGARI DIGIT TWO}": 2.0,
    "0": 0.0,
}
# case 31: "0,160" and markup; others have two readings, or none, or none that a duration can be.
UNKNOWN = (
    "0,160",
    "<time>1</time>",
    "1,024",
    "1,02.5",
    "1,2,3",
    "1_000",
    "01:02",
    "2m",
    "-0.5",
    "\N{MINUS SIGN}1",
    "NaN",
    "inf",
    "1e999",
    "1e15",
    "0x10",
    "1\N{LATIN SMALL LETTER LONG S}",
    "\N{SUPERSCRIPT TWO}",
    "soon",
    "9" * 100_000,
)


@pytest.mark.parametrize("text", CERTAIN)
def test_a_time_with_one_reading_is_read(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, [text, "0.25"]) == ([pytest.approx(CERTAIN[text]), 0.25], ())


@pytest.mark.parametrize("text", UNKNOWN)
def test_a_time_with_more_readings_or_none_is_unknown_and_counted(tmp_path: Path, text: str) -> None:
    (seconds, other), notes = read(tmp_path, [text, "0.25"])
    assert math.isnan(seconds)
    assert other == 0.25
    assert notes == (f"1 times could not be read and count as unknown, such as {text[:40]!r}",)


@pytest.mark.parametrize(
    ("times", "total", "expected"),
    [
        (["0,160", "0,240"], "0.400", [0.16, 0.24]),  # case 31: the total agrees
        (["0,160", "0,240"], "0,400", [0.16, 0.24]),  # no number of thousands begins with 0
        (["0,160", "1.5", "12 ms"], "1.672", [0.16, 1.5, 0.012]),
        (["1,160", "2,240"], "3.5", [1.16, 2.24]),  # a suite has some set-up of its own
        (["1,160", "2,24"], "3,4", [1.16, 2.24]),
        (["1,160", "2,240"], "3400", [NAN, NAN]),  # thousands, and so not decimal
        (["1,160", "2,240"], "3,400", [NAN, NAN]),  # both agree
        (["1,160", "2,240"], "9.9", [NAN, NAN]),
        (["1,160"], "", [NAN]),
        (["1,160"], None, [NAN]),
        (["0,160", "x"], "0.16", [0.16, NAN]),
    ],
)
def test_a_single_comma_is_decimal_only_if_the_total_of_its_suite_agrees(
    tmp_path: Path, times: list[str], total: str | None, expected: list[float]
) -> None:
    seconds, notes = read(tmp_path, times, total)
    assert seconds == pytest.approx(expected, nan_ok=True)
    assert bool(notes) == any(map(math.isnan, expected))


def test_the_total_that_decides_is_that_of_the_suite_of_the_case(tmp_path: Path) -> None:
    one, other = (f"<testcase classname='t' name='{name}' time='0,160'/>" for name in "ab")
    path = tmp_path / "j.xml"
    path.write_text(
        f"<testsuites time='0.16'><testsuite time='160'>{one}</testsuite>"
        f"<testsuite time='0.16'>{other}</testsuite></testsuites>"
    )
    assert read_junit(path).durations_s.tolist() == pytest.approx([NAN, 0.16], nan_ok=True)


def test_a_time_that_is_absent_or_blank_is_unknown_without_a_note(tmp_path: Path) -> None:
    """Case 32, and blanks of other kinds."""
    assert read(tmp_path, ["", " ", "\N{NO-BREAK SPACE}", "0.5"])[0] == pytest.approx(
        [NAN, NAN, NAN, 0.5], nan_ok=True
    )
    assert read(tmp_path, ["", " ", "\N{NO-BREAK SPACE}"])[1] == ()
    path = tmp_path / "j.xml"
    path.write_text("<testsuite><testcase name='a'/><testcase name='b' time='1'/></testsuite>")
    assert read_junit(path).durations_s.tolist() == pytest.approx([NAN, 1], nan_ok=True)
    assert read_junit(path).notes == ()


def test_times_that_are_all_zero_are_zero(tmp_path: Path) -> None:
    assert read(tmp_path, ["0", "0.000"], "0") == ([0.0, 0.0], ())


@given(seconds=st.integers(0, 10**11).map(lambda thousandths: thousandths / 1000))
def test_a_number_in_the_locale_of_any_machine_is_the_number_or_unknown(seconds: float) -> None:
    english = f"{seconds:,.3f}"
    for thousands, decimal in (",.", ".,", "'.", "',", " .", " ,"):
        text = english.translate(str.maketrans(",.", thousands + decimal))
        found = duration_of(text)
        assert found == seconds or (math.isnan(found) and text.count(",") == 1 and seconds < 1000)


@given(
    texts=st.lists(st.text(max_size=80) | st.from_regex(r"[\d.,' :sSPTm-]{1,12}", fullmatch=True), max_size=5)
)
def test_any_text_is_a_duration_or_unknown_and_told_unless_blank(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    seconds, odd = parse_durations(texts)
    for place, text in enumerate(texts):
        assert 0 <= seconds[place] <= 1e9 or math.isnan(seconds[place])
        assert (place in odd) == (math.isnan(seconds[place]) and bool(text.strip()))
        assert seconds[place] == pytest.approx(duration_of(text), nan_ok=True)

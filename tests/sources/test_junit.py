"""JUnit files of any flavour become attempts; broken ones are named, never half-read."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.errors import ReportError
from fastci_ml.records.frames import EXECUTIONS
from fastci_ml.sources.history.tables import check_table
from fastci_ml.sources.junit.reader import read_junit
from fastci_ml.sources.reports import executions_table


def rows_of(path: Path) -> list[dict[str, object]]:
    table = executions_table(read_junit(path), run_id="r", job="", shard="", lane="l")
    return check_table(EXECUTIONS, table).to_pylist()


def short(path: Path, *names: str) -> list[tuple[object, ...]]:
    names = names or ("node_id", "attempt", "outcome", "failure_class")
    return [tuple(row[name] for name in names) for row in rows_of(path)]


def write(path: Path, body: str) -> Path:
    path.write_text(body, encoding="utf-8")
    return path


def suite(*cases: str, head: str = "") -> str:
    return f"<testsuites><testsuite name='pytest' {head}>{''.join(cases)}</testsuite></testsuites>"


def case(name: str, inner: str = "", *, time: str | None = "0.5", classname: str = "t.test_a") -> str:
    clock = "" if time is None else f" time={quoteattr(time)}"
    return f"<testcase classname={quoteattr(classname)} name={quoteattr(name)}{clock}>{inner}</testcase>"


def test_every_result_of_a_case_is_told_apart(tmp_path: Path) -> None:
    report = write(
        tmp_path / "j.xml",
        suite(
            case("passes"),
            case("fails", "<failure message='assert 0&#10; more'>trace</failure>"),
            case("error", "<error message='failed on setup with \"KeyError: 1\"'/>"),
            case("skips", "<skipped type='pytest.skip' message='no GPU'/>"),
            case("xfails", "<skipped type='pytest.xfail' message=''/>"),
            case("both", "<system-out>x</system-out><error message='late'/><failure message='assert 1'/>"),
        ),
    )
    assert short(report, "node_id", "outcome", "failure_class", "message") == [
        ("t/test_a.py::passes", "passed", "", ""),
        ("t/test_a.py::fails", "failed", "test", "assert 0"),
        ("t/test_a.py::error", "error", "setup", "KeyError: 1"),
        ("t/test_a.py::skips", "skipped", "", ""),
        ("t/test_a.py::xfails", "xfailed", "", ""),
        ("t/test_a.py::both", "failed", "test", "assert 1"),
    ]


def test_a_failure_and_its_teardown_error_are_one_test_with_the_worst_outcome(tmp_path: Path) -> None:
    report = write(
        tmp_path / "j.xml",
        suite(
            case("a", "<failure message='assert 0'/>"),
            case("b"),
            case("a", "<error message='failed on teardown with \"E\"'/>", time="0.25"),
        ),
    )
    assert short(report) == [("t/test_a.py::a", 0, "failed", "test"), ("t/test_a.py::b", 0, "passed", "")]
    assert rows_of(report)[0]["duration_s"] == 0.75


def test_bare_tries_before_another_are_unknown_not_passed(tmp_path: Path) -> None:
    failing = suite(case("a"), case("a"), case("a", "<failure message='x'/>"), case("b"), case("b"))
    assert short(write(tmp_path / "j.xml", failing)) == [
        ("t/test_a.py::a", 0, "unknown", ""),
        ("t/test_a.py::a", 1, "unknown", ""),
        ("t/test_a.py::a", 2, "failed", "test"),
        ("t/test_a.py::b", 0, "unknown", ""),
        ("t/test_a.py::b", 1, "passed", ""),
    ]


def test_a_failed_try_of_a_test_that_then_passed_is_flaky(tmp_path: Path) -> None:
    report = suite(case("a", "<failure message='x'/>"), case("a"), case("b", "<failure message='x'/>"))
    assert short(write(tmp_path / "j.xml", report)) == [
        ("t/test_a.py::a", 0, "failed", "flaky"),
        ("t/test_a.py::a", 1, "passed", ""),
        ("t/test_a.py::b", 0, "failed", "test"),
    ]


def test_surefire_reruns_are_attempts(tmp_path: Path) -> None:
    report = suite(
        case("a", "<flakyFailure message='one'/><flakyError message='two'/>"),
        case("b", "<failure message='one'/><rerunFailure message='two'/>"),
    )
    assert short(
        write(tmp_path / "j.xml", report), "node_id", "attempt", "outcome", "failure_class", "message"
    ) == [
        ("t/test_a.py::a", 0, "failed", "flaky", "one"),
        ("t/test_a.py::a", 1, "error", "flaky", "two"),
        ("t/test_a.py::a", 2, "passed", "", ""),
        ("t/test_a.py::b", 0, "failed", "test", "one"),
        ("t/test_a.py::b", 1, "failed", "test", "two"),
    ]


def test_suites_nest_to_any_depth_and_namespaces_are_tolerated(tmp_path: Path) -> None:
    nested = "<testsuite>" * 300 + case("deep") + "</testsuite>" * 300
    assert short(write(tmp_path / "a.xml", nested)) == [("t/test_a.py::deep", 0, "passed", "")]
    spaced = (
        "<j:testsuite xmlns:j='urn:x'><j:testcase classname='t.test_a' name='a'><j:failure message='m'/>"
        "</j:testcase><j:testcase classname='t.test_a' name='b'/><j:error message='suite'/></j:testsuite>"
    )
    assert short(write(tmp_path / "b.xml", spaced)) == [
        ("t/test_a.py::a", 0, "failed", "test"),
        ("t/test_a.py::b", 0, "passed", ""),
    ]
    assert read_junit(tmp_path / "b.xml").notes == ("1 results outside of any test case were left out",)


def test_an_error_of_a_suite_is_not_blamed_on_the_case_before(tmp_path: Path) -> None:
    report = suite(case("a", "<properties/>"), "<properties></properties><error message='suite'/>", case("b"))
    assert [row[2] for row in short(write(tmp_path / "j.xml", report))] == ["passed", "passed"]


@pytest.mark.parametrize(
    "time", [None, "", " ", "soon", "-1", "nan", "inf", "0,160", "<time>1</time>", "1e15", "1e39", "1e300"]
)
def test_a_time_that_says_nothing_is_unknown_not_zero(tmp_path: Path, time: str | None) -> None:
    report = read_junit(write(tmp_path / "j.xml", suite(case("a", time=time), case("b", time="0.125"))))
    assert np.isnan(report.durations_s[0])
    assert report.durations_s[1] == 0.125


def test_text_stands_in_for_a_missing_message_and_bodies_are_dropped(tmp_path: Path) -> None:
    long = "x" * 3_000_000
    body = suite(
        case("a", f"<failure>\n  {'y' * 5_000}\nsecond</failure><system-out>{long}</system-out>"),
        case("b", "<failure type='AssertionError'/>"),
        case("c", f"<failure message='{long}'/>"),
    )
    report = read_junit(write(tmp_path / "j.xml", body))
    assert report.messages == {0: "y" * 200, 1: "AssertionError", 2: "x" * 200}


def test_the_span_of_the_run_is_that_of_its_suites(tmp_path: Path) -> None:
    head = "timestamp='2026-01-01T00:00:00+02:00' time='10'"
    report = read_junit(write(tmp_path / "j.xml", suite(case("a"), head=head)))
    assert report.run_started_us == 1_767_218_400_000_000
    assert report.run_finished_us == report.run_started_us + 10_000_000
    assert read_junit(write(tmp_path / "k.xml", suite(case("a")))).run_started_us is None


@pytest.mark.parametrize("time", ["1e15", "1e300", "-1"])
def test_a_suite_that_took_longer_than_anything_can_took_as_long_as_its_cases(
    tmp_path: Path, time: str
) -> None:
    head = f"timestamp='2026-01-01T00:00:00Z' time='{time}'"
    report = read_junit(write(tmp_path / "j.xml", suite(case("a"), case("b", time=time), head=head)))
    assert report.run_started_us is not None
    assert report.run_finished_us == report.run_started_us + 500_000


def test_a_sum_longer_than_anything_can_take_moves_no_clock(tmp_path: Path) -> None:
    report = read_junit(
        write(
            tmp_path / "j.xml",
            suite(
                case("a", "<failure message='assert 0'/>", time="9e8"),
                case("a", "<error message='failed on teardown with \"E\"'/>", time="9e8"),
                head="timestamp='2026-01-01T00:00:00Z'",
            ),
        )
    )
    assert np.isnan(report.durations_s).all()
    assert report.run_finished_us == report.run_started_us


BOMB = """<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;">]>
<testsuite><testcase classname="t.test_a" name="&c;"/></testsuite>"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (BOMB, "a document type is declared"),
        ("<!DOCTYPE x SYSTEM 'file:///etc/passwd'><testsuite/>", "a document type is declared"),
        ("<html><body/></html>", "root element <html>, expected <testsuites> or <testsuite>"),
        ("<testsuite><testcase classname='a' name='b'/>", "torn: it ends before its root element does"),
        ("<testsuite><testcase classname='a' na", "torn: it ends before its root element does"),
        ("", "torn: it ends before its root element does"),
        (
            "<testsuite><testcase></testsuite>",
            "nothing that can be repaired: mismatched tag: line 1, column 2",
        ),
    ],
)
def test_what_cannot_be_read_is_a_named_error(tmp_path: Path, body: str, message: str) -> None:
    path = write(tmp_path / "j.xml", body)
    with pytest.raises(ReportError, match=message) as found:
        read_junit(path)
    assert str(path) in str(found.value)


def test_a_missing_file_and_a_folder_are_named_errors(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="cannot be read"):
        read_junit(tmp_path / "none.xml")
    with pytest.raises(ReportError, match="a folder, expected a regular file"):
        read_junit(tmp_path)


def test_a_report_without_cases_is_an_empty_report(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path / "j.xml", "<testsuites/>")) == []


def test_cases_without_names_stay_visible_unless_they_say_nothing(tmp_path: Path) -> None:
    path = write(
        tmp_path / "j.xml",
        "<testsuite><testcase time='1'/><testcase><failure/></testcase>"
        "<testcase classname='t.test_a'/><testcase name='t.test_b'/></testsuite>",
    )
    assert [row[:3:2] for row in short(path)] == [
        ("unnamed", "failed"),
        ("t/test_a.py", "passed"),
        ("t/test_b.py", "passed"),
    ]
    assert read_junit(path).notes == (
        "1 cases without name and result, as tests that were cut short leave them",
    )


_text = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_characters="\x7f"), max_size=6)


@given(
    cases=st.lists(
        st.tuples(
            _text,
            _text,
            st.sampled_from(["", "1.5", "x"]),
            st.sampled_from(["", "failure", "error", "skipped"]),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_the_columns_are_those_that_a_tree_parser_finds(
    tmp_path_factory: pytest.TempPathFactory, cases: list[tuple[str, str, str, str, bool]]
) -> None:
    root = ET.Element("testsuite")
    for place, (classname, name, time, result, has_file) in enumerate(cases):
        # A number makes names unique: repetition is a matter of its own.
        attributes = {"classname": classname, "name": f"{name}#{place}", "time": time}
        element = ET.SubElement(root, "testcase", {**attributes, **({"file": "f"} if has_file else {})})
        if result:
            ET.SubElement(element, result, message="m")
    path = tmp_path_factory.mktemp("junit") / "j.xml"
    ET.ElementTree(root).write(path, encoding="utf-8")
    outcome_of = {"": "passed", "failure": "failed", "error": "error", "skipped": "skipped"}
    found = rows_of(path)
    for row, element in zip(found, ET.parse(path).getroot(), strict=True):
        assert str(row["node_id"]).endswith(element.attrib["name"])
        assert row["outcome"] == outcome_of[element[0].tag if len(element) else ""]
        assert (row["duration_s"] == 1.5) == (element.attrib["time"] == "1.5")

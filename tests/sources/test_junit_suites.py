"""The header of a suite tells failed tries from passes, and what is missing from what is not."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.sources.junit.reader import read_junit
from fastci_ml.sources.junit.suites import Repeats, Tally, judge_repeats, suite_of
from fastci_ml.sources.reports import executions_table

FAILURE = "<failure message='assert 0'/>"
TEARDOWN = "<error message='failed on teardown with \"E: 1\"'/>"
SETUP = "<error message='failed on setup with \"E: 1\"'/>"
CRASH = (
    "<error message='failed on setup with \"worker &apos;gw0&apos; crashed while running &apos;a&apos;\"'/>"
)
BARE_AGAIN = "cases without a result come before another one of their test"
TRIES = """
    import os, pytest
    seen = {}
    def attempt(name):
        seen[name] = seen.get(name, 0) + 1
        return seen[name]
"""


def suite(*cases: str, **header: object) -> str:
    words = "".join(f" {name}='{value}'" for name, value in header.items())
    return f"<testsuite{words}>{''.join(cases)}</testsuite>"


def case(name: str, *inner: str, time: str = "0.5") -> str:
    return f"<testcase classname='t.test_a' name='{name}' time='{time}'>{''.join(inner)}</testcase>"


def pytest_suite(*cases: str, tests: int, errors: int = 0, failures: int = 0, skipped: int = 0) -> str:
    """A suite as pytest writes it, of any release."""
    counts = {"errors": errors, "failures": failures, "skipped": skipped, "tests": tests}
    return suite(*cases, name="pytest", **counts, time="1.0", timestamp="2026-01-01T00:00:00", hostname="ci")


def told(path: Path) -> list[tuple[str, str, str]]:
    table = executions_table(read_junit(path), run_id="r", job="", shard="", lane="l")
    rows = table.select(["node_id", "outcome", "failure_class"]).to_pylist()
    return [(row["node_id"].rpartition("::")[2], row["outcome"], row["failure_class"]) for row in rows]


def write(folder: Path, *suites: str) -> Path:
    (folder / "j.xml").write_text(f"<testsuites>{''.join(suites)}</testsuites>", encoding="utf-8")
    return folder / "j.xml"


def outcomes(folder: Path, *suites: str) -> list[str]:
    return [outcome for _, outcome, _ in told(write(folder, *suites))]


def notes(folder: Path, *suites: str) -> tuple[str, ...]:
    return read_junit(write(folder, *suites)).notes


def run_pytest(folder: Path, code: str, *options: str) -> Path:
    (folder / "test_real.py").write_text(textwrap.dedent(TRIES) + textwrap.dedent(code), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=j.xml", *options]
    subprocess.run(command, cwd=folder, check=False, capture_output=True)
    return folder / "j.xml"


# case 28: reruns


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one", "two"])
def test_real_reruns_are_failed_tries_and_flaky_if_the_last_one_passed(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    """Case 28: failed twice, then passed; always failed. Beside them tries of set-up and teardown."""
    code = """
        @pytest.fixture
        def early(): assert attempt("early") > 1
        @pytest.fixture
        def late():
            yield
            assert attempt("late") > 1
        @pytest.fixture
        def never(): raise KeyError("never")
        def test_flaky(): assert attempt("flaky") > 2
        def test_bad(): assert 0
        def test_early(early): pass
        def test_late(late): pass
        def test_never(never): pass
        def test_good(): pass
        def test_skip(): pytest.skip("no GPU")
        @pytest.mark.xfail
        def test_expected(): assert 0
    """
    path = run_pytest(tmp_path, code, "--reruns", "3", *workers)
    assert "<rerun" not in path.read_text()  # the plugin leaves nothing but cases without a result
    found = told(path)
    assert sorted(found, key=lambda row: row[0]) == [
        *[("test_bad", "failed", "test")] * 4,
        ("test_early", "failed", "flaky"),
        ("test_early", "passed", ""),
        ("test_expected", "xfailed", ""),
        *[("test_flaky", "failed", "flaky")] * 2,
        ("test_flaky", "passed", ""),
        ("test_good", "passed", ""),
        ("test_late", "failed", "flaky"),
        ("test_late", "passed", ""),
        *[("test_never", "error", "setup")] * 4,
        ("test_skip", "skipped", ""),
    ]
    assert read_junit(path).notes == ()


def test_a_real_session_interrupted_between_tries_hides_no_failure(tmp_path: Path) -> None:
    """The failed try has no result in the file and nothing follows it: it looks like any pass."""
    code = """
        def test_good(): pass
        def test_flaky():
            if attempt("flaky") > 1: raise KeyboardInterrupt
            assert 0
    """
    path = run_pytest(tmp_path, code, "--reruns", "2")
    assert told(path) == [("test_good", "unknown", ""), ("test_flaky", "unknown", "")]
    assert read_junit(path).notes == (
        "1 of 2 cases without a result did not pass, by the count of their suite, and nothing tells which: "
        "all unknown",
    )


def test_a_real_test_that_ended_the_session_is_no_pass_of_a_test_without_name(tmp_path: Path) -> None:
    path = run_pytest(tmp_path, "def test_good(): pass\ndef test_exit(): pytest.exit('enough')")
    assert "<testcase time=" in path.read_text()
    assert told(path) == [("test_good", "passed", "")]
    assert read_junit(path).notes == (
        "1 cases without name and result, as tests that were cut short leave them",
    )


def test_real_subtests_that_passed_leave_tries_unknown(tmp_path: Path) -> None:
    """pytest counts them, so that its count tells no tries; that there are some shows one that failed."""
    code = """
        def test_flaky(): assert attempt("flaky") > 1
        def test_sub(subtests):
            for i in range(3):
                with subtests.test(i=i): assert i != 1
    """
    path = run_pytest(tmp_path, code, "--reruns", "1")
    assert told(path)[:2] == [("test_flaky", "unknown", ""), ("test_flaky", "passed", "")]
    assert BARE_AGAIN in read_junit(path).notes[0]


def test_real_repetitions_by_two_workers_are_passes(tmp_path: Path) -> None:
    path = run_pytest(
        tmp_path, "def test_a(): pass\ndef test_b(): assert 0", "--dist=each", "--tx", "2*popen"
    )
    assert sorted(told(path)) == [("test_a", "passed", "")] * 2 + [("test_b", "failed", "test")] * 2
    assert read_junit(path).notes == ()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"tests": 2}, ["failed", "failed", "passed", "failed", "failed"]),
        ({"tests": " 2.0 "}, ["failed", "failed", "passed", "failed", "failed"]),
        ({"tests": 5}, ["passed", "passed", "passed", "passed", "failed"]),
        ({}, ["unknown", "unknown", "passed", "unknown", "failed"]),
        ({"tests": "many"}, ["unknown", "unknown", "passed", "unknown", "failed"]),
        ({"tests": 3}, ["unknown", "unknown", "passed", "unknown", "failed"]),
        ({"tests": -2}, ["unknown", "unknown", "passed", "unknown", "failed"]),
    ],
)
def test_cases_that_another_follows_are_what_the_count_of_their_suite_says(
    tmp_path: Path, header: dict[str, object], expected: list[str]
) -> None:
    cases = (case("a"), case("a"), case("a"), case("b"), case("b", FAILURE))
    assert outcomes(tmp_path, suite(*cases, **header)) == expected
    found = notes(tmp_path, suite(*cases, **header))
    assert any(BARE_AGAIN in note for note in found) == ("unknown" in expected)


def test_suites_of_one_file_are_judged_each_by_its_own_header(tmp_path: Path) -> None:
    """Two lanes in one file repeat everything and rerun nothing; a third suite reruns one test."""
    once = suite(case("a"), case("b"), tests=2)
    again = suite(case("a"), case("a"), case("b"), tests=2)
    silent = suite(case("a"))
    assert told(write(tmp_path, once, once, again)) == [
        *[("a", "passed", ""), ("b", "passed", "")] * 2,
        ("a", "failed", "flaky"),
        ("a", "passed", ""),
        ("b", "passed", ""),
    ]
    assert outcomes(tmp_path, silent, silent, once) == ["unknown", "unknown", "passed", "passed"]
    # Cases beside an inner suite have no count of their own, whichever suite of the file that is.
    cases = (case("c"), case("c"))
    for outer, expected in (
        (suite(once, *cases, tests=4), ["passed", "passed", "unknown", "passed"]),
        (suite(*cases, once, tests=4), ["unknown", "passed", "passed", "passed"]),
    ):
        assert outcomes(tmp_path, outer) == expected
        assert outcomes(tmp_path, suite(case("d"), tests=1), outer)[1:] == expected


BOTH = (case("a", FAILURE), case("a", TEARDOWN), case("b"))


@pytest.mark.parametrize(
    ("cases", "header", "expected"),
    [
        # Before 9.2 a failure and its teardown error counted once, and other teardown errors twice.
        (BOTH, {"tests": 2, "failures": 1, "errors": 1}, "failed passed"),
        (BOTH, {"tests": 3, "failures": 1, "errors": 1}, "failed passed"),
        ((case("a", TEARDOWN), *[case("b")] * 2), {"tests": 3, "errors": 1}, "error failed passed"),
        ((case("a", SETUP, TEARDOWN), case("b")), {"tests": 3, "errors": 2}, "error passed"),
        ((case("a", SETUP, TEARDOWN), case("b")), {"tests": 2, "errors": 2}, "error passed"),
        ((case("a", CRASH), *[case("b")] * 2), {"tests": 2, "errors": 1}, "error failed passed"),
        (
            (case("a", FAILURE, CRASH), *[case("b")] * 2),
            {"tests": 3, "errors": 1, "failures": 1},
            "failed failed passed",
        ),
        # A try whose call passed and whose teardown failed counts as a pass; one test after another.
        (
            (case("a"), case("a"), case("b"), case("b"), case("c")),
            {"tests": 4},
            "failed passed failed passed passed",
        ),
        ((case("a"), case("a"), case("c")), {"tests": 3}, "unknown passed passed"),
        ((case("a"), case("a", TEARDOWN)), {"tests": 2, "errors": 1}, "error error"),
        # Everything ran twice.
        (
            (case("a"), case("a"), case("b"), case("b", FAILURE)),
            {"tests": 4, "failures": 1},
            "passed passed passed failed",
        ),
        (
            (case("a"), case("a"), case("b"), case("b", FAILURE)),
            {"tests": 3, "failures": 1},
            "unknown passed unknown failed",
        ),
        # Counts of other cases: a file that somebody put together.
        ((case("a"), case("b"), case("c")), {"tests": 1, "failures": 1}, "passed passed passed"),
        (tuple(case(f"a{i}") for i in range(400)), {"tests": 1}, " ".join(["passed"] * 400)),
        # An interrupted session that had rerun another test before.
        ((case("a"), case("a"), case("b")), {"tests": 1}, "failed unknown unknown"),
    ],
)
def test_counts_of_every_release_of_pytest_are_understood(
    tmp_path: Path, cases: tuple[str, ...], header: dict[str, int], expected: str
) -> None:
    assert outcomes(tmp_path, pytest_suite(*cases, **header)) == expected.split()


def test_a_failed_try_before_an_end_that_is_unknown_is_a_failure_and_not_flaky(tmp_path: Path) -> None:
    path = write(tmp_path, pytest_suite(case("a"), case("a"), case("b"), tests=1))
    assert told(path)[0] == ("a", "failed", "test")


def test_tries_that_a_tool_lists_have_their_own_times_or_none(tmp_path: Path) -> None:
    """Surefire and those that write as it does: with times of their own, without, and with errors."""
    path = write(
        tmp_path,
        suite(
            case("a", "<flakyFailure message='one' time='0.125'/><flakyError message='two'/>"),
            case("b", "<failure message='one'/><rerunFailure message='two'/><rerunError message='three'/>"),
            case("c", "<flakyFailure message='one'><stackTrace>x</stackTrace></flakyFailure>"),
            tests=3,
        ),
    )
    assert told(path) == [
        ("a", "failed", "flaky"),
        ("a", "error", "flaky"),
        ("a", "passed", ""),
        ("b", "failed", "test"),
        ("b", "failed", "test"),
        ("b", "error", "test"),
        ("c", "failed", "flaky"),
        ("c", "passed", ""),
    ]
    nan = math.nan
    assert read_junit(path).durations_s.tolist() == pytest.approx(
        [0.125, nan, 0.5, nan, nan, nan, nan, nan], nan_ok=True
    )
    assert read_junit(path).notes == ()


# case 29: two results of one test


def test_real_results_of_one_test_are_one_attempt_with_the_worst_outcome(tmp_path: Path) -> None:
    """Case 29, and a pass, a skip, an expected failure and a failed set-up before a failed teardown."""
    code = """
        @pytest.fixture
        def late():
            yield
            raise RuntimeError("late")
        @pytest.fixture
        def early(): raise KeyError("early")
        def test_both(late): assert 0
        def test_late(late): pass
        def test_skip(late): pytest.skip("no")
        @pytest.mark.xfail
        def test_expected(late): assert 0
        def test_early(late, early): pass
    """
    path = run_pytest(tmp_path, code)
    assert told(path) == [
        ("test_both", "failed", "test"),
        ("test_late", "error", "test"),
        ("test_skip", "error", "test"),
        ("test_expected", "xfailed", ""),  # what was expected to fail may fail in its teardown
        ("test_early", "error", "setup"),
    ]
    assert read_junit(path).notes == ()


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        (
            (case("a", FAILURE), case("b"), case("a", TEARDOWN)),
            [("a", "failed", "test"), ("b", "passed", "")],
        ),
        ((case("a", TEARDOWN + FAILURE),), [("a", "failed", "test")]),
        ((case("a", "<skipped/>", FAILURE),), [("a", "failed", "test")]),
        ((case("a", SETUP, TEARDOWN),), [("a", "error", "setup")]),
        # A subtest that ran out of time, and one that found a mistake.
        ((case("a", "<failure message='Failed: Timeout (>1.0s) from pytest-timeout.'/>", FAILURE),),
         [("a", "failed", "test")]),
        # The words of releases before 6: why stands in the text.
        ((case("a", FAILURE), case("a", "<error message='test teardown failure'>E: 1</error>")),
         [("a", "failed", "test")]),
        ((case("a", "<error message='test setup failure'>KeyError: 1</error>"),), [("a", "error", "setup")]),
    ],
)  # fmt: skip
def test_of_several_results_the_worst_counts(
    tmp_path: Path, cases: tuple[str, ...], expected: list[tuple[str, str, str]]
) -> None:
    assert told(write(tmp_path, suite(*cases))) == expected


def test_the_reason_of_what_is_no_test_is_taken_from_its_text(tmp_path: Path) -> None:
    text = "ImportError while importing\nE   OSError: libcudart.so.12: cannot open shared object file"
    path = write(tmp_path, suite(case("a", f"<error message='collection failure'>{text}</error>")))
    assert told(path) == [("a", "error", "environment")]
    assert read_junit(path).messages == {0: "collection failure"}


# case 30: crashes, and results that are missing


def test_a_real_worker_that_died_is_a_crash_of_unknown_duration(tmp_path: Path) -> None:
    """Case 30 in the call, in the teardown, and in both tries of a test that is rerun."""
    code = """
        def test_good(): pass
        @pytest.fixture
        def late():
            yield
            os._exit(1)
        def test_dies(): os._exit(1)
        def test_late(late): pass
    """
    path = run_pytest(tmp_path, code, "-n", "1")
    assert sorted(told(path)) == [
        ("test_dies", "error", "crash"),
        ("test_good", "passed", ""),
        ("test_late", "error", "crash"),
    ]
    report = read_junit(path)
    assert report.notes == ()
    assert sorted(report.durations_s.tolist(), key=str)[-2:] == pytest.approx([math.nan] * 2, nan_ok=True)
    path = run_pytest(tmp_path, code, "-n", "1", "--reruns", "1", "-k", "good or dies")
    assert sorted(told(path)) == [("test_dies", "error", "crash"), ("test_good", "passed", "")]
    assert read_junit(path).notes == (
        "1 cases without name and result, as tests that were cut short leave them",
    )


def test_a_real_process_that_died_leaves_no_report_to_read(tmp_path: Path) -> None:
    assert not run_pytest(tmp_path, "def test_a(): pass\ndef test_b(): os._exit(0)").exists()


@pytest.mark.parametrize(
    ("suites", "n_missing"),
    [
        ((suite(case("a"), tests=3),), 2),
        ((suite(case("a"), name="x", tests=3), suite(case("a"), tests=2)), 3),
        ((suite(case("a", "<skipped/>"), tests=3, skipped=1),), 2),
        ((suite("", tests=4),), 4),
        ((suite(suite(case("a"), tests=2), suite(case("b"), tests=1), tests=3),), 1),
        ((suite(suite(case("a"), tests=1), suite(case("b"), tests=1), tests=4),), 2),
        ((pytest_suite(case("a"), tests=4, failures=1, errors=2),), 3),
        # Counts that mean something else.
        ((suite(case("a"), case("b"), tests=2),), 0),
        ((suite(case("a"), tests=3, skipped=2),), 0),
        ((suite(case("a"), tests=3, skips=2),), 0),
        ((suite(case("a"), tests=2, disabled=1),), 0),
        ((suite(case("a", FAILURE, TEARDOWN), tests=2),), 0),
        ((suite(case("a", TEARDOWN), tests=2),), 0),
        ((suite(case("a", "<flakyFailure/>"), tests=2),), 0),
        ((suite(case("a"), "<error message='of the class'/>", tests=2, errors=1),), 0),
        ((suite(case("a"), tests=9, hostname="tbd"),), 0),  # Catch2 counts assertions
        ((pytest_suite(case("a"), tests=5),), 0),  # pytest counts subtests that passed
        ((suite(suite(case("a"), tests=1), suite(case("b"), tests=1), tests=2),), 0),
        ((suite(suite(case("a"), tests=1), case("b"), tests=2),), 0),
        ((suite(case("a"), suite(case("b"), tests=1), case("c"), tests=3),), 0),
        ((suite("", tests=0),), 0),
        ((suite(case("a"), tests="1e9"),), 0),
        ((suite(case("a"), tests="9" * 30),), 0),
    ],
)
def test_results_that_a_header_promises_and_that_are_not_there_are_told(
    tmp_path: Path, suites: tuple[str, ...], n_missing: int
) -> None:
    found = [note for note in notes(tmp_path, *suites) if "missing" in note]
    assert [note.partition(" ")[0] for note in found] == ([str(n_missing)] if n_missing else [])


def test_the_root_may_promise_what_no_suite_does(tmp_path: Path) -> None:
    (tmp_path / "j.xml").write_text(f"<testsuites tests='5' name='all'>{suite(case('a'))}</testsuites>")
    assert read_junit(tmp_path / "j.xml").notes == (
        "4 results are missing that the headers of suites promise, first in suite 'all'",
    )


REAL = {
    "subtests_that_fail": """
        def test_a(subtests):
            for i in range(3):
                with subtests.test(i=i): assert i != 1
    """,
    "subtests_that_pass": """
        def test_a(subtests):
            for i in range(3):
                with subtests.test(i=i): pass
    """,
    "unittest": """
        import unittest
        class TestX(unittest.TestCase):
            def test_a(self):
                for i in range(3):
                    with self.subTest(i=i): self.assertNotEqual(i, 1)
            @unittest.skip("x")
            def test_b(self): pass
    """,
    "properties": """
        def test_a(record_property, record_testsuite_property):
            record_property("a", 1)
            record_testsuite_property("b", 2)
    """,
    "expected": """
        import pytest
        @pytest.mark.xfail
        def test_a(): assert 0
        @pytest.mark.xfail
        def test_b(): pass
        @pytest.mark.xfail(strict=True)
        def test_c(): pass
    """,
    "skips": "import pytest\npytest.skip('all', allow_module_level=True)",
    "no_module": "import no_such_module",
    "no_code": "def broken(:",
    "nothing": "",
    "odd_characters": """
        import pytest
        @pytest.mark.parametrize("a", ["\\x1b[0m", "\\x00", "\\ud800", "&<>\\"'"])
        def test_a(a):
            print(a.encode("utf-8", "replace"))
            raise ValueError(a)
    """,
}


def test_nothing_that_pytest_writes_by_itself_is_odd(tmp_path: Path) -> None:
    for name, code in REAL.items():
        (tmp_path / f"test_{name}.py").write_text(textwrap.dedent(code), encoding="utf-8")
    # One process for all of them: starting one takes most of the time.
    program = """
        import sys, pytest
        options = ["-p", "no:cacheprovider", "-o", "junit_logging=all", "-o", "junit_family=xunit1"]
        for name in sys.argv[1:]:
            pytest.main([f"test_{name}.py", f"--junitxml={name}.xml", *options])
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *REAL], cwd=tmp_path, check=True, capture_output=True
    )
    assert {name: read_junit(tmp_path / f"{name}.xml").notes for name in REAL} == dict.fromkeys(REAL, ())


# case 32: depths, roots, spaces of names


@pytest.mark.parametrize(
    "body",
    [
        suite(case("a"), case("b"), tests=2),  # case 32: bare
        suite(suite(suite(case("a"))), case("b")),
        f"<testsuites>{suite(case('a'), suite(case('b')))}</testsuites>",
        f"<testsuites><testsuites>{suite(case('a'))}</testsuites>{suite(case('b'))}</testsuites>",
        f"<testsuites>{case('a')}{case('b')}</testsuites>",
        f"<j:testsuites xmlns:j='urn:j'><j:testsuite tests='2'>{case('a')}<j:testcase classname='t.test_a' "
        "name='b'><j:properties/></j:testcase></j:testsuite></j:testsuites>",
        f"<testsuite xmlns='urn:maven'>{case('a', '<properties/>', '<system-out/>')}{case('b')}</testsuite>",
        f"<testsuite>{'<group>' * 500}{case('a')}{case('b')}{'</group>' * 500}</testsuite>",
        f"{'<testsuite>' * 20_000}{case('a')}{case('b')}{'</testsuite>' * 20_000}",
    ],
)
def test_cases_are_found_below_any_root_at_any_depth(tmp_path: Path, body: str) -> None:
    (tmp_path / "j.xml").write_text(body)
    assert told(tmp_path / "j.xml") == [("a", "passed", ""), ("b", "passed", "")]
    assert read_junit(tmp_path / "j.xml").notes == ()


@pytest.mark.parametrize(
    ("attributes", "outcome"),
    [
        ("status='notrun'", "skipped"),
        ("status='run' result='suppressed'", "skipped"),
        ("status='FAILED'", "failed"),
        ("result='error'", "error"),
        ("status='run' result='completed'", "passed"),
        ("status='4'", "passed"),
    ],
)
def test_a_case_may_tell_by_an_attribute_how_it_ended(tmp_path: Path, attributes: str, outcome: str) -> None:
    body = f"<testcase classname='t.test_a' name='x' {attributes}/>"
    assert outcomes(tmp_path, suite(case("a"), body)) == ["passed", outcome]
    # A child says more than an attribute.
    assert outcomes(tmp_path, suite(body.replace("/>", f">{FAILURE}</testcase>"))) == ["failed"]


# Laws

_ends = st.sampled_from(["", FAILURE, "<skipped/>"])


@given(
    ends=st.lists(st.tuples(_ends, st.integers(0, 3)), min_size=1, max_size=8),
    extra=st.sampled_from([-1, 0, 1]),
)
def test_tries_are_never_passes_where_the_header_leaves_them_out(
    tmp_path_factory: pytest.TempPathFactory, ends: list[tuple[str, int]], extra: int
) -> None:
    """Tests that end somehow after some tries: the header counts tests, or cases, or neither."""
    cases = [
        (f"t{test}", end if place == n_tries else "")
        for test, (end, n_tries) in enumerate(ends)
        for place in range(n_tries + 1)
    ]
    n_tries = len(cases) - len(ends)
    header = pytest_suite(
        *(case(name, end) for name, end in cases),
        tests=len(ends),
        failures=sum(end == FAILURE for end, _ in ends),
        skipped=sum(end == "<skipped/>" for end, _ in ends),
    )
    found = told(write(tmp_path_factory.mktemp("j"), header))
    expected = {"": "passed", FAILURE: "failed", "<skipped/>": "skipped"}
    last = {name: place for place, (name, _) in enumerate(cases)}
    for place, (name, outcome, failure_class) in enumerate(found):
        end = cases[last[name]][1]
        if place == last[name]:
            assert outcome == expected[end]
        else:
            assert (outcome, failure_class) == ("failed", "test" if end == FAILURE else "flaky")
    assert judge_repeats(
        suite_of({"tests": str(len(cases) + extra * 100)}, 0),
        Tally(n_cases=len(cases), n_followed=n_tries or 1),
    ) is (Repeats.PASSES if extra == 0 else Repeats.UNKNOWN)

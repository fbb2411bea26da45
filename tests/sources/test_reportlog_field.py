"""Report logs as they are in the field: workers, subtests, damage, lines of any length, other encodings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.errors import ReportError
from fastci_ml.sources import json_lines
from fastci_ml.sources.json_lines import JsonLines
from fastci_ml.sources.reportlog import read_reportlog
from fastci_ml.sources.reports import executions_table

FINISH = '{"exitstatus": 0, "$report_type": "SessionFinish"}\n'


def rows_of(path: Path) -> list[tuple[object, ...]]:
    table = executions_table(read_reportlog(path), run_id="r", job="", shard="", lane="l")
    names = ("node_id", "attempt", "outcome", "failure_class")
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def line(node_id: str, when: str, outcome: str = "passed", start: float = 1.0, **more: object) -> str:
    phase = {"nodeid": node_id, "when": when, "outcome": outcome, "longrepr": None, **more}
    times = {"duration": 0.5, "start": start, "stop": start + 0.5}
    return json.dumps({**phase, **times, "$report_type": "TestReport"}) + "\n"


def whole(node_id: str, call: str = "passed", start: float = 1.0, **more: object) -> str:
    return (
        line(node_id, "setup", start=start)
        + line(node_id, "call", call, start=start + 1, **more)
        + line(node_id, "teardown", start=start + 2)
    )


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def run_pytest(folder: Path, code: str, *options: str) -> Path:
    (folder / "test_real.py").write_text(textwrap.dedent(code))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--report-log=log.jsonl"]
    subprocess.run([*command, *options], cwd=folder, check=False, capture_output=True)
    return folder / "log.jsonl"


# case 28: reruns


def test_real_reruns_of_set_up_call_and_teardown_are_tries_also_of_two_workers(tmp_path: Path) -> None:
    code = """
        import pytest
        seen = {}
        def attempt(name):
            seen[name] = seen.get(name, 0) + 1
            return seen[name]
        @pytest.fixture
        def early(): assert attempt("early") > 1
        @pytest.fixture
        def late():
            yield
            assert attempt("late") > 1
        def test_call(): assert attempt("call") > 2
        def test_early(early): pass
        def test_late(late): pass
        def test_bad(): assert 0
    """
    path = run_pytest(tmp_path, code, "--reruns", "2", "-n", "2")
    assert sorted(rows_of(path)) == [
        ("test_real.py::test_bad", 0, "failed", "test"),
        ("test_real.py::test_bad", 1, "failed", "test"),
        ("test_real.py::test_bad", 2, "failed", "test"),
        ("test_real.py::test_call", 0, "failed", "flaky"),
        ("test_real.py::test_call", 1, "failed", "flaky"),
        ("test_real.py::test_call", 2, "passed", ""),
        ("test_real.py::test_early", 0, "error", "flaky"),
        ("test_real.py::test_early", 1, "passed", ""),
        ("test_real.py::test_late", 0, "error", "flaky"),
        ("test_real.py::test_late", 1, "passed", ""),
    ]
    assert read_reportlog(path).notes == ()


# case 29: two results of one test


def test_a_real_failure_and_what_teardown_says_after_it_are_one_attempt(tmp_path: Path) -> None:
    code = """
        import pytest, unittest
        @pytest.fixture
        def late():
            yield
            raise RuntimeError("late")
        def test_both(late): assert 0
        def test_skip_late(late): pytest.skip("no")
        def test_sub(subtests):
            for i in range(3):
                with subtests.test(i=i): assert i != 1
        class TestU(unittest.TestCase):
            def test_u(self):
                for i in range(3):
                    with self.subTest(i=i): self.assertNotEqual(i, 1)
    """
    assert sorted(rows_of(run_pytest(tmp_path, code))) == [
        ("test_real.py::TestU::test_u", 0, "failed", "test"),
        ("test_real.py::test_both", 0, "failed", "test"),
        ("test_real.py::test_skip_late", 0, "error", "test"),
        ("test_real.py::test_sub", 0, "failed", "test"),
    ]


# case 30: crashes


def test_real_crashes_are_crashes_of_unknown_duration_and_each_a_try(tmp_path: Path) -> None:
    code = """
        import os
        def test_a(): pass
        def test_dies(): os._exit(1)
        def test_segfault():
            import ctypes
            ctypes.string_at(0)
    """
    path = run_pytest(tmp_path, code, "-n", "2", "--reruns", "1", "-p", "no:faulthandler")
    assert sorted(rows_of(path)) == [
        ("test_real.py::test_a", 0, "passed", ""),
        ("test_real.py::test_dies", 0, "error", "crash"),
        ("test_real.py::test_dies", 1, "error", "crash"),
        ("test_real.py::test_segfault", 0, "error", "crash"),
        ("test_real.py::test_segfault", 1, "error", "crash"),
    ]
    report = read_reportlog(path)
    assert np.isnan(report.durations_s).sum() == 4


def test_a_real_process_that_died_leaves_its_test_unknown_and_says_so(tmp_path: Path) -> None:
    path = run_pytest(
        tmp_path, "import os\ndef test_a(): pass\ndef test_dies(): os._exit(0)\ndef test_z(): 1/0"
    )
    assert rows_of(path) == [
        ("test_real.py::test_a", 0, "passed", ""),
        ("test_real.py::test_dies", 0, "unknown", ""),
    ]
    assert read_reportlog(path).notes == ("the session did not finish: tests may be missing",)


def test_a_real_session_that_was_interrupted_says_so(tmp_path: Path) -> None:
    path = run_pytest(
        tmp_path, "def test_a(): pass\ndef test_b(): raise KeyboardInterrupt\ndef test_c(): pass"
    )
    assert rows_of(path)[1:] == [("test_real.py::test_b", 0, "unknown", "")]
    assert read_reportlog(path).notes == ("the session was interrupted: tests may be missing",)


def test_a_subtest_that_failed_before_its_process_died_is_a_failure(tmp_path: Path) -> None:
    subtest = json.loads(line("t.py::a", "call", "failed", longrepr="assert 0"))
    body = json.dumps({**subtest, "$report_type": "SubTestReport"}) + "\n"
    assert rows_of(write(tmp_path / "log.jsonl", body)) == [("t.py::a", 0, "failed", "test")]


def test_a_subtest_that_a_worker_told_of_before_its_test_is_a_failure_of_it(tmp_path: Path) -> None:
    """As xdist with reruns orders them; the test itself is reported as passed (unittest)."""
    subtest = json.loads(line("t.py::a", "call", "failed", longrepr="assert 0", node="gw0"))
    body = json.dumps({**subtest, "$report_type": "SubTestReport"}) + "\n" + whole("t.py::a", node="gw0")
    tests = body.replace('"passed"', '"passed", "node": "gw0"')
    assert rows_of(write(tmp_path / "log.jsonl", tests + FINISH)) == [("t.py::a", 0, "failed", "test")]


def test_two_crashes_without_the_name_of_a_worker_are_two_tries(tmp_path: Path) -> None:
    crashes = "".join(
        line("t.py::a", "???", word, float(start), longrepr="worker 'gw0' crashed while running 't.py::a'")
        for start, word in enumerate(("rerun", "failed"))
    )
    assert rows_of(write(tmp_path / "log.jsonl", crashes + FINISH)) == [
        ("t.py::a", 0, "error", "crash"),
        ("t.py::a", 1, "error", "crash"),
    ]


def test_a_second_session_that_did_not_finish_is_told(tmp_path: Path) -> None:
    start = '{"pytest_version": "9", "$report_type": "SessionStart"}\n'
    path = write(tmp_path / "log.jsonl", start + whole("a") + FINISH + start + whole("b"))
    assert read_reportlog(path).notes == ("the session did not finish: tests may be missing",)


# Workers and repeated lines


def test_one_test_in_two_workers_at_a_time_is_two_attempts(tmp_path: Path) -> None:
    path = run_pytest(
        tmp_path, "def test_a(): pass\ndef test_b(): assert 0", "--dist=each", "--tx", "2*popen"
    )
    assert sorted(rows_of(path)) == [
        ("test_real.py::test_a", 0, "passed", ""),
        ("test_real.py::test_a", 1, "passed", ""),
        ("test_real.py::test_b", 0, "failed", "test"),
        ("test_real.py::test_b", 1, "failed", "test"),
    ]


def test_lines_of_two_workers_in_one_test_are_told_apart(tmp_path: Path) -> None:
    one, other = (
        [
            json.dumps({**json.loads(part), "node": worker})
            for part in whole("t.py::a", call, start).splitlines()
        ]
        for worker, call, start in (("gw0", "failed", 1.0), ("gw1", "passed", 1.25))
    )
    mixed = "".join(f"{first}\n{second}\n" for first, second in zip(one, other, strict=True))
    assert rows_of(write(tmp_path / "log.jsonl", mixed + FINISH)) == [
        ("t.py::a", 0, "failed", "flaky"),
        ("t.py::a", 1, "passed", ""),
    ]


def test_a_module_that_no_worker_could_collect_is_one_error(tmp_path: Path) -> None:
    path = run_pytest(tmp_path, "import no_such_module", "-n", "2")
    assert rows_of(path) == [("test_real.py", 0, "error", "test")]


@pytest.mark.parametrize("n_copies", [2, 3])
def test_lines_that_come_twice_are_no_tries(tmp_path: Path, n_copies: int) -> None:
    """A log that was shipped twice, whole or line by line; tries of their own start at other times."""
    tries = whole("t.py::a", "rerun") + whole("t.py::a", start=9.0) + whole("t.py::b", "failed", 20.0)
    expected = rows_of(write(tmp_path / "once.jsonl", tries + FINISH))
    assert len(expected) == 3
    by_line = "".join(one * n_copies for one in (tries + FINISH).splitlines(keepends=True))
    for body in (by_line, (tries + FINISH) * n_copies):
        path = write(tmp_path / "log.jsonl", body)
        assert rows_of(path) == expected
        assert read_reportlog(path).notes == (
            f"{9 * (n_copies - 1)} lines came twice and were left out the second time",
        )


# case 33: bytes that are none of JSON


@pytest.mark.parametrize(
    ("body", "n_rows", "note"),
    [
        (whole("t.py::a[\u00e9]").encode().replace(b"\\u00e9", b"\xff") + FINISH.encode(), 1, "not UTF-8"),
        (b"\0" * 4096 + whole("t.py::a").encode() + FINISH.encode(), 1, "control characters"),
        (whole("t.py::a").encode() + FINISH.encode() + b"\0" * 4096, 1, "control characters"),
        (whole("t.py::a").replace("t.py", "t\x1b.py").replace("\\u001b", "\x1b") + FINISH, 1, "control"),
        (whole("t.py::a").encode() + line("t.py::b", "call").encode()[:40] + b"\0" * 99, 1, "torn"),
        ((whole("t.py::a") + FINISH).encode("utf-16"), 1, "in UTF-16-LE, expected UTF-8"),
        ((whole("t.py::a") + FINISH).encode("utf-32"), 1, "in UTF-32-LE, expected UTF-8"),
        (b"\xef\xbb\xbf" + (whole("t.py::a") + FINISH).encode(), 1, ""),
        ((whole("t.py::a") + FINISH).replace("\n", "\r\n"), 1, ""),
        ("\n\n" + whole("t.py::a") + "\n" + FINISH, 1, ""),
    ],
)
def test_damage_that_hides_nothing_is_noted(
    tmp_path: Path, body: str | bytes, n_rows: int, note: str
) -> None:
    path = write(tmp_path / "log.jsonl", body)
    notes = read_reportlog(path).notes
    assert [row[2] for row in rows_of(path)] == ["passed"] * n_rows
    assert any(note in one for one in notes) if note else notes == ()


def test_bytes_that_are_not_utf_8_are_spelled_out_and_stay_apart(tmp_path: Path) -> None:
    one, other = (whole("t.py::X", call).encode().replace(b"X", byte) for call, byte in
                  (("failed", b"\xfe"), ("passed", b"\xff")))  # fmt: skip
    assert rows_of(write(tmp_path / "log.jsonl", one + other)) == [
        ("t.py::\\xfe", 0, "failed", "test"),
        ("t.py::\\xff", 0, "passed", ""),
    ]


# case 34: lines of any length

LONG_LINES = {
    "text": {"longrepr": "E   assert 0\n" + "x" * 3_000_000},
    "escapes": {"longrepr": "E   assert 0\n" + '\\"\u00e9\n' * 400_000},
    "traceback": {
        "longrepr": {
            "reprtraceback": {"reprentries": [{"lines": ["x" * 90, '"}]{[']}] * 30_000},
            "reprcrash": {"path": "t.py", "lineno": 3, "message": "E   assert 0"},
        }
    },
    "sections": {"longrepr": "E   assert 0", "sections": [["Captured stdout", "}{" * 1_500_000]]},
    "properties": {"longrepr": "E   assert 0", "user_properties": [["name", i] for i in range(200_000)]},
}


@pytest.mark.parametrize("name", LONG_LINES)
def test_a_long_line_says_what_a_short_one_says(tmp_path: Path, name: str) -> None:
    path = write(
        tmp_path / "log.jsonl", whole("t.py::a", "failed", **LONG_LINES[name]) + whole("t.py::b") + FINISH
    )
    report = read_reportlog(path)
    assert rows_of(path) == [("t.py::a", 0, "failed", "test"), ("t.py::b", 0, "passed", "")]
    assert report.messages == {0: "E   assert 0"}
    assert report.durations_s.tolist() == [1.5, 1.5]
    assert report.notes == ()


@pytest.mark.parametrize("name", ["text", "traceback"])
def test_a_long_line_that_is_cut_off_is_torn(tmp_path: Path, name: str) -> None:
    body = whole("t.py::a") + line("t.py::b", "call", "failed", **LONG_LINES[name])[:-40]
    path = write(tmp_path / "log.jsonl", body)
    assert rows_of(path) == [("t.py::a", 0, "passed", "")]
    assert read_reportlog(path).notes[0] == "the last line is torn and was left out"
    with pytest.raises(ReportError, match=r"line 4 is no JSON object: cut off, or no JSON"):
        read_reportlog(write(path, body + "\n" + FINISH))


def test_a_line_that_no_report_has_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    with (tmp_path / "log.jsonl").open("w") as file:
        file.writelines([whole("a"), '{"a": ', *["1" * (1 << 20)] * 40, "}\n", FINISH])
    tracemalloc.start()
    try:
        with pytest.raises(ReportError, match=r"line 4 is no JSON object: more than 8 MiB that are no text"):
            read_reportlog(tmp_path / "log.jsonl")
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_a_line(tmp_path: Path) -> None:
    def peak_of(size: int) -> int:
        path = tmp_path / "log.jsonl"
        with path.open("w") as file:
            file.write(
                whole("t.py::a") + line("t.py::b", "call", "failed", longrepr="@@@").partition("@@@")[0]
            )
            for _ in range(size >> 16):
                file.write("line of a log\\n" * (1 << 12))
            file.write(line("t.py::b", "call", "failed", longrepr="@@@").partition("@@@")[2])
        tracemalloc.start()
        try:
            assert [row[2] for row in rows_of(path)] == ["passed", "failed"]
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_of(1 << 16)  # what is imported on first use
    assert peak_of(48 << 20) - peak_of(4 << 20) < 2 << 20


# Laws

_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(
    value=st.dictionaries(st.sampled_from(["a", "longrepr", "reprcrash", "é", '"']), _json),
    piece=st.integers(16, 80),
)
def test_a_shortened_line_is_the_line_without_what_is_not_kept(
    tmp_path_factory: pytest.TempPathFactory, value: dict[str, object], piece: int
) -> None:
    """Against the parsed object: the slow and obvious way."""

    def kept(found: object, keep: object) -> object:
        if isinstance(found, dict):
            return {
                key: kept(inner, keep.get(key)) if isinstance(keep, dict) and key in keep else shallow(inner)
                for key, inner in found.items()
            }
        return found

    def shallow(found: object) -> object:
        return None if isinstance(found, dict | list) else found

    path = tmp_path_factory.mktemp("lines") / "l.jsonl"
    # Lists are kept whole where they are kept, so none stand there.
    value = {key: inner for key, inner in value.items() if key != "longrepr" or isinstance(inner, dict | str)}
    text = json.dumps(value)
    path.write_text(text + "\n" + '{"b": 1}\n')
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(json_lines, "_PIECE_BYTES", piece)
        found = list(JsonLines(path, {"longrepr": {"reprcrash": {}}}))
    assert [one.number for one in found] == [1, 2]
    assert found[1].value == {"b": 1}
    expected = kept(value, {"longrepr": {"reprcrash": {}}}) if len(text) >= piece else value
    assert json.dumps(found[0].value) == json.dumps(expected)


_valid = (whole("t.py::a[é]", "failed", longrepr="E é") + whole("t.py::b") + FINISH).encode()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Bytes of a log that were cut, flipped, doubled, added to or written in another encoding."""
    body = _valid.decode().encode(
        draw(st.sampled_from(["utf-8", "latin-1", "utf-16", "utf-32", "utf-16-be"]))
    )
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        until = draw(st.integers(at, min(len(body), at + 300)))
        more = draw(st.one_of(st.binary(max_size=4), st.just(body[at:until]), st.just(b"\0" * 9)))
        body = draw(
            st.sampled_from([body[:at], body[:at] + more + body[at:], body[:at] + more + body[until:]])
        )
    return body


@given(body=st.one_of(st.binary(max_size=300), damaged()))
def test_any_bytes_are_a_report_or_a_named_error(
    tmp_path_factory: pytest.TempPathFactory, body: bytes
) -> None:
    path = write(tmp_path_factory.mktemp("log") / "l.jsonl", body)
    try:
        report = read_reportlog(path)
    except ReportError as error:
        message = str(error)
    else:
        executions_table(report, run_id="r", job="", shard="", lane="l")
        message = str(path)
    assert str(path) in message


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.jsonl")
    with pytest.raises(ReportError, match="a pipe, expected a regular file"):
        read_reportlog(tmp_path / "log.jsonl")

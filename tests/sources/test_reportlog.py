"""Report logs become one attempt a try, also when the process died."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fastci_ml.errors import ReportError
from fastci_ml.sources.reportlog import read_reportlog
from fastci_ml.sources.reports import executions_table


def rows_of(path: Path) -> list[tuple[object, ...]]:
    table = executions_table(read_reportlog(path), run_id="r", job="", shard="", lane="l")
    names = ("node_id", "attempt", "outcome", "failure_class")
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def line(node_id: str, when: str, outcome: str = "passed", **more: object) -> str:
    phase = {
        "nodeid": node_id,
        "when": when,
        "outcome": outcome,
        "duration": 0.5,
        "start": 10.0,
        "stop": 10.5,
    }
    return json.dumps({"$report_type": "TestReport", **phase, **more}) + "\n"


def whole(node_id: str, call: str = "passed", **more: object) -> str:
    return (
        line(node_id, "setup")
        + line(node_id, "call", call, **more)
        + line(node_id, "teardown", start=11.0, stop=12.0)
    )


FINISH = '{"exitstatus": 0, "$report_type": "SessionFinish"}\n'


def test_three_phases_are_one_attempt_with_their_times(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(whole("t.py::a") + FINISH)
    report = read_reportlog(path)
    assert len(report) == 1
    assert report.durations_s.tolist() == [1.5]
    assert (report.run_started_us, report.run_finished_us) == (10_000_000, 12_000_000)
    assert report.started_us is not None
    assert report.started_us.tolist() == [10_000_000]
    assert report.notes == ()


def test_a_rerun_is_a_failed_try(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        whole("t.py::a", "rerun") + whole("t.py::a") + whole("t.py::b", "rerun") + whole("t.py::b", "failed")
    )
    assert rows_of(path) == [
        ("t.py::a", 0, "failed", "flaky"),
        ("t.py::a", 1, "passed", ""),
        ("t.py::b", 0, "failed", "test"),
        ("t.py::b", 1, "failed", "test"),
    ]


def test_a_torn_last_line_is_left_out_and_noted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(whole("t.py::a") + line("t.py::b", "setup") + line("t.py::b", "call")[:40])
    assert rows_of(path) == [("t.py::a", 0, "passed", ""), ("t.py::b", 0, "unknown", "")]
    assert read_reportlog(path).notes == (
        "the last line is torn and was left out",
        "the session did not finish: tests may be missing",
    )


@pytest.mark.parametrize("bad", ["not json\n", "[1]\n", '{"a"\n', "[" * 100_000 + "\n"])
def test_a_broken_line_in_the_middle_is_a_named_error(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(whole("t.py::a") + bad + whole("t.py::b"))
    with pytest.raises(ReportError, match=r"log.jsonl: line 4 is no JSON object"):
        read_reportlog(path)


def test_odd_values_are_unknown_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    odd = {"duration": "x", "start": None, "stop": 1e300, "longrepr": [1, 2], "outcome": 7}
    path.write_text(
        json.dumps({"$report_type": "TestReport", "nodeid": "t.py::a", "when": None, **odd}) + "\n" + FINISH
    )
    assert rows_of(path) == [("t.py::a", 0, "unknown", "")]
    assert read_reportlog(path).run_started_us is None


def test_durations_and_times_that_can_be_none_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    odd = (-1, 2e9, 1e300, float("inf"))
    path.write_text(
        "".join(line(f"t.py::{value}", "call", duration=value) for value in odd)
        + line("t.py::sum", "setup", duration=6e8)
        + line("t.py::sum", "call", duration=6e8, start=-1.0, stop=1e14)
        + FINISH
    )
    report = read_reportlog(path)
    assert np.isnan(report.durations_s).all()
    assert (report.run_started_us, report.run_finished_us) == (10_000_000, 10_500_000)


def test_halves_of_characters_are_spelled_out(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(line("t.py::a[\ud800]", "call", "failed", longrepr="E \udcff") + FINISH)
    row = executions_table(read_reportlog(path), run_id="r", job="", shard="", lane="l").to_pylist()[0]
    assert (row["node_id"], row["message"]) == ("t.py::a[\\ud800]", "E \\xff")


def test_a_real_log_with_set_up_errors_skips_and_a_broken_module(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        "@pytest.fixture\ndef bad(): raise KeyError('x')\n"
        "def test_setup(bad): pass\n"
        "def test_skip(): pytest.skip('no')\n"
        "@pytest.mark.xfail\ndef test_xfail(): assert 0\n"
        "@pytest.mark.xfail\ndef test_xpass(): pass\n"
    )
    (tmp_path / "test_b.py").write_text("import no_such_module\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--report-log=log.jsonl"]
    subprocess.run([*command, "--continue-on-collection-errors"], cwd=tmp_path, check=False)
    assert rows_of(tmp_path / "log.jsonl") == [
        ("test_b.py", 0, "error", "test"),
        ("test_a.py::test_setup", 0, "error", "setup"),
        ("test_a.py::test_skip", 0, "skipped", ""),
        ("test_a.py::test_xfail", 0, "xfailed", ""),
        ("test_a.py::test_xpass", 0, "xpassed", ""),
    ]

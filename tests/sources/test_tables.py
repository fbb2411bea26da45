"""Tables are read by a mapping; what a mapping or a table lacks is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastci_ml.errors import ReportError, UsageError
from fastci_ml.records.frames import EXECUTIONS, RUNS
from fastci_ml.sources.history.tables import check_table
from fastci_ml.sources.tables import make_mapping, read_table

OPTIONS = {
    "run": "build",
    "test": "name",
    "outcome": "result",
    "duration": "ms",
    "duration_unit": "ms",
    "time": "at",
}
CSV = """build,name,result,ms,at,note
b2,007,failed,1500,2026-01-02 00:00:00,"a, b"
b1,007,ok,,2026-01-01T00:00:00,
b2,007,ok,-5,2026-01-02 00:00:01,
b3,x::y,skipped,1,2026-01-01T00:00:00,
b3,z,,1,2026-01-01T00:00:00,
"""


def read(path: Path, **changed: str) -> tuple[pa.Table, pa.Table]:
    executions, runs = read_table(path, make_mapping({**OPTIONS, **changed}), job="j", shard="s", lane="l")
    return check_table(EXECUTIONS, executions), check_table(RUNS, runs)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_become_executions_and_runs_get_strictly_increasing_times(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    path.write_text(CSV)
    if kind == "parquet":
        pq.write_table(
            pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types={"name": "string"})),
            path,
        )
    executions, runs = read(path)
    names = ("run_id", "node_id", "attempt", "outcome", "failure_class")
    assert [tuple(row[name] for name in names) for row in executions.to_pylist()] == [
        ("b2", "007", 0, "failed", "test"),
        ("b1", "007", 0, "passed", ""),
        ("b2", "007", 1, "passed", ""),
        ("b3", "x::y", 0, "skipped", ""),
        ("b3", "z", 0, "unknown", ""),
    ]
    durations = executions.column("duration_s").to_pylist()
    assert np.array_equal(durations, [1.5, np.nan, np.nan, 0.001, 0.001], equal_nan=True)
    assert runs.column("run_id").to_pylist() == ["b1", "b3", "b2"]
    first, second, third = (moment.timestamp() for moment in runs.column("started_at").to_pylist())
    assert round(1e6 * (second - first)) == 1
    assert third - first == 86_400


def test_a_table_without_a_clock_keeps_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    _, runs = read(path, time="", n_failures="ms", outcome="")
    assert runs.column("run_id").to_pylist() == ["b2", "b1", "b3"]
    assert (np.diff(np.asarray(runs.column("started_at").cast(pa.int64()))) > 0).all()


@pytest.mark.parametrize("unit", ["s", "min"])
def test_durations_that_can_be_none_are_unknown(tmp_path: Path, unit: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("build,name,result,ms\n" + "".join(f"b,t,ok,{ms}\n" for ms in (2e9, 1e308, "inf", -1)))
    executions, _ = read(path, duration_unit=unit, time="")
    assert np.isnan(executions.column("duration_s").to_pylist()).all()


def test_words_of_a_mapping_that_are_no_text_match_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    executions, _ = read(path, failed="F\udcff")
    assert "failed" not in executions.column("outcome").to_pylist()


def test_another_delimiter_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("build;name;result\nb;t;FAIL\n", encoding="utf-8-sig")
    executions, _ = read(path, delimiter=";", failed="FAIL,ERROR", duration="", time="")
    assert executions.column("outcome").to_pylist() == ["failed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run": "a"}, "no test"),
        ({"run": "a", "test": "b"}, "exactly one of outcome and n_failures"),
        ({**OPTIONS, "n_failures": "c"}, "exactly one of outcome and n_failures"),
        ({**OPTIONS, "duration_unit": "h"}, "duration_unit 'h', expected one of s, ms, us, min"),
        ({**OPTIONS, "delimiter": "::"}, "expected one ASCII character"),
        ({**OPTIONS, "runn": "c"}, "unknown key 'runn'"),
        ({**OPTIONS, "run": 3}, "run is int, expected text"),
    ],
)
def test_a_mapping_that_makes_no_sense_is_a_usage_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_mapping(options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column build"),
        ("build,name\n", "no column result, ms, at; it has build, name"),
        ("build,name,result,ms,at\n", "no rows"),
        ("build,name,result,ms,at\nb,t\n", "no readable table"),
        ("build,name,result,ms,at\nb,t,ok,soon,2026-01-01\n", "column ms: .*expected numbers"),
        ("build,name,result,ms,at\nb,t,ok,1,yesterday\n", "column at: .*expected ISO times"),
        ("build,name,result,ms,at\n,t,ok,1,2026-01-01\n", "column build has empty cells"),
    ],
)
def test_a_table_that_does_not_fit_is_a_named_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ReportError, match=f"t.csv: {message}"):
        read(path)


def test_torn_parquet_and_bad_bytes_are_named_errors(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for content in (b"PAR1 torn", b"\xff\xfe\x00b", b"build,name,result,ms,at\nb,\xff,ok,1,2026-01-01\n"):
        path.write_bytes(content)
        with pytest.raises(ReportError, match=r"t\.csv"):
            read(path)

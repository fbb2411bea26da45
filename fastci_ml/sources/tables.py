"""CSV and Parquet tables of test results, by a mapping of their columns.

Such tables know when a run was, not how long it took. So `started_at` and `finished_at` of a run are both the
run's time, strictly increasing from run to run: runs do not overlap, and each sees all that came before it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from fastci_ml.errors import ReportError, UsageError
from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.history.tables import indices, storable
from fastci_ml.sources.reports import (
    CLASS_CODE,
    OUTCOME_CODE,
    Report,
    assemble_executions,
    attempt_numbers,
    known_durations_s,
    runs_table,
)

_UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
# Start of the clock for tables without one: any will do, only the order is real.
_FIRST_US = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_STEP_US = 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMapping:
    """Which column of a table means what.

    Attributes
    ----------
    run, test : str
        Columns of the run's and the test's name.
    outcome : str
        Column of the outcome; `failed` lists its values that mean a failure, `skipped` those that mean that
        the test did not run, and every other value is a pass. An empty cell is unknown.
    n_failures : str
        In place of `outcome`: column of a count, a failure where it is above 0.
    failed, skipped : str
        Values, separated by commas.
    duration : str
        Column of the duration; empty for none.
    duration_unit : str
        ``s``, ``ms``, ``us`` or ``min``.
    time : str
        Column of the time of the run, ISO 8601, UTC where it has no zone; the first of a run counts. Empty:
        the table has no clock and its rows are in time order.
    head : str
        Column of the commit; empty for none.
    delimiter : str
        Of a CSV.
    """

    run: str
    test: str
    outcome: str = ""
    n_failures: str = ""
    failed: str = "failed,fail,error,1"
    skipped: str = "skipped"
    duration: str = ""
    duration_unit: str = "s"
    time: str = ""
    head: str = ""
    delimiter: str = ","

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the table must have."""
        named = (self.run, self.test, self.outcome, self.n_failures, self.duration, self.time, self.head)
        return tuple(dict.fromkeys(name for name in named if name))


def make_mapping(options: Mapping[str, Any]) -> TableMapping:
    """Mapping from ``--map`` options or from ``[tool.fastci.tables.NAME]``.

    Raises
    ------
    UsageError
        If a key is unknown or missing, or a value is not what it may be.
    """
    known = [field.name for field in fields(TableMapping)]
    for key, value in options.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            raise UsageError(f"unknown key {key!r} in a table mapping", hint=hint)
        if not isinstance(value, str):
            raise UsageError(f"table mapping: {key} is {type(value).__name__}, expected text")
    missing = [key for key in ("run", "test") if not options.get(key)]
    if missing:
        raise UsageError(
            f"table mapping: no {' and no '.join(missing)}", hint="--map run=COLUMN test=COLUMN ..."
        )
    mapping = TableMapping(**{key: storable(value) for key, value in options.items()})
    if bool(mapping.outcome) == bool(mapping.n_failures):
        raise UsageError(
            "table mapping: exactly one of outcome and n_failures must be there", hint="--map outcome=COLUMN"
        )
    if mapping.duration_unit not in _UNITS_S:
        raise UsageError(
            f"table mapping: duration_unit {mapping.duration_unit!r}, expected one of {', '.join(_UNITS_S)}"
        )
    if len(mapping.delimiter) != 1 or ord(mapping.delimiter) > 127:
        raise UsageError(f"table mapping: delimiter {mapping.delimiter!r}, expected one ASCII character")
    return mapping


def read_table(
    path: Path, mapping: TableMapping, *, job: str, shard: str, lane: str
) -> tuple[pa.Table, pa.Table]:
    """Read a table of test results.

    Parameters
    ----------
    path : Path
        CSV with a header, or Parquet, told apart by content.
    mapping : TableMapping
        What the columns mean.
    job, shard, lane : str
        Of all rows.

    Returns
    -------
    executions, runs : pyarrow.Table
        Tables of EXECUTIONS and RUNS. Rows of the same run and test are attempts in the order of the file;
        their failures stay test failures: such tables do not say whether the attempts were alike.

    Raises
    ------
    ReportError
        If the file is unreadable, lacks a column, or holds a value that its column cannot have.
    """
    table = _load(path, mapping)
    if not table.num_rows:
        raise ReportError(f"{path}: no rows")
    run_codes, run_names = _names(path, table, mapping.run)
    test_codes, test_names = _names(path, table, mapping.test)
    order, times_us = _clock(path, table, mapping, run_codes, len(run_names))
    outcomes = _outcomes(path, table, mapping)
    fails = outcomes == OUTCOME_CODE[Outcome.FAILED]
    classes = np.where(fails, CLASS_CODE[FailureClass.TEST], CLASS_CODE[FailureClass.NONE]).astype(np.int8)
    report = Report(
        node_ids=_dictionary(test_codes, test_names),
        outcomes=outcomes,
        classes=classes,
        durations_s=_durations_s(path, table, mapping),
        is_joined=np.ones(table.num_rows, bool),
        messages={},
    )
    attempts = attempt_numbers(run_codes.astype(np.int64) * len(test_names) + test_codes)
    executions = assemble_executions(
        report, _dictionary(run_codes, run_names), attempts, classes, job=job, shard=shard, lane=lane
    )
    heads = _heads(table, mapping, run_codes, len(run_names))
    names = run_names.to_pylist()
    rows = [
        {
            "run_id": names[run],
            "job": job,
            "shard": shard,
            "head": heads[run],
            "started_at": int(time_us),
            "finished_at": int(time_us),
            "source": f"table {path.name}",
        }
        for run, time_us in zip(order.tolist(), times_us, strict=True)
    ]
    return executions, runs_table(rows)


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet does."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _load(path: Path, mapping: TableMapping) -> pa.Table:
    try:
        if is_parquet(path):
            names = pq.read_schema(path).names
            _check_columns(path, mapping, names)
            return pq.read_table(path, columns=list(mapping.columns)).combine_chunks()
        parse = pa.csv.ParseOptions(delimiter=mapping.delimiter)
        with path.open("rb") as file:
            header = file.readline().decode("utf-8-sig", "replace").rstrip("\r\n")
        _check_columns(path, mapping, [name.strip('"') for name in header.split(mapping.delimiter)])
        # Names stay text: 007 is not 7. Numbers are parsed later, so that a bad one can be named.
        text = {name: pa.string() for name in mapping.columns}
        convert = pa.csv.ConvertOptions(include_columns=list(mapping.columns), column_types=text)
        return pa.csv.read_csv(path, parse_options=parse, convert_options=convert).combine_chunks()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: no readable table: {error}") from error


def _check_columns(path: Path, mapping: TableMapping, names: list[str]) -> None:
    missing = [name for name in mapping.columns if name not in names]
    if missing:
        raise ReportError(
            f"{path}: no column {', '.join(missing)}; it has {', '.join(names[:30])}",
            hint="fastci-ml ingest --map run=COLUMN test=COLUMN outcome=COLUMN ...",
        )


def _names(path: Path, table: pa.Table, name: str) -> tuple[np.ndarray, pa.Array]:
    """Codes and values of a column of names, in order of first appearance."""
    column = _text(table, name)
    if column.null_count or pc.any(pc.equal(column, "")).as_py():
        raise ReportError(f"{path}: column {name} has empty cells, expected a name in each")
    encoded = column.dictionary_encode()
    return np.from_dlpack(encoded.indices), encoded.dictionary


def _text(table: pa.Table, name: str) -> pa.Array:
    return pa.chunked_array(table.column(name).cast(pa.string())).combine_chunks()


def _dictionary(codes: np.ndarray, values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), values)


def _clock(
    path: Path, table: pa.Table, mapping: TableMapping, run_codes: np.ndarray, n_runs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Runs in time order, and their times: strictly increasing, a microsecond apart where equal."""
    if not mapping.time:
        return np.arange(n_runs), _FIRST_US + _STEP_US * np.arange(n_runs)
    stamps = table.column(mapping.time)
    try:
        if not pa.types.is_timestamp(stamps.type):
            stamps = stamps.cast(pa.string()).cast(pa.timestamp("us"))
        seen_us = np.asarray(stamps.cast(pa.timestamp("us")).cast(pa.int64()).combine_chunks())
    except pa.ArrowInvalid as error:
        raise ReportError(f"{path}: column {mapping.time}: {error}, expected ISO times") from error
    if stamps.null_count:
        raise ReportError(f"{path}: column {mapping.time} has empty cells, expected a time in each")
    first_us = np.full(n_runs, np.iinfo(np.int64).max)
    np.minimum.at(first_us, run_codes, seen_us)
    order = np.argsort(first_us, kind="stable")
    # t[i] >= t[i-1] + 1 for all i is the running maximum of t[i] - i, plus i.
    steps = np.arange(n_runs)
    return order, np.maximum.accumulate(first_us[order] - steps) + steps


def _outcomes(path: Path, table: pa.Table, mapping: TableMapping) -> np.ndarray:
    passed, failed = OUTCOME_CODE[Outcome.PASSED], OUTCOME_CODE[Outcome.FAILED]
    if mapping.n_failures:
        counts = _numbers(path, table, mapping.n_failures)
        unknown = np.isnan(counts)
        outcomes = np.where(counts > 0, failed, passed)
    else:
        column = _text(table, mapping.outcome)
        unknown = np.asarray(pc.equal(pc.fill_null(column, ""), ""))
        outcomes = np.where(_is_in(column, mapping.failed), failed, passed)
        outcomes = np.where(_is_in(column, mapping.skipped), OUTCOME_CODE[Outcome.SKIPPED], outcomes)
    return np.where(unknown, OUTCOME_CODE[Outcome.UNKNOWN], outcomes).astype(np.int8)


def _is_in(column: pa.Array, values: str) -> np.ndarray:
    wanted = pa.array([value.strip() for value in values.split(",") if value.strip()], pa.string())
    return np.asarray(pc.is_in(column, value_set=wanted))


def _durations_s(path: Path, table: pa.Table, mapping: TableMapping) -> np.ndarray:
    if not mapping.duration:
        return np.full(table.num_rows, np.nan)
    with np.errstate(over="ignore"):  # infinite is unknown too
        return known_durations_s(_numbers(path, table, mapping.duration) * _UNITS_S[mapping.duration_unit])


def _numbers(path: Path, table: pa.Table, name: str) -> np.ndarray:
    """Numbers of a column, NaN for empty cells."""
    column = table.column(name)
    try:
        if pa.types.is_string(column.type):
            column = pc.if_else(pc.equal(column, ""), None, column)
        return np.array(column.cast(pa.float64()).combine_chunks().to_numpy(zero_copy_only=False), np.float64)
    except pa.ArrowInvalid as error:
        raise ReportError(f"{path}: column {name}: {error}, expected numbers") from error


def _heads(table: pa.Table, mapping: TableMapping, run_codes: np.ndarray, n_runs: int) -> list[str]:
    if not mapping.head:
        return [""] * n_runs
    first_row = np.full(n_runs, table.num_rows)
    np.minimum.at(first_row, run_codes, np.arange(table.num_rows))
    heads: list[str] = pc.fill_null(_text(table, mapping.head), "").take(indices(first_row)).to_pylist()
    return heads

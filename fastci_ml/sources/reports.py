"""What every reader of test reports gives: columns of attempts, and the table that the store takes.

Columns rather than records: a report of 200,000 cases becomes a table without a Python loop over its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from fastci_ml.records.changes import FileChange
from fastci_ml.records.frames import CHANGES, EXECUTIONS, RUNS
from fastci_ml.records.outcomes import LONGEST_S, FailureClass, Outcome
from fastci_ml.sources.failures.rule_files import FLAKY_RULE
from fastci_ml.sources.history.tables import SCHEMAS, storable

OUTCOMES = tuple(Outcome)
CLASSES = tuple(FailureClass)
OUTCOME_CODE = {outcome: code for code, outcome in enumerate(OUTCOMES)}
CLASS_CODE = {failure_class: code for code, failure_class in enumerate(CLASSES)}
_IS_FAILURE = np.array([outcome.is_failure for outcome in OUTCOMES])
_UNKNOWN_US = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Attempts in the order of the report.

    Attributes
    ----------
    node_ids : pyarrow.DictionaryArray of str, shape (n_rows,)
        One id may come several times: tries of one test, first to last.
    outcomes, classes : int8 arrays, shape (n_rows,)
        Codes into `OUTCOMES` and `CLASSES`.
    durations_s : float64 array, shape (n_rows,)
        As `known_durations_s` gives them: NaN when unknown.
    is_joined : bool array, shape (n_rows,)
        As in EXECUTIONS.
    messages : mapping of int to str
        First line of the failure, by row; rows without one are absent.
    rules : mapping of int to str
        Id of the rule that gave the class, by row; rows without one are absent.
    started_us, finished_us : int64 arrays or None
        By row, microseconds since 1970, the least int64 when unknown; None when all are.
    run_started_us, run_finished_us : int or None
        Of the whole report; None when it does not say.
    notes : tuple of str
        What was odd, for a person.
    properties : tuple of (str, str)
        Names and values that our own plugin wrote into the report.
    """

    node_ids: pa.Array
    outcomes: np.ndarray
    classes: np.ndarray
    durations_s: np.ndarray
    is_joined: np.ndarray
    messages: Mapping[int, str]
    rules: Mapping[int, str] = field(default_factory=dict)
    started_us: np.ndarray | None = None
    finished_us: np.ndarray | None = None
    run_started_us: int | None = None
    run_finished_us: int | None = None
    notes: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.node_ids)


def join_reports(reports: Sequence[Report]) -> Report:
    """One report from several of the same run, by their start; a test in several has several tries."""
    if len(reports) == 1:
        return reports[0]
    ordered = sorted(reports, key=lambda report: report.run_started_us or 0)
    messages: dict[int, str] = {}
    rules: dict[int, str] = {}
    n_rows = 0
    for report in ordered:
        messages.update({n_rows + row: text for row, text in report.messages.items()})
        rules.update({n_rows + row: rule for row, rule in report.rules.items()})
        n_rows += len(report)
    starts = [r.run_started_us for r in ordered if r.run_started_us is not None]
    finishes = [r.run_finished_us for r in ordered if r.run_finished_us is not None]
    return Report(
        node_ids=pa.chunked_array([r.node_ids for r in ordered]).unify_dictionaries().combine_chunks(),
        outcomes=np.concatenate([report.outcomes for report in ordered]),
        classes=np.concatenate([report.classes for report in ordered]),
        durations_s=np.concatenate([report.durations_s for report in ordered]),
        is_joined=np.concatenate([report.is_joined for report in ordered]),
        messages=messages,
        rules=rules,
        started_us=np.concatenate([_times_or_unknown(r.started_us, len(r)) for r in ordered]),
        finished_us=np.concatenate([_times_or_unknown(r.finished_us, len(r)) for r in ordered]),
        run_started_us=min(starts, default=None),
        run_finished_us=max(finishes, default=None),
        notes=tuple(note for report in ordered for note in report.notes),
        properties=tuple(sorted({pair for report in ordered for pair in report.properties})),
    )


def executions_table(report: Report, *, run_id: str, job: str, shard: str, lane: str) -> pa.Table:
    """Table of EXECUTIONS of one report: attempts counted, failures of tests that also passed marked flaky.

    Returns
    -------
    pyarrow.Table
        As `history.tables.check_table` wants it, in the order of the report.
    """
    n_rows = len(report)
    attempts, classes = _settle(report)
    if classes is not report.classes:
        flaky = np.flatnonzero(classes == CLASS_CODE[FailureClass.FLAKY]).tolist()
        report = replace(report, rules={**report.rules, **dict.fromkeys(flaky, FLAKY_RULE)})
    return assemble_executions(
        report, constant(run_id, n_rows), attempts, classes, job=job, shard=shard, lane=lane
    )


def assemble_executions(
    report: Report,
    run_ids: pa.Array,
    attempts: np.ndarray,
    classes: np.ndarray,
    *,
    job: str,
    shard: str,
    lane: str,
) -> pa.Table:
    """Table of EXECUTIONS from the columns of a report and those that are settled already."""
    n_rows = len(report)
    message = [""] * n_rows
    for row, text in report.messages.items():
        message[row] = text
    unknown = pa.array(np.full(n_rows, np.nan), from_pandas=False)
    columns = {
        "run_id": run_ids,
        "job": constant(job, n_rows),
        "shard": constant(shard, n_rows),
        "lane": constant(lane, n_rows),
        "node_id": report.node_ids,
        "attempt": pa.array(attempts),
        "outcome": coded(report.outcomes, OUTCOMES),
        "failure_class": coded(classes, CLASSES),
        "started_at": times(report.started_us, n_rows),
        "finished_at": times(report.finished_us, n_rows),
        "duration_s": pa.array(report.durations_s, from_pandas=False),
        "n_gpus": unknown,
        "gpu_s": unknown,
        "is_joined": pa.array(report.is_joined),
        "message": pa.array(message, pa.string()),
        "failure_rule": _sparse(report.rules, n_rows),
    }
    schema = SCHEMAS[EXECUTIONS.name]
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def runs_table(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Table of RUNS from one mapping a run; times are microseconds since 1970, absent text is empty."""
    arrays = []
    for kind in SCHEMAS[RUNS.name]:
        if pa.types.is_timestamp(kind.type):
            arrays.append(pa.array([row[kind.name] for row in rows], pa.int64()).cast(kind.type))
        else:
            values = pa.array([storable(str(row.get(kind.name, ""))) for row in rows], pa.string())
            arrays.append(values.dictionary_encode() if pa.types.is_dictionary(kind.type) else values)
    return pa.Table.from_arrays(arrays, schema=SCHEMAS[RUNS.name])


def changes_table(run_id: str, files: Sequence[FileChange]) -> pa.Table:
    """Table of CHANGES of one run."""
    n_rows = len(files)
    columns = {
        "run_id": constant(run_id, n_rows),
        "path": _texts([file.path for file in files]),
        "old_path": _texts([file.old_path for file in files]),
        "status": _texts([file.status for file in files]),
        "n_added": pa.array(np.array([file.n_added for file in files], np.float64), from_pandas=False),
        "n_deleted": pa.array(np.array([file.n_deleted for file in files], np.float64), from_pandas=False),
    }
    schema = SCHEMAS[CHANGES.name]
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def known_durations_s(seconds: np.ndarray) -> np.ndarray:
    """Durations with NaN for what no duration can be: negative, infinite, or above `LONGEST_S`.

    Examples
    --------
    >>> known_durations_s(np.array([0.5, -1.0, 1e15, np.inf])).tolist()
    [0.5, nan, nan, nan]
    """
    return np.where((seconds >= 0) & (seconds <= LONGEST_S), seconds, np.nan)


def total_us(durations_s: np.ndarray) -> int:
    """Microseconds of all rows together without the unknown ones; 0 where no run can take so long."""
    return round(1e6 * float(np.nan_to_num(known_durations_s(np.nansum(durations_s)))))


def attempt_numbers(groups: np.ndarray) -> np.ndarray:
    """Place of each row among the rows of its group, from 0, in order.

    Examples
    --------
    >>> attempt_numbers(np.array([7, 3, 7, 7, 3])).tolist()
    [0, 0, 1, 2, 1]
    """
    n_rows = len(groups)
    attempts = np.zeros(n_rows, np.int64)
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])[:n_rows]
    first = np.maximum.accumulate(np.where(is_first, np.arange(n_rows), 0))
    attempts[order] = np.arange(n_rows) - first
    return attempts


def constant(value: str, n_rows: int) -> pa.Array:
    """Dictionary column with the same value, as the store can hold it, in every row."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n_rows, np.int32)), pa.array([storable(value)]))


def coded(places: np.ndarray, values: Sequence[str]) -> pa.Array:
    """Dictionary column from codes and what they stand for."""
    values = pa.array([str(value) for value in values], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), values)


def times(microseconds: np.ndarray | None, n_rows: int) -> pa.Array:
    """Column of times; the least int64, or None for the whole column, is unknown."""
    kind = pa.timestamp("us", tz="UTC")
    if microseconds is None:
        return pa.nulls(n_rows, kind)
    return pa.array(microseconds, pa.int64(), mask=microseconds == _UNKNOWN_US).cast(kind)


def _sparse(values: Mapping[int, str], n_rows: int) -> pa.Array:
    """Dictionary column of texts that few rows have; the others are empty."""
    codes: dict[str, int] = {"": 0}
    places = np.zeros(n_rows, np.int32)
    for row, text in values.items():
        places[row] = codes.setdefault(text, len(codes))
    texts = pa.array([storable(text) for text in codes], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(places), texts)


def _texts(values: Sequence[str]) -> pa.Array:
    return pa.array([storable(str(value)) for value in values], pa.string()).dictionary_encode()


def _times_or_unknown(microseconds: np.ndarray | None, n_rows: int) -> np.ndarray:
    return np.full(n_rows, _UNKNOWN_US) if microseconds is None else microseconds


def _settle(report: Report) -> tuple[np.ndarray, np.ndarray]:
    """Attempt of each row, and classes with the failures of a test that also passed turned to flaky."""
    n_rows = len(report)
    n_tests = len(report.node_ids.dictionary)
    if n_tests == n_rows:
        return np.zeros(n_rows, np.int64), report.classes
    tests = np.from_dlpack(report.node_ids.indices)
    attempts = attempt_numbers(tests)
    fails = _IS_FAILURE[report.outcomes]
    has_passed = np.zeros(n_tests, bool)
    has_passed[tests[report.outcomes == OUTCOME_CODE[Outcome.PASSED]]] = True
    is_flaky = fails & has_passed[tests]
    return attempts, np.where(is_flaky, np.int8(CLASS_CODE[FailureClass.FLAKY]), report.classes)

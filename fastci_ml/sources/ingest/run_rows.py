"""Rows of one unit for the history: attempts numbered, tests without a result, the run's row, its change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from fastci_ml.errors import GitError, ReportError
from fastci_ml.records.changes import FileChange
from fastci_ml.records.frames import ATTEMPTS_A_RUN, NO_ATTEMPT
from fastci_ml.records.ids import NodeId
from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.history.tables import numbers
from fastci_ml.sources.ingest.known_runs import NO_REPORT, KnownRun
from fastci_ml.sources.ingest.run_file import RunInfo
from fastci_ml.sources.reports import (
    CLASS_CODE,
    OUTCOME_CODE,
    Report,
    assemble_executions,
    constant,
    executions_table,
    runs_table,
)

_SKIPPED = OUTCOME_CODE[Outcome.SKIPPED]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRows:
    """Tables of one unit, ready for the store.

    Attributes
    ----------
    executions, runs, changes : pyarrow.Table
        For `HistoryStore.append_tables`.
    digest : str
        Of what they come from.
    n_files : int
        Reports that they come from.
    n_rewritten : int
        Rows of `executions` that the history has already, with another failure class.
    n_unjoined : int
        Results whose test is guessed from a class name.
    """

    executions: pa.Table
    runs: pa.Table
    changes: pa.Table
    digest: str
    n_files: int
    n_rewritten: int
    n_unjoined: int


def unit_executions(
    info: RunInfo, report: Report | None, gaps: Sequence[NodeId], rewritten: pa.Table | None = None
) -> pa.Table:
    """Table of EXECUTIONS of one unit.

    Parameters
    ----------
    info : RunInfo
        Names the unit; tries of attempt k of the CI are numbered from ``(k - 1) * ATTEMPTS_A_RUN``.
    report : Report or None
        Its results; None where there are none.
    gaps : sequence of NodeId
        Tests that were to run and have no result: one row each, `UNKNOWN`, with the number `NO_ATTEMPT`, so
        that no row of a try ever has the same key, whichever comes first.
    rewritten : pyarrow.Table, optional
        Rows of the history that are to be replaced; they come first, so that none ever wins over `report`.

    Raises
    ------
    ReportError
        If a test has more tries than there are numbers for.
    """
    key = {"run_id": info.run_id, "job": info.job, "shard": info.shard, "lane": info.lane}
    tables = [] if rewritten is None else [rewritten]
    if report is not None:
        # What a skipped test took is the time of skipping; it says nothing about the test.
        durations_s = np.where(report.outcomes == _SKIPPED, np.nan, report.durations_s)
        table = executions_table(replace(report, durations_s=durations_s), **key)
        tables.append(_numbered(table, info))
    if gaps or report is None:
        tables.append(_gap_rows(gaps, **key))
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def unit_runs(
    info: RunInfo, span_us: tuple[int, int], compared: tuple[str, str], source: str, known: KnownRun | None
) -> tuple[pa.Table, KnownRun]:
    """Table of RUNS of one unit, and the same for `KnownRuns`.

    Parameters
    ----------
    info : RunInfo
        Names the unit.
    span_us : (int, int)
        Start and finish, microseconds since 1970.
    compared : (str, str)
        Base and head; empty when unknown.
    source : str
        Reader and file; `NO_REPORT` where there is none.
    known : KnownRun or None
        The row that it will replace. Its rows of other attempts, lanes and reports stay, so the new row spans
        them too and keeps what is not said again. Only a run.json that states both times, and does so not for
        one attempt of several, corrects them.
    """
    started_us, finished_us = span_us
    base, head = compared
    if known is not None:
        is_stated = info.attempt is None and info.started_us is not None and info.finished_us is not None
        if not is_stated or known.is_new or source == NO_REPORT:
            started_us, finished_us = min(started_us, known.started_us), max(finished_us, known.finished_us)
        base, head = base or known.base, head or known.head
        source = known.source if source == NO_REPORT else source
    row = KnownRun(
        base=base, head=head, started_us=started_us, finished_us=finished_us, source=source, is_new=True
    )
    table = runs_table(
        [
            {
                "run_id": info.run_id,
                "job": info.job,
                "shard": info.shard,
                "base": base,
                "head": head,
                "started_at": started_us,
                "finished_at": finished_us,
                "source": source,
            }
        ]
    )
    return table, row


def compared(
    info: RunInfo, repository: Path | None, *, is_named: bool
) -> tuple[tuple[str, str], tuple[FileChange, ...], str]:
    """Base, head and changed files of a run, and a note where the change is unknown though it was told.

    Parameters
    ----------
    info : RunInfo
        A list of changes that may be cut off counts as none, unless the repository knows the commits.
    repository : Path or None
        Where full shas and changes are read.
    is_named : bool
        The commits were typed by the user, who wants to hear of a wrong one.

    Raises
    ------
    GitError
        If a commit that `is_named` is not there.
    """
    told = (info.base, info.head)
    if info.changes is not None and not info.change_doubt:
        return told, info.changes, ""
    reason = ""
    if repository is None:
        reason = "no repository was given to ask instead (--repo PATH)"
    elif info.head and (info.base or not info.change_doubt):
        try:
            return (*_read_change(repository, info), "")
        except GitError as error:
            if is_named:
                raise
            reason = str(error)
    elif info.change_doubt:
        reason = "without its base and head no repository can be asked"
    if info.change_doubt:
        return told, (), f"its change is unknown: run.json {info.change_doubt}; {reason}"
    # A run without a head is one that nobody wanted looked up.
    return told, (), f"its change is unknown: {reason}" if repository is not None and info.head else ""


def _read_change(repository: Path, info: RunInfo) -> tuple[tuple[str, str], tuple[FileChange, ...]]:
    """Full shas and changed files, from git."""
    # GitPython is loaded only by those who ask for it.
    from fastci_ml.sources.git.repository import Repository

    with Repository(repository) as opened:
        if not info.base:
            return ("", opened.resolve(info.head)), ()
        change = opened.changes(info.base, info.head)
    return (change.base, change.head), change.files


def _numbered(table: pa.Table, info: RunInfo) -> pa.Table:
    """Table with the attempts of its attempt of the CI."""
    attempts = numbers(table.column("attempt"))
    n_most = int(attempts.max(initial=-1)) + 1
    if n_most > ATTEMPTS_A_RUN:
        raise ReportError(
            f"{info.describe()}: {n_most:,} results of one test, expected at most {ATTEMPTS_A_RUN:,}: "
            "are different tests of one name in it?"
        )
    first = ((info.attempt or 1) - 1) * ATTEMPTS_A_RUN
    if not first:
        return table
    place = table.schema.get_field_index("attempt")
    return table.set_column(place, table.schema.field(place), pa.array(attempts + first))


def _gap_rows(node_ids: Sequence[NodeId], *, run_id: str, job: str, shard: str, lane: str) -> pa.Table:
    n_rows = len(node_ids)
    report = Report(
        node_ids=pa.array(node_ids, pa.string()).dictionary_encode(),
        outcomes=np.full(n_rows, OUTCOME_CODE[Outcome.UNKNOWN], np.int8),
        classes=np.full(n_rows, CLASS_CODE[FailureClass.NONE], np.int8),
        durations_s=np.full(n_rows, np.nan),
        is_joined=np.ones(n_rows, bool),
        messages={},
    )
    attempts = np.full(n_rows, NO_ATTEMPT, np.int64)
    return assemble_executions(
        report, constant(run_id, n_rows), attempts, report.classes, job=job, shard=shard, lane=lane
    )

"""What the run of a plan left: its test reports, read into the rows that the history takes.

Loads numpy and pyarrow, so nothing on the running side imports it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastci_ml.errors import GitError, ReportError
from fastci_ml.execution.entry_results import Result, fold_results
from fastci_ml.execution.ran_plan import bytes_of_plan, from_top, load_plan, project_of
from fastci_ml.records.frames import CHANGES, EXECUTIONS, RUNS, Frame
from fastci_ml.records.ids import NodeId, without_project
from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.records.plans import FOLLOWED_PROPERTY, Followed, Plan
from fastci_ml.sources.failures.rank_reports import with_rank_logs
from fastci_ml.sources.failures.rules import FailureRules
from fastci_ml.sources.failures.run_logs import WHOLE_RUN
from fastci_ml.sources.history.tables import SCHEMAS, empty_table, storable
from fastci_ml.sources.ingest.report_files import ReportFile, ReportKind, find_reports
from fastci_ml.sources.ingest.run_times import check_clock
from fastci_ml.sources.junit.ids import JunitIds
from fastci_ml.sources.junit.reader import read_junit
from fastci_ml.sources.projects import prefix_report, repository_top
from fastci_ml.sources.reportlog import read_reportlog
from fastci_ml.sources.reports import Report, executions_table, join_reports

_NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResults:
    """A plan and what its run left.

    Attributes
    ----------
    plan : Plan
        As read, its ids from the top of the repository.
    digest : str
        SHA-256 of the bytes of the plan and of the reports, whatever their names and order.
    run_id : str
        Of the CI run.
    results : mapping of NodeId to Result
        Every test with a result, also those that the plan does not name; tests that an entry of their
        function stands for together.
    finished_at : datetime
        When the results were there, UTC.
    executions, runs, changes : pyarrow.Table
        Rows for `HistoryStore.append_tables`; a planned test without a result is there as `UNKNOWN`.
    notes : tuple of str
        What was odd, in words.
    """

    plan: Plan
    digest: str
    run_id: str
    results: Mapping[NodeId, Result]
    finished_at: datetime
    executions: pa.Table
    runs: pa.Table
    changes: pa.Table
    notes: tuple[str, ...] = ()


def read_results(
    plan_path: Path,
    paths: Sequence[Path],
    *,
    root: Path,
    run_id: str | None = None,
    now: datetime | None = None,
    rules: FailureRules | None = None,
    logs: Sequence[Path] = (),
) -> PlanResults:
    """Read a plan and the reports of its run.

    Parameters
    ----------
    plan_path : Path
        The plan that ran.
    paths : sequence of Path
        JUnit XML files and report logs of this one run, or folders of them;
        below a folder other files are passed over.
    root : Path
        Folder of the settings in the repository, which says what the plan's change touched. Without one the
        run is kept and its change unknown.
    run_id : str, optional
        Of the CI run, which may come in several parts; taken from `digest` by default, so that a repetition
        is the same run.
    now : datetime, optional
        The clock; a run that ends more than a day later is refused. The machine's by default.
    rules : FailureRules, optional
        Of failure classes; the shipped ones by default.
    logs : sequence of Path
        Logs of all processes, asked where a test only says that another one failed.

    Returns
    -------
    PlanResults
        The same bytes give the same rows, except for times that no report tells: they are those of the
        files then.

    Raises
    ------
    PlanError
        If the plan cannot be read.
    ReportError
        If a report cannot be read, there is none, the run lies in the future, or it
        did not follow the plan.
    """
    content = bytes_of_plan(plan_path)
    plan = load_plan(content, plan_path)
    project = project_of(plan, root)
    plan = from_top(plan)
    reports = _find_reports(paths)
    files = [report.path for report in reports]
    digest = _digest(content, files)
    # A CI run that is told in several parts (one a shard, one a repetition) gets rows for each: with the same
    # key a test that is missing in the last part would take the place of its result in another.
    shard = "" if run_id is None else digest[:16]
    run_id = run_id or f"plan-{digest[:16]}"
    # Names in the reports start where pytest's root was, as did those of the listing behind the plan.
    names = (without_project(test.id, project) for test in plan.tests)
    ids = JunitIds(names, repository_top(root) / project)
    report = prefix_report(join_reports([_read_report(report, ids, rules) for report in reports]), project)
    if logs:
        report = with_rank_logs(report, {WHOLE_RUN: logs}, rules)
    notes = _check_followed(report, plan, files)
    started_us, finished_us = _span_us(report, files)
    check_clock(files[0], run_id, finished_us, now or datetime.now(UTC))
    started_at, finished_at = _moment(started_us), _moment(finished_us)
    executions = executions_table(report, run_id=run_id, job="", shard=shard, lane=storable(plan.lane))
    results = fold_results(executions, plan)
    missing = [test.id for test in plan.tests if test.decision.is_run and test.id not in results]
    changes, note = _changes(plan, root, run_id)
    run = {
        "run_id": run_id,
        "job": "",
        "shard": shard,
        "base": plan.base,
        "head": plan.head,
        "started_at": started_at,
        "finished_at": finished_at,
        "source": f"plan {plan_path.name}",
    }
    return PlanResults(
        plan=plan,
        digest=digest,
        run_id=run_id,
        results=results,
        finished_at=finished_at,
        executions=_with_missing(executions, missing, run_id, shard, storable(plan.lane)),
        runs=_table(RUNS, [run]),
        changes=changes,
        notes=(*notes, *report.notes, *note),
    )


def _find_reports(paths: Sequence[Path]) -> list[ReportFile]:
    """Report files among `paths` and in the folders among them, by path."""
    files: list[ReportFile] = []
    for path in paths:
        found, problems = find_reports([path], has_mapping=False)
        if problems:
            raise ReportError(problems[0], hint="fastci-ml run plan.json --junit FILE")
        if not found:
            raise ReportError(f"{path}: no test report in it, expected JUnit XML or a pytest report log")
        files += found
    return sorted({file.path.resolve(): file for file in files}.values(), key=lambda file: file.path)


def _read_report(file: ReportFile, ids: JunitIds, rules: FailureRules | None) -> Report:
    if file.kind is ReportKind.JUNIT:
        return read_junit(file.path, ids, rules)
    return read_reportlog(file.path, rules)


def _digest(plan: bytes, files: Iterable[Path]) -> str:
    parts = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    return hashlib.sha256("\n".join([hashlib.sha256(plan).hexdigest(), *parts]).encode()).hexdigest()


def _check_followed(report: Report, plan: Plan, files: Sequence[Path]) -> tuple[str, ...]:
    """Refuse a run that our plugin ran without its plan; a note where it only compared."""
    words = {value for name, value in report.properties if name == FOLLOWED_PROPERTY}
    if Followed.NO in words:
        raise ReportError(
            f"{files[0]}: these tests ran without the plan, as it did not hold there (its tree is "
            f"{plan.head_tree[:12]}, its lane {plan.lane}): they are no outcome of it",
            hint=f"fastci-ml ingest {files[0]} --run-id ID --base REV --head <the commit that ran>",
        )
    if Followed.SHADOW in words:
        return ("a shadow run: the tests ran in the usual order, and the places are those of the plan",)
    return ()


def _span_us(report: Report, files: Sequence[Path]) -> tuple[int, int]:
    """Start and end of the run, microseconds since 1970; those of the files where the reports do not say."""
    written_us = max(int(file.stat().st_mtime * 1e6) for file in files)
    finished_us = report.run_finished_us if report.run_finished_us is not None else written_us
    started_us = report.run_started_us if report.run_started_us is not None else finished_us
    return min(started_us, finished_us), finished_us


def _moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def _with_missing(
    executions: pa.Table, missing: Sequence[NodeId], run_id: str, shard: str, lane: str
) -> pa.Table:
    rows = [
        {
            "run_id": run_id,
            "job": "",
            "shard": shard,
            "lane": lane,
            "node_id": node_id,
            "attempt": 0,
            "outcome": Outcome.UNKNOWN.value,
            "failure_class": FailureClass.NONE.value,
            "started_at": None,
            "finished_at": None,
            "duration_s": _NAN,
            "n_gpus": _NAN,
            "gpu_s": _NAN,
            "is_joined": True,
            "message": "",
            "failure_rule": "",
        }
        for node_id in missing
    ]
    return pa.concat_tables([executions, _table(EXECUTIONS, rows)]).unify_dictionaries().combine_chunks()


def _changes(plan: Plan, root: Path, run_id: str) -> tuple[pa.Table, tuple[str, ...]]:
    """Rows of what the plan's change touched, and a note where git cannot say."""
    from fastci_ml.sources.git.repository import Repository

    if not plan.base:
        return empty_table(CHANGES), ("the change of this run is unknown: so it was when the plan was made",)
    try:
        with Repository(root) as repository:
            files = repository.changes(plan.base, plan.head).files
    except GitError as error:
        return empty_table(CHANGES), (f"the change of this run is unknown: {error}",)
    rows = [
        {
            "run_id": run_id,
            "path": storable(file.path),
            "old_path": storable(file.old_path),
            "status": file.status.value,
            "n_added": file.n_added,
            "n_deleted": file.n_deleted,
        }
        for file in files
    ]
    return _table(CHANGES, rows), ()


def _table(frame: Frame, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    schema = SCHEMAS[frame.name]
    if not rows:
        return empty_table(frame)
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)

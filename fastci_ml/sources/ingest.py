"""From files to history: group reports by run, read them, append each run once.

A file that cannot be used costs one line; the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path

from fastci_ml.errors import ReportError, UsageError
from fastci_ml.records.changes import FileChange
from fastci_ml.records.progress import ProgressHook, silent
from fastci_ml.sources.history import HistoryStore
from fastci_ml.sources.history_tables import numbers
from fastci_ml.sources.junit import read_junit
from fastci_ml.sources.junit_ids import JunitIds
from fastci_ml.sources.report_files import ReportFile, ReportKind, find_reports
from fastci_ml.sources.reportlog import read_reportlog
from fastci_ml.sources.reports import Report, changes_table, executions_table, join_reports, runs_table
from fastci_ml.sources.run_file import RunInfo, read_run_file
from fastci_ml.sources.run_times import check_clock, span_us, timed
from fastci_ml.sources.tables import TableMapping, read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """What the command line says of the files, and the clock.

    Attributes
    ----------
    lane : str
        Environment of the executions where no run.json names one.
    run : RunInfo
        For reports without a run.json; without `run_id` each file is a run of its own.
    repository : Path or None
        Where changes between a run's base and head are read; None leaves them unknown.
    mapping : TableMapping or None
        How tables are read; None refuses them.
    collected : sequence of str
        Node ids as pytest collects them, to find JUnit's names in.
    root : Path or None
        Root of the repository whose tests ran, to find JUnit's modules in.
    now : datetime
        With its zone. Runs that end more than a day later are refused; the clock of this machine by default.
    """

    lane: str
    run: RunInfo = field(default_factory=RunInfo)
    repository: Path | None = None
    mapping: TableMapping | None = None
    collected: Sequence[str] = ()
    root: Path | None = None
    now: datetime = field(default_factory=partial(datetime.now, UTC))


@dataclass(slots=True)
class IngestReport:
    """What an ingest did.

    Attributes
    ----------
    n_files : int
        Reports found.
    n_runs, n_executions : int
        Rows added to RUNS and EXECUTIONS.
    n_duplicates : int
        Files that were in already.
    problems : list of str
        One line for each file that could not be used.
    warnings : list of str
        What was used, and how it was odd.
    """

    n_files: int = 0
    n_runs: int = 0
    n_executions: int = 0
    n_duplicates: int = 0
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def ingest_paths(
    store: HistoryStore, paths: Sequence[Path], options: IngestOptions, progress: ProgressHook = silent
) -> IngestReport:
    """Read reports and tables into the history.

    Parameters
    ----------
    store : HistoryStore
        Where to.
    paths : sequence of Path
        Files, and folders to walk. All reports of one run (run, job, shard, lane) that are given together are
        one ingest; a test that several of them hold has several attempts.
    options : IngestOptions
        What the files themselves do not say.
    progress : ProgressHook
        Called after each run.

    Returns
    -------
    IngestReport
        `problems` is not empty when a file could not be used.

    Raises
    ------
    UsageError
        If several tables without a clock are to be put in one order.
    GitError
        If changes are to come from a repository that does not have the commits.
    """
    files, problems = find_reports(paths, has_mapping=options.mapping is not None)
    result = IngestReport(n_files=len(files), problems=problems)
    if not files and not problems:
        result.problems.append(f"{', '.join(map(str, paths))}: no test report found")
    tables = [file for file in files if file.kind is ReportKind.TABLE]
    if len(tables) > 1 and options.mapping is not None and not options.mapping.time:
        raise UsageError(
            f"{len(tables)} tables without a time column have no common order",
            hint="ingest each into a history of its own: --history DIR",
        )
    ids = JunitIds(options.collected, options.root)
    groups = _group([file for file in files if file.kind is not ReportKind.TABLE], options, result)
    n_steps = len(tables) + len(groups)
    for step, table in enumerate(tables):
        progress("ingest", step, n_steps)
        _ingest_table(store, table, options, result)
    for step, (run, members) in enumerate(groups, len(tables)):
        progress("ingest", step, n_steps)
        _ingest_run(store, run, members, ids, options, result)
    progress("ingest", n_steps, n_steps)
    return result


def _group(
    files: Sequence[ReportFile], options: IngestOptions, result: IngestReport
) -> list[tuple[RunInfo, list[ReportFile]]]:
    """Runs and their reports, in the order in which the first report of each was found."""
    infos: dict[Path, RunInfo | None] = {}
    groups: dict[RunInfo, list[ReportFile]] = {}
    for file in files:
        run: RunInfo | None = options.run
        if file.run_file is not None:
            if file.run_file not in infos:
                infos[file.run_file] = _run_of(file.run_file, options, result)
            run = infos[file.run_file]
        if run is None:
            continue  # its run.json is broken: under another name the run would be one too many
        if not run.run_id:
            run = replace(run, run_id=f"{file.path.stem}-{_digest_of_file(file.path)[:12]}")
        run = replace(run, lane=run.lane or options.lane)
        groups.setdefault(run, []).append(file)
    return list(groups.items())


def _run_of(path: Path, options: IngestOptions, result: IngestReport) -> RunInfo | None:
    try:
        run = read_run_file(path)
        check_clock(path, run.run_id, max(run.started_us or 0, run.finished_us or 0), options.now)
    except ReportError as error:
        result.problems.append(f"{error}; the reports that it speaks for are left out")
        return None
    return run


def _ingest_run(
    store: HistoryStore,
    run: RunInfo,
    files: Sequence[ReportFile],
    ids: JunitIds,
    options: IngestOptions,
    result: IngestReport,
) -> None:
    if store.has(_digest(run, [file.path for file in files])):
        result.n_duplicates += len(files)
        return
    read: list[tuple[ReportFile, Report]] = []
    for file in files:
        try:
            report = (
                read_junit(file.path, ids) if file.kind is ReportKind.JUNIT else read_reportlog(file.path)
            )
            report = timed(file.path, report, run)
            check_clock(file.path, run.run_id, span_us(run, report)[1], options.now)
        except ReportError as error:
            result.problems.append(str(error))
            continue
        result.warnings += [f"{file.path}: {note}" for note in report.notes]
        read.append((file, report))
    if not read:
        return
    used = [file.path for file, _ in read]
    digest = _digest(run, used)
    whole = join_reports([report for _, report in read])
    executions = executions_table(whole, run_id=run.run_id, job=run.job, shard=run.shard, lane=run.lane)
    started_us, finished_us = span_us(run, whole)
    base, head, files_changed = _compared(run, options)
    row = {
        "run_id": run.run_id,
        "job": run.job,
        "shard": run.shard,
        "base": base,
        "head": head,
        "started_at": started_us,
        "finished_at": finished_us,
        "source": f"{read[0][0].kind} {used[0].name}" + (f" +{len(used) - 1}" if len(used) > 1 else ""),
    }
    changes = changes_table(run.run_id, files_changed)
    if store.append_tables(executions, runs_table([row]), changes, digest=digest):
        result.n_runs += 1
        result.n_executions += executions.num_rows
    else:
        result.n_duplicates += len(used)


def _compared(run: RunInfo, options: IngestOptions) -> tuple[str, str, tuple[FileChange, ...]]:
    """Base, head and changed files of a run; full shas where a repository can say what was named."""
    if run.changes is not None or options.repository is None or not run.head:
        return run.base, run.head, run.changes or ()
    # GitPython is loaded only by those who ask for it.
    from fastci_ml.sources.repository import Repository

    with Repository(options.repository) as repository:
        if not run.base:
            return "", repository.resolve(run.head), ()
        change = repository.changes(run.base, run.head)
    return change.base, change.head, change.files


def _ingest_table(
    store: HistoryStore, file: ReportFile, options: IngestOptions, result: IngestReport
) -> None:
    assert options.mapping is not None
    run = replace(options.run, lane=options.lane)
    digest = _digest(run, [file.path], str(options.mapping))
    if store.has(digest):
        result.n_duplicates += 1
        return
    try:
        executions, runs = read_table(file.path, options.mapping, job=run.job, shard=run.shard, lane=run.lane)
        # Runs of a table come in time order.
        last = runs.num_rows - 1
        finished_us = int(numbers(runs.column("finished_at"))[last])
        check_clock(file.path, runs.column("run_id")[last].as_py(), finished_us, options.now)
    except ReportError as error:
        result.problems.append(str(error))
        return
    store.append_tables(executions, runs, changes_table("", ()), digest=digest)
    result.n_runs += runs.num_rows
    result.n_executions += executions.num_rows


def _digest(run: RunInfo, paths: Sequence[Path], extra: str = "") -> str:
    """Of the content of the files and of what is said about them; names and places of files do not count."""
    content = sorted(_digest_of_file(path) for path in paths)
    return sha256(
        "\n".join(["fastci.ingest/1", repr(run), extra, *content]).encode("utf-8", "replace")
    ).hexdigest()


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()

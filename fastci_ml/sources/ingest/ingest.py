"""From files to history: group reports by run, read them, append each run once.

A file that cannot be used costs one line; the others go on. What should be there and is not is unknown, never
passed: see `expectations`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from fastci_ml.errors import ReportError, UsageError
from fastci_ml.records.progress import ProgressHook, silent
from fastci_ml.sources.failures.rules import FailureRules
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.history.tables import numbers, storable
from fastci_ml.sources.ingest.expectations import find_shortfall
from fastci_ml.sources.ingest.fingerprints import Fingerprints
from fastci_ml.sources.ingest.flaky_attempts import old_failures, settle_attempts
from fastci_ml.sources.ingest.known_runs import NO_REPORT, KnownRuns
from fastci_ml.sources.ingest.report_files import Listing, ReportFile, ReportKind, list_reports
from fastci_ml.sources.ingest.run_file import RunInfo, read_run_file
from fastci_ml.sources.ingest.run_rows import UnitRows, compared, unit_executions, unit_runs
from fastci_ml.sources.ingest.run_times import FILE_TIME_NOTE, check_clock, file_time_us, span_us
from fastci_ml.sources.ingest.run_units import Unit, gather_units
from fastci_ml.sources.ingest.unit_reports import UnitReader, UnitReports, digest_of, source_of
from fastci_ml.sources.junit.ids import JunitIds
from fastci_ml.sources.junit.reader import read_junit
from fastci_ml.sources.reportlog import read_reportlog
from fastci_ml.sources.reports import Report, changes_table
from fastci_ml.sources.tables import TableMapping, read_table

# A hostile file may put anything into the message about it.
_LONGEST_LINE = 1_000


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
    project : str
        Folder from the top of the repository that the ids of reports start at, where no run.json names one.
    is_strict : bool
        Whether anything odd makes a run unusable.
    rules : FailureRules or None
        Of failure classes; None for the shipped ones.
    now : datetime
        With its zone. Runs that end more than a day later are refused; the clock of this machine by default.
    """

    lane: str
    run: RunInfo = field(default_factory=RunInfo)
    repository: Path | None = None
    mapping: TableMapping | None = None
    collected: Sequence[str] = ()
    root: Path | None = None
    project: str = ""
    is_strict: bool = False
    rules: FailureRules | None = None
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
        Files that were in already, or that came twice.
    n_noted : int
        Reports that were used though something in them was odd.
    n_incomplete_runs : int
        Runs that lack a shard, a test that was to run, or any report.
    n_absent_shards : int
        Shards that should be there and are not.
    n_missing : int
        Tests that were to run and have no result.
    n_unjoined : int
        Results added whose test is guessed from a class name.
    problems : list of str
        One line for each file that could not be used, and each run that `is_strict` refuses.
    warnings : list of str
        What was used, and how it was odd.
    """

    n_files: int = 0
    n_runs: int = 0
    n_executions: int = 0
    n_duplicates: int = 0
    n_noted: int = 0
    n_incomplete_runs: int = 0
    n_absent_shards: int = 0
    n_missing: int = 0
    n_unjoined: int = 0
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add_problem(self, text: str) -> None:
        """Add a problem as one line, whatever the names in it hold."""
        self.problems.append(_one_line(text))

    def add_warning(self, text: str) -> None:
        """Add a warning as one line."""
        self.warnings.append(_one_line(text))


def ingest_paths(
    store: HistoryStore, paths: Sequence[Path], options: IngestOptions, progress: ProgressHook = silent
) -> IngestReport:
    """Read reports and tables into the history.

    Parameters
    ----------
    store : HistoryStore
        Where to.
    paths : sequence of Path
        Files, and folders to walk. All reports of one run (run, job, shard, lane, attempt of the CI) that are
        given together are one ingest; a test that several of them hold has several attempts.
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
        If changes are to come from a repository that does not have the commits of `options.run`; for those
        that a run.json names it is a warning.
    """
    listing = list_reports(paths, has_mapping=options.mapping is not None)
    result = IngestReport(n_files=len(listing.files))
    ingest = _Ingest(store, options, result)
    for line in listing.problems:
        result.add_problem(line)
    for line in listing.warnings:
        ingest.tell_odd(line)
    if not (listing.files or listing.problems or listing.run_files):
        result.add_problem(f"{', '.join(map(str, paths))}: no test report found")
    tables = [file for file in listing.files if file.kind is ReportKind.TABLE]
    if len(tables) > 1 and options.mapping is not None and not options.mapping.time:
        raise UsageError(
            f"{len(tables)} tables without a time column have no common order",
            hint="ingest each into a history of its own: --history DIR",
        )
    runs = ingest.gather(listing)
    n_steps = len(tables) + len(runs)
    for step, table in enumerate(tables):
        progress("ingest", step, n_steps)
        ingest.add_table(table)
    for step, run in enumerate(runs, len(tables)):
        progress("ingest", step, n_steps)
        ingest.add_run(run)
    progress("ingest", n_steps, n_steps)
    if result.n_unjoined and not options.is_strict:
        result.add_warning(_unjoined(result.n_unjoined))
    return result


class _Ingest:
    """One call of `ingest_paths`: what all of its runs share."""

    def __init__(self, store: HistoryStore, options: IngestOptions, result: IngestReport) -> None:
        self._store = store
        self._options = options
        self._result = result
        self._ids = JunitIds(options.collected, options.root)
        self._ids_of_selected: dict[tuple[str, ...], JunitIds] = {}
        self._fingerprints = Fingerprints()
        self._reader = UnitReader(
            self._read_file, store.digests().__contains__, self._fingerprints, options.now, options.rules
        )
        self._known = KnownRuns(store, ())

    def tell_odd(self, line: str) -> None:
        """Tell what is odd and belongs to no run."""
        if self._options.is_strict:
            self._result.add_problem(f"{line} (--strict)")
        else:
            self._result.add_warning(line)

    def gather(self, listing: Listing) -> list[list[Unit]]:
        """Units by run."""
        infos = {path: self._info(path) for path in listing.run_files}
        # A table has its runs in it; its run.json is not one without reports.
        for file in listing.files:
            if file.kind is ReportKind.TABLE and file.run_file is not None:
                infos.pop(file.run_file, None)
        files = [file for file in listing.files if file.kind is not ReportKind.TABLE]
        for file in files:
            if file.run_file is not None and file.run_file not in infos:
                infos[file.run_file] = self._info(file.run_file)
        options = self._options
        runs, problems = gather_units(
            files,
            infos,
            options.run,
            self._fingerprints,
            spoiled=listing.spoiled,
            lane=options.lane,
            project=options.project,
        )
        for line in problems:
            self._result.add_problem(line)
        self._known = KnownRuns(self._store, {storable(run[0].info.run_id) for run in runs})
        return runs

    def _info(self, path: Path) -> RunInfo | None:
        try:
            info = read_run_file(path)
            check_clock(
                path, info.run_id, max(info.started_us or 0, info.finished_us or 0), self._options.now
            )
        except ReportError as error:
            self._result.add_problem(f"{error}; the reports that it speaks for are left out")
            return None
        return info

    def _read_file(self, file: ReportFile, info: RunInfo) -> Report:
        rules = self._options.rules
        if file.kind is ReportKind.JUNIT:
            return read_junit(file.path, self._ids_of(info), rules)
        return read_reportlog(file.path, rules)

    def _ids_of(self, info: RunInfo) -> JunitIds:
        """Names of a unit's tests: what it was to run tells them as surely as a listing does."""
        if not info.selected:
            return self._ids
        known = self._ids_of_selected.get(info.selected)
        if known is None:
            known = JunitIds((*self._options.collected, *info.selected), self._options.root)
            # Units of one job mostly share a list; more than the last one would only take room.
            self._ids_of_selected = {info.selected: known}
        return known

    def add_run(self, units: Sequence[Unit]) -> None:
        """Add one run, or what can be used of it; under `is_strict` all of it or nothing."""
        result = self._result
        found = self._reader.read(units)
        shortfall = find_shortfall(found, self._known)
        settle_attempts(found, self._known)
        result.n_duplicates += sum(one.n_copies + (len(one.used) if one.is_known else 0) for one in found)
        result.n_incomplete_runs += shortfall.is_incomplete
        result.n_absent_shards += shortfall.n_absent_shards
        result.n_missing += shortfall.n_missing
        rows = [made for one in found if not one.is_known and (made := self._rows(one)) is not None]
        n_unjoined = sum(made.n_unjoined for made in rows)
        warnings = [line for one in found for line in one.warnings] + shortfall.warnings
        problems = [line for one in found for line in one.problems]
        if self._options.is_strict:
            run = f"run {units[0].info.run_id}"
            warnings += [f"{run}: {_unjoined(n_unjoined)}"] if n_unjoined else []
            problems += [f"{line} (--strict: {run} is left out)" for line in warnings]
            warnings = []
        for line in problems:
            result.add_problem(line)
        for line in warnings:
            result.add_warning(line)
        if self._options.is_strict and (problems or any(unit.is_spoiled for unit in units)):
            return
        result.n_noted += sum(one.n_noted for one in found)
        result.n_unjoined += n_unjoined
        for made in rows:
            if self._store.append_tables(made.executions, made.runs, made.changes, digest=made.digest):
                result.n_runs += 1
                result.n_executions += made.executions.num_rows - made.n_rewritten
            else:
                result.n_duplicates += made.n_files

    def _rows(self, one: UnitReports) -> UnitRows | None:
        """Rows of one unit; None where there is nothing to tell. Adds to its problems and warnings."""
        info = one.unit.info
        key = storable(info.run_id), storable(info.job), storable(info.shard)
        known = self._known.run(*key)
        if (
            one.report is None
            and not one.gaps
            and (known or not one.unit.run_files or one.unit.is_described_only)
        ):
            return None
        try:
            span = span_us(info, one.report) if one.report is not None else self._span_without_report(one)
            rewritten = old_failures(one, self._known)
            executions = unit_executions(info, one.report, one.gaps, rewritten)
        except ReportError as error:
            one.problems.append(str(error))
            return None
        repository = self._options.repository
        texts, files, note = compared(info, repository, is_named=not one.unit.run_files)
        if note:
            one.warnings.append(f"{info.describe()}: {note}")
        source = source_of(one.used) if one.used else NO_REPORT
        runs, row = unit_runs(info, span, texts, source, known)
        self._known.add(key, row)
        return UnitRows(
            executions=executions,
            runs=runs,
            changes=changes_table(info.run_id, files),
            digest=one.digest if one.used else digest_of(info, one.gaps, NO_REPORT),
            n_files=len(one.used),
            n_rewritten=0 if rewritten is None else rewritten.num_rows,
            n_unjoined=0 if one.report is None else int((~one.report.is_joined).sum()),
        )

    def _span_without_report(self, one: UnitReports) -> tuple[int, int]:
        """Start and finish of a run that left no report."""
        info, now = one.unit.info, self._options.now
        if info.started_us is not None and info.finished_us is not None:
            return info.started_us, info.finished_us
        if one.unit.run_files:
            finished_us = file_time_us(one.unit.run_files[0])
            check_clock(one.unit.run_files[0], info.run_id, finished_us, now)
            one.warnings.append(f"{one.unit.run_files[0]}: {FILE_TIME_NOTE}")
        else:
            finished_us = int(now.timestamp() * 1e6)
        finished_us = finished_us if info.finished_us is None else info.finished_us
        started_us = finished_us if info.started_us is None else info.started_us
        return min(started_us, finished_us), finished_us

    def add_table(self, file: ReportFile) -> None:
        """Add the runs of one table."""
        options, result = self._options, self._result
        assert options.mapping is not None
        run = replace(options.run, lane=options.lane)
        try:
            digest = digest_of(run, [self._fingerprints.digest(file.path)], str(options.mapping))
            if self._store.has(digest):
                result.n_duplicates += 1
                return
            executions, runs = read_table(
                file.path, options.mapping, job=run.job, shard=run.shard, lane=run.lane
            )
            self._fingerprints.check_unchanged(file.path)
            # Runs of a table come in time order.
            last = runs.num_rows - 1
            finished_us = int(numbers(runs.column("finished_at"))[last])
            check_clock(file.path, runs.column("run_id")[last].as_py(), finished_us, options.now)
        except ReportError as error:
            result.add_problem(str(error))
            return
        self._store.append_tables(executions, runs, changes_table("", ()), digest=digest)
        result.n_runs += runs.num_rows
        result.n_executions += executions.num_rows


def _unjoined(n_results: int) -> str:
    return (
        f"{n_results:,} results belong to tests whose names are guessed from class names: "
        "--collected FILE, with the output of `pytest --collect-only -q`, makes them certain"
    )


def _one_line(text: str) -> str:
    r"""Text as one line of bounded length: names of files may hold line ends, and messages whole files.

    Examples
    --------
    >>> _one_line("a\nb.xml: empty")
    'a\\nb.xml: empty'
    """
    if len(text) > _LONGEST_LINE:
        text = text[: _LONGEST_LINE - 4] + " ..."
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in storable(text)
    )

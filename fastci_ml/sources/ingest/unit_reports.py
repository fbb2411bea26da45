"""Reading the reports of one run: each report once, under the shard that wrote it, with all that was odd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import numpy as np

from fastci_ml.errors import ReportError
from fastci_ml.records.ids import NodeId
from fastci_ml.records.outcomes import Outcome
from fastci_ml.sources.failures.rank_reports import with_rank_logs
from fastci_ml.sources.failures.rules import FailureRules
from fastci_ml.sources.failures.run_logs import logs_by_test
from fastci_ml.sources.ingest.fingerprints import Fingerprints
from fastci_ml.sources.ingest.report_files import ReportFile
from fastci_ml.sources.ingest.run_file import RunInfo
from fastci_ml.sources.ingest.run_times import check_clock, span_us, timed
from fastci_ml.sources.ingest.run_units import Unit, unit_text
from fastci_ml.sources.projects import prefix_report
from fastci_ml.sources.reports import OUTCOME_CODE, Report, join_reports

_UNKNOWN = OUTCOME_CODE[Outcome.UNKNOWN]


@dataclass(slots=True)
class UnitReports:
    """What one unit left.

    Attributes
    ----------
    unit : Unit
        Whose reports these are.
    used : list of ReportFile
        Reports that are part of the unit; of a unit that is in the history already, all of them unread.
    report : Report or None
        All of them together, timed, with ids from the top of the repository; None where none could be read
        or none was.
    digest : str
        Of what `used` hold and what is said of the unit.
    is_known : bool
        The history has it.
    n_copies : int
        Reports of the unit that are the same as others of it.
    gaps : list of NodeId
        Tests that get a row without a result under this unit.
    old_failures : frozenset of str
        Tests that failed in other attempts of the CI, in the history, and pass in this one.
    problems, warnings : list of str
        One line each.
    """

    unit: Unit
    used: list[ReportFile] = field(default_factory=list)
    report: Report | None = None
    digest: str = ""
    is_known: bool = False
    n_copies: int = 0
    n_noted: int = 0
    gaps: list[NodeId] = field(default_factory=list)
    old_failures: frozenset[str] = frozenset()
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_present(self) -> bool:
        """Whether the unit left a report, be it one without tests."""
        return self.is_known or self.report is not None

    def tests(self, *, with_result: bool) -> set[str]:
        """Ids in what was read: all, or those with a result."""
        if self.report is None:
            return set()
        places = np.from_dlpack(self.report.node_ids.indices)
        if with_result:
            places = places[self.report.outcomes != _UNKNOWN]
        names = self.report.node_ids.dictionary.to_pylist()
        return {names[place] for place in np.unique(places).tolist()}


class UnitReader:
    """Reads the units of one run.

    Parameters
    ----------
    read : callable
        Reader of one file of one unit, which raises `ReportError`.
    has_digest : callable
        Whether the history knows a digest.
    fingerprints : Fingerprints
        Of the files.
    now : datetime
        The clock.
    rules : FailureRules, optional
        Of failure classes; the shipped ones by default.
    """

    def __init__(
        self,
        read: Callable[[ReportFile, RunInfo], Report],
        has_digest: Callable[[str], bool],
        fingerprints: Fingerprints,
        now: datetime,
        rules: FailureRules | None = None,
    ) -> None:
        self._read_file = read
        self._has_digest = has_digest
        self._fingerprints = fingerprints
        self._now = now
        self._rules = rules

    def read(self, units: Sequence[Unit]) -> list[UnitReports]:
        """Read the units of one run, in their order; what is in the history already is not read again."""
        found = [self._claim(unit) for unit in units]
        self._settle_copies(found)
        for one in found:
            self._read_unit(one)
        return found

    def _claim(self, unit: Unit) -> UnitReports:
        """Reports of a unit that can be opened, each content once."""
        found = UnitReports(unit)
        contents = set()
        for file in unit.files:
            try:
                content = self._fingerprints.digest(file.path)
            except ReportError as error:
                found.problems.append(str(error))
                continue
            if content in contents:
                found.n_copies += 1
            else:
                contents.add(content)
                found.used.append(file)
        return found

    def _settle_copies(self, found: Sequence[UnitReports]) -> None:
        """Leave a report to the first of the shards or attempts that have it.

        Shards that write to one place leave the report of one of them several times, and a repeated job may
        find the report of the attempt before. Two shards without tests write the same, and rightly.
        """
        first: dict[tuple[str, str, str], tuple[UnitReports, ReportFile]] = {}
        for one in found:
            for file in list(one.used):
                key = (*one.unit.group, self._fingerprints.digest(file.path))
                owner, original = first.setdefault(key, (one, file))
                if _is_same_place(owner.unit.info, one.unit.info) or not self._has_tests(original, owner):
                    continue
                one.used.remove(file)
                one.warnings.append(
                    f"{file.path}: the same bytes as {original.path} of {owner.unit.info.describe()}, "
                    f"so it is no report of {one.unit.info.describe()}: one has overwritten the other"
                )

    def _has_tests(self, file: ReportFile, owner: UnitReports) -> bool:
        try:
            return len(self._read_file(file, owner.unit.info)) > 0
        except ReportError:
            return False  # each of the copies gets its line when it is read

    def _read_unit(self, found: UnitReports) -> None:
        info = found.unit.info
        if found.used:
            found.digest = self._digest(info, found.used)
            found.is_known = self._has_digest(found.digest)
            if found.is_known:
                return
        found.warnings += [f"{info.describe()}: {note}" for note in info.notes]
        reports: list[Report] = []
        used: list[ReportFile] = []
        for file in found.used:
            try:
                report = prefix_report(self._read_file(file, info), info.project or "")
                report = timed(file.path, report, info)
                self._fingerprints.check_unchanged(file.path)
                check_clock(file.path, info.run_id, span_us(info, report)[1], self._now)
            except ReportError as error:
                found.problems.append(str(error))
                continue
            found.n_noted += bool(report.notes)
            found.warnings += [f"{file.path}: {note}" for note in report.notes]
            reports.append(report)
            used.append(file)
        found.used = used
        if reports:
            whole = join_reports(reports)
            found.report = with_rank_logs(whole, logs_by_test(info.logs, info.project or ""), self._rules)
            found.warnings += [f"{info.describe()}: {n}" for n in found.report.notes[len(whole.notes) :]]
        found.digest = self._digest(info, used)

    def _digest(self, info: RunInfo, files: Sequence[ReportFile]) -> str:
        return digest_of(info, [self._fingerprints.digest(file.path) for file in files])


def digest_of(info: RunInfo, contents: Sequence[str], extra: str = "") -> str:
    """Of the content of files and of what is said about them; names and places of files do not count."""
    text = "\n".join(["fastci.ingest/1", unit_text(info), extra, *sorted(contents)])
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def source_of(files: Sequence[ReportFile]) -> str:
    """Reader and file that rows came from, for RUNS."""
    return f"{files[0].kind} {Path(files[0].path).name}" + (f" +{len(files) - 1}" if len(files) > 1 else "")


def _is_same_place(one: RunInfo, other: RunInfo) -> bool:
    return (one.shard, one.attempt or 1) == (other.shard, other.attempt or 1)

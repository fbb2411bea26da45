"""When a run was: what its run.json, its reports and, failing both, the ages of its files say."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from fastci_ml.errors import ReportError
from fastci_ml.sources.ingest.run_file import RunInfo
from fastci_ml.sources.reports import Report, total_us

# Clocks of two machines differ, and times without a zone are read as UTC.
_AHEAD = timedelta(days=1)
FILE_TIME_NOTE = "no time of the run in it, so the time of the file is used"


def timed(path: Path, report: Report, run: RunInfo) -> Report:
    """The report with a start and a finish; where neither it nor the run says, the file's age does.

    Parameters
    ----------
    path : Path
        Of the report.
    report : Report
        Without `run_started_us` or `run_finished_us`, the tests' durations lie between the two.
    run : RunInfo
        Which the report belongs to.

    Returns
    -------
    Report
        With both times; with a note where they come from the file.

    Raises
    ------
    ReportError
        If the file has gone.
    """
    tests_us = total_us(report.durations_s)
    started_us, finished_us, notes = report.run_started_us, report.run_finished_us, report.notes
    if started_us is None and finished_us is None:
        finished_us = file_time_us(path)
        if run.started_us is None or run.finished_us is None:
            notes = (*notes, FILE_TIME_NOTE)
    if started_us is None:
        assert finished_us is not None
        started_us = finished_us - tests_us
    if finished_us is None:
        finished_us = started_us + tests_us
    return replace(report, run_started_us=started_us, run_finished_us=finished_us, notes=notes)


def file_time_us(path: Path) -> int:
    """When a file was written, microseconds since 1970; ReportError if it has gone."""
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError as error:
        raise ReportError(f"{path}: went away while it was read: {error}") from error


def span_us(run: RunInfo, report: Report) -> tuple[int, int]:
    """Start and finish of a run, microseconds since 1970, by its run.json before its `timed` report."""
    started_us = report.run_started_us if run.started_us is None else run.started_us
    finished_us = report.run_finished_us if run.finished_us is None else run.finished_us
    assert started_us is not None
    assert finished_us is not None
    return started_us, max(started_us, finished_us)


def check_clock(path: Path, run_id: str, finished_us: int, now: datetime) -> None:
    """Refuse a run that ends more than a day after `now`.

    Readers that go on from the newest run, as `rank` does, would never see those that come after it.

    Raises
    ------
    ReportError
        Names the file, the run and the time.
    """
    if finished_us > (now + _AHEAD).timestamp() * 1e6:
        # As numpy writes it: a wrong clock may be beyond the years that datetime knows.
        moment = np.datetime64(finished_us, "us").astype("datetime64[s]")
        raise ReportError(
            f"{path}: run {run_id} ends at {moment}Z, more than a day from now: by such a clock it would "
            "hide the runs that come after it"
        )

"""pytest-reportlog's JSON lines: one line a phase, folded into one attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fastci_ml.errors import ReportError
from fastci_ml.records.outcomes import LONGEST_S, FailureClass, Outcome
from fastci_ml.sources.failure_rules import FailureRules
from fastci_ml.sources.failures import classify, first_line
from fastci_ml.sources.history_tables import storable
from fastci_ml.sources.reports import CLASS_CODE, OUTCOME_CODE, Report, known_durations_s

_UNKNOWN_US = np.iinfo(np.int64).min
_MESSAGE_LIMIT = 4_000
_LAST_S = 253_402_300_799  # end of the year 9999, where datetime ends


@dataclass(slots=True)
class _Attempt:
    """One try of one test; phases are added as their lines come."""

    node_id: str
    outcome: Outcome = Outcome.UNKNOWN
    failure_class: FailureClass = FailureClass.NONE
    message: str = ""
    rule: str = ""
    duration_s: float = 0.0
    starts_s: list[float] = field(default_factory=list)
    stops_s: list[float] = field(default_factory=list)
    is_over: bool = False

    def add(self, line: dict[str, Any], rules: FailureRules | None) -> None:
        phase, word = line.get("when"), line.get("outcome")
        outcome = _outcome(phase, word, "wasxfail" in line)
        # A failed call is worse than what teardown says after it, and a passed teardown says nothing.
        if outcome.is_failure and not self.outcome.is_failure:
            message = _message(line.get("longrepr"))
            self.outcome = outcome
            found = classify(outcome, str(phase), message, rules=rules)
            self.failure_class, self.rule = found.failure_class, found.rule
            self.message = first_line(message)
        elif not self.outcome.is_failure and (phase == "call" or outcome is Outcome.SKIPPED):
            self.outcome = outcome
        self.duration_s += _number(line.get("duration"), LONGEST_S)
        self.starts_s.append(_number(line.get("start"), _LAST_S))
        self.stops_s.append(_number(line.get("stop"), _LAST_S))
        self.is_over = phase == "teardown"


def read_reportlog(path: Path, rules: FailureRules | None = None) -> Report:
    """Read one report log.

    Parameters
    ----------
    path : Path
        As ``pytest --report-log`` writes it.
    rules : FailureRules, optional
        Of failure classes; the shipped ones by default.

    Returns
    -------
    Report
        Attempts by their first line. A test whose call has no line (the process died in it) is `UNKNOWN`. A
        torn last line, as a killed process leaves it, is left out and noted.

    Raises
    ------
    ReportError
        If the file cannot be read or a line before the last is no JSON object.
    """
    attempts: list[_Attempt] = []
    current: dict[str, _Attempt] = {}
    n_torn = 0
    is_finished = False
    for line, is_torn in _lines(path):
        n_torn += is_torn
        kind = line.get("$report_type")
        is_finished |= kind == "SessionFinish"
        node_id = line.get("nodeid")
        if not isinstance(node_id, str):
            continue
        node_id = storable(node_id)
        if kind == "CollectReport" and line.get("outcome") == "failed":
            attempt = _Attempt(node_id or "unnamed")
            attempt.add({**line, "when": "collect", "duration": float("nan")}, rules)
            attempts.append(attempt)
        elif kind == "TestReport":
            known = current.get(node_id)
            # A set-up line begins a new try, whether or not the one before it came to its end.
            if known is None or known.is_over or line.get("when") == "setup":
                known = current[node_id] = _Attempt(node_id)
                attempts.append(known)
            known.add(line, rules)
    notes = []
    if n_torn:
        notes.append("the last line is torn and was left out")
    if not is_finished:
        notes.append("the session did not finish: tests may be missing")
    return _report(attempts, tuple(notes))


def _lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Objects of the file, each with 1 if it stands for a torn last line, which is empty then."""
    try:
        with path.open("rb") as file:
            torn: tuple[int, Exception | str] | None = None
            for number, raw in enumerate(file, 1):
                if torn is not None:
                    raise ReportError(f"{path}: line {torn[0]} is no JSON object: {torn[1]}")
                if not raw.strip():
                    continue
                try:
                    line = json.loads(raw)
                except (ValueError, RecursionError) as error:
                    torn = number, error
                    continue
                if isinstance(line, dict):
                    yield line, 0
                else:
                    torn = number, type(line).__name__
            if torn is not None:
                if torn[0] == 1:
                    raise ReportError(f"{path}: line 1 is no JSON object: {torn[1]}")
                yield {}, 1
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error}") from error


def _outcome(phase: object, word: object, is_expected: bool) -> Outcome:
    if word in ("failed", "rerun"):  # a rerun is a failed try that another follows
        return Outcome.FAILED if phase == "call" else Outcome.ERROR
    if word == "skipped":
        return Outcome.XFAILED if is_expected else Outcome.SKIPPED
    if word == "passed":
        return Outcome.XPASSED if is_expected else Outcome.PASSED
    return Outcome.UNKNOWN


def _message(longrepr: object) -> str:
    if isinstance(longrepr, dict):
        crash = longrepr.get("reprcrash")
        text = crash.get("message") if isinstance(crash, dict) else longrepr.get("longrepr")
    else:
        text = longrepr
    return storable(str(text or "")[:_MESSAGE_LIMIT])


def _number(value: object, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        return float("nan")
    return float(value)


def _report(attempts: list[_Attempt], notes: tuple[str, ...]) -> Report:
    started_us = _bounds_us([attempt.starts_s for attempt in attempts], np.fmin)
    finished_us = _bounds_us([attempt.stops_s for attempt in attempts], np.fmax)
    starts, finishes = started_us[started_us != _UNKNOWN_US], finished_us[finished_us != _UNKNOWN_US]
    return Report(
        node_ids=pa.array([a.node_id for a in attempts], pa.string()).dictionary_encode(),
        outcomes=np.array([OUTCOME_CODE[a.outcome] for a in attempts], np.int8),
        classes=np.array([CLASS_CODE[a.failure_class] for a in attempts], np.int8),
        durations_s=known_durations_s(np.array([a.duration_s for a in attempts], np.float64)),
        is_joined=np.ones(len(attempts), bool),
        messages={row: a.message for row, a in enumerate(attempts) if a.message},
        rules={row: a.rule for row, a in enumerate(attempts) if a.rule},
        started_us=started_us,
        finished_us=finished_us,
        run_started_us=int(starts.min()) if len(starts) else None,
        run_finished_us=int(finishes.max()) if len(finishes) else None,
        notes=notes,
    )


def _bounds_us(times_s: list[list[float]], bound: np.ufunc) -> np.ndarray:
    seconds = np.array([bound.reduce(row) if row else np.nan for row in times_s], np.float64)
    known = np.isfinite(seconds)
    return np.where(known, np.round(np.where(known, seconds, 0) * 1e6), 0).astype(np.int64) + np.where(
        known, 0, _UNKNOWN_US
    )

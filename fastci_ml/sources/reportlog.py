"""pytest-reportlog's JSON lines: one line a phase, folded into one attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fastci_ml.errors import ReportError
from fastci_ml.records.outcomes import LONGEST_S, FailureClass, Outcome
from fastci_ml.sources.failures.classify import classify, first_line
from fastci_ml.sources.failures.rules import FailureRules
from fastci_ml.sources.history.tables import storable
from fastci_ml.sources.json_lines import JsonLine, JsonLines, Keep
from fastci_ml.sources.reports import CLASS_CODE, OUTCOME_CODE, Report, known_durations_s

_UNKNOWN_US = np.iinfo(np.int64).min
_MESSAGE_LIMIT = 4_000
_NAN = float("nan")
_LAST_S = 253_402_300_799  # end of the year 9999, where datetime ends
# Of the objects in a long line, only where an exception was raised is worth its memory.
_KEEP: Keep = {"longrepr": {"reprcrash": {}}}
# As xdist reports a test whose worker died.
_DIED = "???"
# Of pytest: the tests were interrupted, or pytest itself failed.
_CUT_OFF = {2: "was interrupted", 3: "ended with an internal error"}


@dataclass(slots=True)
class _Attempt:
    """One try of one test; phases are added as their lines come."""

    node_id: str
    outcome: Outcome = Outcome.UNKNOWN
    failure_class: FailureClass = FailureClass.NONE
    message: str = ""
    rule: str = ""
    duration_s: float = 0.0
    started_s: float = _NAN
    stopped_s: float = _NAN
    is_over: bool = False
    # What tells a line that came twice from another try: a phase begins once.
    phases: list[tuple[object, ...]] = field(default_factory=list)

    def add(self, line: dict[str, Any], rules: FailureRules | None) -> None:
        phase = line.get("when")
        outcome = _outcome(phase, line.get("outcome"), "wasxfail" in line)
        # A failed call is worse than what teardown says after it, and a passed teardown says nothing.
        if outcome.is_failure and not self.outcome.is_failure:
            self.fail(outcome, line, rules)
        elif not self.outcome.is_failure and (phase == "call" or outcome is Outcome.SKIPPED):
            self.outcome = outcome
        # When a worker died it could not tell how long that took: xdist says 0.
        self.duration_s += _NAN if phase == _DIED else _number(line.get("duration"), LONGEST_S)
        self.started_s = float(np.fmin(self.started_s, _number(line.get("start"), _LAST_S)))
        self.stopped_s = float(np.fmax(self.stopped_s, _number(line.get("stop"), _LAST_S)))
        self.is_over = phase in ("teardown", _DIED)

    def fail(self, outcome: Outcome, line: dict[str, Any], rules: FailureRules | None) -> None:
        message = _message(line.get("longrepr"))
        phase = "" if line.get("when") == _DIED else str(line.get("when"))
        found = classify(outcome, phase, message, rules=rules)
        self.outcome, self.failure_class, self.rule = outcome, found.failure_class, found.rule
        self.message = first_line(message)


class _Log:
    """Folds the lines of a log into attempts."""

    def __init__(self, rules: FailureRules | None) -> None:
        self._rules = rules
        self.attempts: list[_Attempt] = []
        # By test and worker: with `--dist=each` several workers are in one test at a time.
        self._tries: dict[tuple[str, str], list[_Attempt]] = {}
        # Workers tell of the subtests that failed before they tell of the test.
        self._subtests: dict[tuple[str, str], dict[str, Any]] = {}
        self._broken: set[tuple[str, str]] = set()
        self.n_twice = 0
        self.n_open_sessions = 0
        self.n_ended_sessions = 0
        self.endings: list[str] = []

    def add(self, line: dict[str, Any]) -> None:
        kind = line.get("$report_type", line.get("_report_type"))
        if kind == "SessionStart":
            self.n_open_sessions += 1
        elif kind == "SessionFinish":
            self.n_ended_sessions += 1
            status = line.get("exitstatus")
            if isinstance(status, int) and status in _CUT_OFF:
                self.endings.append(_CUT_OFF[status])
        node_id = line.get("nodeid")
        if not isinstance(node_id, str):
            return
        node_id = storable(node_id)
        worker = line.get("node", line.get("worker_id"))
        key = node_id, worker if isinstance(worker, str) else ""
        if kind == "CollectReport" and line.get("outcome") == "failed":
            self._add_broken(node_id, line)
        elif kind == "SubTestReport":
            self._add_subtest(key, line)
        elif kind == "TestReport":
            self._add_phase(key, line)

    def finish(self) -> None:
        """Tests whose process died after a subtest had failed."""
        for key, line in self._subtests.items():
            attempt = _Attempt(key[0])
            attempt.fail(Outcome.FAILED, line, self._rules)
            attempt.duration_s = _NAN
            self.attempts.append(attempt)

    def _add_broken(self, node_id: str, line: dict[str, Any]) -> None:
        attempt = _Attempt(node_id or "unnamed")
        attempt.add({**line, "when": "collect", "duration": _NAN}, self._rules)
        # Every worker collects, and every one tells.
        if (attempt.node_id, attempt.message) not in self._broken:
            self._broken.add((attempt.node_id, attempt.message))
            self.attempts.append(attempt)

    def _add_phase(self, key: tuple[str, str], line: dict[str, Any]) -> None:
        tries = self._tries.setdefault(key, [])
        phase = line.get("when"), line.get("start"), line.get("stop"), line.get("outcome")
        if isinstance(phase[1], float) and any(phase in one.phases for one in tries):
            self.n_twice += 1
            return
        # A set-up line begins a new try, whether or not the one before it came to its end.
        if not tries or tries[-1].is_over or phase[0] == "setup":
            tries.append(_Attempt(key[0]))
            self.attempts.append(tries[-1])
            failed = self._subtests.pop(key, None)
            if failed is not None:
                tries[-1].fail(Outcome.FAILED, failed, self._rules)
        tries[-1].phases.append(phase)
        tries[-1].add(line, self._rules)

    def _add_subtest(self, key: tuple[str, str], line: dict[str, Any]) -> None:
        if line.get("outcome") not in ("failed", "rerun"):
            return
        tries = self._tries.get(key)
        if tries and not tries[-1].is_over:
            if not tries[-1].outcome.is_failure:
                tries[-1].fail(Outcome.FAILED, line, self._rules)
        else:
            self._subtests.setdefault(key, line)


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
        torn last line, as a killed process leaves it, is left out and noted; so is a line that came twice.

    Raises
    ------
    ReportError
        If the file cannot be read or a line before the last is no JSON object.
    """
    log = _Log(rules)
    lines = JsonLines(path, _KEEP)
    torn: JsonLine | None = None
    for line in lines:
        if torn is not None:
            raise ReportError(f"{path}: line {torn.number} is no JSON object: {torn.error}")
        if line.value is None:
            torn = line
        else:
            log.add(line.value)
    if torn is not None and torn.number == 1:
        raise ReportError(f"{path}: line 1 is no JSON object: {torn.error}")
    log.finish()
    return _report(log.attempts, tuple(_notes(log, lines, torn)))


def _notes(log: _Log, lines: JsonLines, torn: JsonLine | None) -> list[str]:
    notes = []
    if lines.encoding != "utf-8":
        notes.append(f"in {lines.encoding.upper()}, expected UTF-8")
    if lines.n_undecodable:
        notes.append(f"{lines.n_undecodable} lines hold bytes that are not UTF-8, which were spelled out")
    if lines.n_control:
        notes.append(f"{lines.n_control} lines hold control characters that JSON forbids")
    if torn is not None:
        notes.append("the last line is torn and was left out")
    if log.n_twice:
        notes.append(f"{log.n_twice} lines came twice and were left out the second time")
    if log.n_ended_sessions < max(1, log.n_open_sessions):
        notes.append("the session did not finish: tests may be missing")
    notes += [f"the session {ending}: tests may be missing" for ending in log.endings]
    return notes


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
    started_us = _microseconds([attempt.started_s for attempt in attempts])
    finished_us = _microseconds([attempt.stopped_s for attempt in attempts])
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


def _microseconds(times_s: list[float]) -> np.ndarray:
    seconds = np.array(times_s, np.float64)
    known = np.isfinite(seconds)
    return np.where(known, np.round(np.where(known, seconds, 0) * 1e6), _UNKNOWN_US).astype(np.int64)

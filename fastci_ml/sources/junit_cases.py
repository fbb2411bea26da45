"""From the cases of a JUnit file to attempts: what a case and its repetitions say about how a test ended.

Almost every case has no child element and an id of its own; those never meet a Python loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.failure_rules import FailureRules
from fastci_ml.sources.failures import classify, first_line, phase_of
from fastci_ml.sources.history_tables import indices
from fastci_ml.sources.reports import CLASS_CODE, OUTCOME_CODE, Report, known_durations_s

_PASSED, _FAILED = OUTCOME_CODE[Outcome.PASSED], OUTCOME_CODE[Outcome.FAILED]
_UNKNOWN = OUTCOME_CODE[Outcome.UNKNOWN]
# Worst first: a case may hold several results, and a failed call says more than a failed teardown.
_RESULTS = ("failure", "error", "skipped")
# Surefire: tries before the one that passed, and tries after the one that failed.
_EARLIER, _LATER = ("flakyFailure", "flakyError"), ("rerunFailure", "rerunError")
RESULT_TAGS = frozenset((*_RESULTS, *_EARLIER, *_LATER))


@dataclass(frozen=True, slots=True)
class CaseEvent:
    """A child element of a case that tells how it ended: its tag, two attributes, and the failure's text."""

    tag: str
    type: str
    message: str


@dataclass(slots=True)
class _Try:
    """How one attempt ended, for the cases that say more than nothing."""

    outcome: Outcome
    failure_class: FailureClass
    phase: str
    message: str
    rule: str = ""


def attempts_of_cases(
    node_ids: pa.Array,
    is_joined: np.ndarray,
    durations_s: np.ndarray,
    events: Mapping[int, Sequence[CaseEvent]],
    rules: FailureRules | None = None,
) -> Report:
    """Attempts of the cases of one file, in the order of the file.

    Parameters
    ----------
    node_ids : pyarrow.DictionaryArray of str, shape (n_cases,)
    is_joined : bool array, shape (n_cases,)
    durations_s : float64 array, shape (n_cases,)
        NaN when unknown.
    events : mapping of int to sequence of CaseEvent
        By case; a case without events has no child that tells a result.
    rules : FailureRules, optional
        Of failure classes; the shipped ones by default.

    Returns
    -------
    Report
        A failure and the teardown error that follows it are one attempt. A case without events that another
        try of the same test follows is `UNKNOWN`: rerun plugins write failed tries so.
    """
    n_cases = len(node_ids)
    tries = {row: _tries(found, rules) for row, found in events.items()}
    n_tries = np.ones(n_cases, np.int64)
    for row, found in tries.items():
        n_tries[row] = len(found)
    starts = np.cumsum(n_tries) - n_tries
    source = np.repeat(np.arange(n_cases), n_tries)
    durations_s = durations_s[source]
    outcomes = np.full(len(source), _PASSED, np.int8)
    classes = np.full(len(source), CLASS_CODE[FailureClass.NONE], np.int8)
    messages: dict[int, str] = {}
    rule_ids: dict[int, str] = {}
    is_teardown = np.zeros(len(source), bool)
    for row, found in tries.items():
        for place, one in enumerate(found, int(starts[row])):
            outcomes[place] = OUTCOME_CODE[one.outcome]
            classes[place] = CLASS_CODE[one.failure_class]
            is_teardown[place] = one.phase == "teardown"
            if one.message:
                messages[place] = one.message
            if one.rule:
                rule_ids[place] = one.rule
        if len(found) > 1:
            durations_s[starts[row] : starts[row] + len(found)] = np.nan  # the time is that of all tries
    if len(source) != n_cases:
        node_ids, is_joined = node_ids.take(indices(source)), is_joined[source]
    has_event = np.isin(source, np.fromiter(events, np.int64, len(events)))
    keep = _fold_repeated(node_ids, outcomes, durations_s, is_teardown, has_event)
    if not keep.all():
        kept = np.flatnonzero(keep)
        node_ids, is_joined = node_ids.take(indices(kept)), is_joined[kept]
        outcomes, classes, durations_s = outcomes[kept], classes[kept], durations_s[kept]
        new_place = np.cumsum(keep) - 1
        messages = {int(new_place[row]): text for row, text in messages.items() if keep[row]}
        rule_ids = {int(new_place[row]): name for row, name in rule_ids.items() if keep[row]}
    return Report(
        node_ids=node_ids,
        outcomes=outcomes,
        classes=classes,
        durations_s=known_durations_s(durations_s),  # a teardown may have been added
        is_joined=is_joined,
        messages=messages,
        rules=rule_ids,
    )


def _tries(events: Sequence[CaseEvent], rules: FailureRules | None) -> list[_Try]:
    """Attempts that one case stands for, in order."""
    earlier = [_try(event, rules) for event in events if event.tag in _EARLIER]
    later = [_try(event, rules) for event in events if event.tag in _LATER]
    results = sorted((e for e in events if e.tag in _RESULTS), key=lambda e: _RESULTS.index(e.tag))
    result = _try(results[0], rules) if results else _Try(Outcome.PASSED, FailureClass.NONE, "", "")
    return [*earlier, result, *later]


def _try(event: CaseEvent, rules: FailureRules | None) -> _Try:
    if event.tag == "skipped":
        if event.type == "pytest.xfail":
            outcome = Outcome.XFAILED
        elif event.message == "xfail-marked test passes unexpectedly":
            outcome = Outcome.XPASSED
        else:
            outcome = Outcome.SKIPPED
        return _Try(outcome, FailureClass.NONE, "", "")
    outcome = Outcome.FAILED if event.tag.lower().endswith("failure") else Outcome.ERROR
    phase, message = phase_of(event.message)
    found = classify(outcome, phase, message, kind=event.type, rules=rules)
    return _Try(outcome, found.failure_class, phase, first_line(message or event.type), found.rule)


def _fold_repeated(
    node_ids: pa.Array,
    outcomes: np.ndarray,
    durations_s: np.ndarray,
    is_teardown: np.ndarray,
    has_event: np.ndarray,
) -> np.ndarray:
    """Settle the tests that come several times, in place; returns which rows stay."""
    keep = np.ones(len(node_ids), bool)
    if len(node_ids.dictionary) == len(node_ids):
        return keep
    tests = np.from_dlpack(node_ids.indices)
    repeated = np.flatnonzero(np.bincount(tests)[tests] > 1)
    last: dict[int, int] = {}
    for row in repeated.tolist():
        before = last.get(tests[row])
        if before is not None and is_teardown[row] and outcomes[before] == _FAILED:
            keep[row] = False
            durations_s[before] += np.nan_to_num(durations_s[row])
            continue
        if before is not None and not has_event[before]:
            outcomes[before] = _UNKNOWN
        last[tests[row]] = row
    return keep

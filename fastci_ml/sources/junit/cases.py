"""From the cases of a JUnit file to attempts: what a case and its repetitions say about how a test ended.

Almost every case has no child element and an id of its own; those never meet a Python loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.history.tables import indices
from fastci_ml.sources.junit.repeats import settle_repeats
from fastci_ml.sources.junit.results import CaseResult
from fastci_ml.sources.junit.suites import Suite, missing_notes
from fastci_ml.sources.reports import CLASS_CODE, OUTCOME_CODE, Report, known_durations_s

_PASSED = OUTCOME_CODE[Outcome.PASSED]


def attempts_of_cases(
    node_ids: pa.Array,
    is_joined: np.ndarray,
    durations_s: np.ndarray,
    results: Mapping[int, CaseResult],
    suites: Sequence[Suite] = (),
    nameless: Sequence[int] = (),
    n_outside: int = 0,
) -> Report:
    """Attempts of the cases of one file, in the order of the file.

    Parameters
    ----------
    node_ids : pyarrow.DictionaryArray of str, shape (n_cases,)
    is_joined : bool array, shape (n_cases,)
    durations_s : float64 array, shape (n_cases,)
        NaN when unknown.
    results : mapping of int to CaseResult
        By case; a case without one has no child that tells a result.
    suites : sequence of Suite
        What the file's headers say of its cases.
    nameless : sequence of int
        Cases that name no test; without a result they say nothing.
    n_outside : int
        Results outside of any case.

    Returns
    -------
    Report
        A failure and the teardown error that follows it are one attempt. Cases without a result that another
        one of the same test follows are failed tries or passes if their suite's header says so, else
        `UNKNOWN`.
    """
    settled = settle_repeats(node_ids, results, suites, nameless)
    durations_s = durations_s.copy()
    for before, late in settled.late:
        durations_s[before] += np.nan_to_num(durations_s[late])
    tries = {row: found.tries for row, found in results.items()}
    tries.update({row: (one,) for row, one in settled.bare.items()})
    n_tries = settled.keep.astype(np.int64)
    for row, several in tries.items():
        if settled.keep[row] and len(several) > 1:
            n_tries[row] = len(several)
    starts = np.cumsum(n_tries) - n_tries
    source = np.repeat(np.arange(len(node_ids)), n_tries)
    durations_s = durations_s[source]
    outcomes = np.full(len(source), _PASSED, np.int8)
    outcomes[settled.is_unknown[source]] = OUTCOME_CODE[Outcome.UNKNOWN]
    classes = np.full(len(source), CLASS_CODE[FailureClass.NONE], np.int8)
    messages: dict[int, str] = {}
    rules: dict[int, str] = {}
    for row in sorted(tries):
        if not settled.keep[row]:
            continue
        for place, one in enumerate(tries[row], int(starts[row])):
            outcomes[place] = OUTCOME_CODE[one.outcome]
            classes[place] = CLASS_CODE[one.failure_class]
            if not one.takes_time_of_case:
                durations_s[place] = one.duration_s
            if one.message:
                messages[place] = one.message
            if one.rule:
                rules[place] = one.rule
    if len(source) != len(node_ids) or not settled.keep.all():
        node_ids, is_joined = node_ids.take(indices(source)), is_joined[source]
    return Report(
        node_ids=node_ids,
        outcomes=outcomes,
        classes=classes,
        durations_s=known_durations_s(durations_s),  # a teardown may have been added
        is_joined=is_joined,
        messages=messages,
        rules=rules,
        notes=(*settled.notes, *missing_notes(suites, settled.tallies, n_outside)),
    )

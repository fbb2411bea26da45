"""Tests that come several times in a JUnit file: failed tries, passes, or two halves of one attempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.failures.rule_files import FLAKY_RULE
from fastci_ml.sources.junit.results import CaseResult, Try
from fastci_ml.sources.junit.suites import Repeats, Suite, SuiteIndex, Tally, judge_repeats, n_cut_off


@dataclass(slots=True)
class Settled:
    """What the repetitions of tests in one file come to.

    Attributes
    ----------
    keep : bool array, shape (n_cases,)
        Cases that are attempts of their own.
    is_unknown : bool array, shape (n_cases,)
        Cases without a result that may have failed.
    bare : dict of int to Try
        Cases without a result of which more is known than that.
    late : list of (int, int)
        A case, and the one with its teardown error.
    tallies : list of Tally
        Of the suites without suites in them, as in `SuiteIndex`.
    notes : tuple of str
        What was odd.
    """

    keep: np.ndarray
    is_unknown: np.ndarray
    bare: dict[int, Try] = field(default_factory=dict)
    late: list[tuple[int, int]] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)
    notes: tuple[str, ...] = ()


def settle_repeats(
    node_ids: pa.Array,
    results: Mapping[int, CaseResult],
    suites: Sequence[Suite] = (),
    nameless: Sequence[int] = (),
) -> Settled:
    """Settle what tests that come several times, and cases without a name, stand for.

    Parameters
    ----------
    node_ids : pyarrow.DictionaryArray of str, shape (n_cases,)
    results : mapping of int to CaseResult
        By case, for those that have one.
    suites : sequence of Suite
        Of the file.
    nameless : sequence of int
        Cases that name no test.
    """
    n_cases = len(node_ids)
    settled = Settled(np.ones(n_cases, bool), np.zeros(n_cases, bool))
    cut = [row for row in nameless if row not in results]
    settled.keep[cut] = False
    index = SuiteIndex(suites)
    groups = list(_groups(node_ids, index, settled.keep))
    for group in groups:
        _join_late(group, results, settled)
    settled.tallies = _tallies(index, results, cut, settled, groups)
    n_unknown = _settle_followed(index, groups, results, settled)
    n_unclear, n_cut = _settle_cut_off(index, groups, results, settled)
    notes = []
    if cut:
        notes.append(f"{len(cut)} cases without name and result, as tests that were cut short leave them")
    if n_unknown:
        notes.append(
            f"{n_unknown} cases without a result come before another one of their test, and their suite does "
            "not tell whether those are failed tries: unknown"
        )
    if n_cut:
        notes.append(
            f"{n_cut} of {n_unclear} cases without a result did not pass, by the count of their suite, and "
            "nothing tells which: all unknown"
        )
    settled.notes = tuple(notes)
    return settled


@dataclass(slots=True)
class _Group:
    """Cases of one test in one suite, in order; and whether cases of it in another suite follow."""

    place: int
    rows: list[int]
    is_last: bool = True


def _groups(node_ids: pa.Array, index: SuiteIndex, keep: np.ndarray) -> Iterator[_Group]:
    """The tests that come several times."""
    if len(node_ids.dictionary) == len(node_ids):
        return
    tests = np.from_dlpack(node_ids.indices)
    repeated = np.flatnonzero((np.bincount(tests)[tests] > 1) & keep)
    found: dict[tuple[int, int], _Group] = {}
    last: dict[int, _Group] = {}
    places = index.places(repeated).tolist()
    for row, test, place in zip(repeated.tolist(), tests[repeated].tolist(), places, strict=True):
        group = found.get((test, place))
        if group is None:
            group = found[test, place] = _Group(place, [])
            if test in last:
                last[test].is_last = False
        last[test] = group
        group.rows.append(row)
    for group in found.values():
        yield group


def _join_late(group: _Group, results: Mapping[int, CaseResult], settled: Settled) -> None:
    """Join the teardown error of a failed call, which has a case of its own, to the case of the failure."""
    rows: list[int] = []
    for row in group.rows:
        found = results.get(row)
        before = results.get(rows[-1]) if rows else None
        if (
            found is not None
            and before is not None
            and found.tries[-1].phase == "teardown"
            and before.tries[-1].outcome is Outcome.FAILED
        ):
            settled.keep[row] = False
            settled.late.append((rows[-1], row))
        else:
            rows.append(row)
    group.rows = rows


def _tallies(
    index: SuiteIndex,
    results: Mapping[int, CaseResult],
    cut: Sequence[int],
    settled: Settled,
    groups: Sequence[_Group],
) -> list[Tally]:
    """What the cases of each suite come to, from the few of them that say anything."""
    tallies = [
        Tally(n_cases=suite.end - suite.start, n_counted=suite.end - suite.start) for suite in index.leaves
    ]

    def of_rows(rows: Sequence[int]) -> Iterator[tuple[int, Tally]]:
        for row, place in zip(rows, index.places(np.array(rows, np.int64)).tolist(), strict=True):
            if place >= 0:
                yield row, tallies[place]

    for row, tally in of_rows(list(results)):
        _count_result(results[row], tally)
    for _, tally in of_rows(cut):
        tally.n_nameless += 1
        tally.n_counted -= 1
    for _, tally in of_rows([late for _, late in settled.late]):
        tally.n_less += 1
    for tally in tallies:
        tally.n_single = tally.n_cases - tally.n_nameless - tally.n_less
    for group in groups:
        if group.place < 0 or len(group.rows) == 1:
            continue
        tally = tallies[group.place]
        tally.n_single -= len(group.rows)
        n_followed = sum(row not in results for row in group.rows[:-1])
        last = results.get(group.rows[-1])
        tally.n_followed += n_followed
        tally.is_late_again |= n_followed > 0 and last is not None and last.is_teardown
    return tallies


def _count_result(found: CaseResult, tally: Tally) -> None:
    n_elements = found.n_failures + found.n_errors + found.n_skipped
    tally.n_failures += found.n_failures
    tally.n_errors += found.n_errors
    tally.n_skipped += found.n_skipped
    tally.n_extra_results += max(0, n_elements - 1) + len(found.tries) - 1
    if n_elements:
        tally.n_counted += n_elements - 1 - (found.is_teardown and n_elements > 1)
    tally.n_more += found.is_late
    tally.has_subtests |= found.n_failures > 1 or found.n_skipped > 1


def _settle_followed(
    index: SuiteIndex, groups: Sequence[_Group], results: Mapping[int, CaseResult], settled: Settled
) -> int:
    """Cases without a result that another one of their test follows; returns how many stay unknown."""
    verdicts = [
        judge_repeats(suite, tally) if tally.n_followed else Repeats.UNKNOWN
        for suite, tally in zip(index.leaves, settled.tallies, strict=True)
    ]
    n_unknown = 0
    for group in groups:
        verdict = verdicts[group.place] if group.place >= 0 else Repeats.UNKNOWN
        followed = [row for row in group.rows[:-1] if row not in results]
        if not group.is_last and group.rows[-1] not in results and not _has_count(index, group.place):
            followed.append(group.rows[-1])
        if verdict is Repeats.TRIES:
            last = results.get(group.rows[-1])
            settled.bare.update(dict.fromkeys(followed, _failed_try(last)))
        elif verdict is Repeats.UNKNOWN:
            settled.is_unknown[followed] = True
            n_unknown += len(followed)
    return n_unknown


def _has_count(index: SuiteIndex, place: int) -> bool:
    return place >= 0 and index.leaves[place].n_tests is not None


def _failed_try(last: CaseResult | None) -> Try:
    """A try of which a report says no more than that it failed, by how the last one ended."""
    end = last.tries[-1] if last is not None else Try(Outcome.PASSED)
    if end.outcome.is_failure:
        return Try(end.outcome, end.failure_class, end.phase, "", end.rule)
    return Try(Outcome.FAILED, FailureClass.FLAKY, rule=FLAKY_RULE)


def _settle_cut_off(
    index: SuiteIndex, groups: Sequence[_Group], results: Mapping[int, CaseResult], settled: Settled
) -> tuple[int, int]:
    """Suites where some case that looks like a pass is none; returns how many may be, and how many are."""
    n_cut_all = n_unknown = 0
    for place, (suite, tally) in enumerate(zip(index.leaves, settled.tallies, strict=True)):
        n_cut = n_cut_off(suite, tally)
        if not n_cut:
            continue
        rows = np.arange(suite.start, suite.end)
        is_candidate = settled.keep[rows]
        is_candidate[
            [row - suite.start for row in (*results, *settled.bare) if suite.start <= row < suite.end]
        ] = False
        settled.is_unknown[rows[is_candidate]] = True
        # How these tests ended is not known, so neither is that their earlier tries were flaky.
        for group in groups:
            if group.place == place and settled.is_unknown[group.rows[-1]]:
                unclear = Try(Outcome.FAILED, FailureClass.TEST)
                settled.bare.update({row: unclear for row in group.rows[:-1] if row in settled.bare})
        n_cut_all += n_cut
        n_unknown += int(is_candidate.sum())
    return n_unknown, n_cut_all

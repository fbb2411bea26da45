"""What the header of a suite says about its cases: which are failed tries, and whether results are missing.

A rerun plugin writes a failed try as a case without any result, which is how a pass looks too. What tells
them apart is the suite's own count of tests: the tries are cases, and they are not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

# Attributes as pytest has written them, in this order, since it writes a suite at all.
_PYTEST = ("name", "errors", "failures", "skipped", "tests", "time", "timestamp", "hostname")
# Catch2 counts assertions, and this is how it names every host.
_CATCH2_HOST = "tbd"
# A session that is cut off leaves one such case a worker; more means that the header is of other cases.
_MOST_WORKERS = 256


class Repeats(StrEnum):
    """What cases without a result are that another case of the same test follows."""

    TRIES = "failed tries"
    PASSES = "passes"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Suite:
    """A suite of one file: its header, and the cases that it spans.

    Attributes
    ----------
    name, time, timestamp : str
        As written; empty when absent.
    n_tests, n_failures, n_errors, n_skipped, n_disabled : int or None
        Counts of the header; None when absent or no number.
    is_pytest : bool
        Whether pytest wrote the header.
    start, end : int
        First case, and the one behind the last.
    is_leaf : bool
        Whether no other suite is in it.
    """

    name: str
    time: str
    timestamp: str
    n_tests: int | None
    n_failures: int | None
    n_errors: int | None
    n_skipped: int | None
    n_disabled: int | None
    is_pytest: bool
    start: int
    end: int
    is_leaf: bool = True


@dataclass(slots=True)
class Tally:
    """What was found in the cases of one suite.

    Attributes
    ----------
    n_cases : int
        All of them.
    n_nameless : int
        Without name and result: tests that were cut short.
    n_failures, n_errors, n_skipped : int
        Elements in its cases.
    n_counted : int
        Tests that pytest counts: a case with two results is two, unless the second is of its teardown.
    n_less, n_more : int
        By how many that may be off: older releases count a failure and its teardown error once, and a pass
        and its teardown error twice; a crash may come after a pass that was counted.
    has_subtests : bool
        pytest counts subtests that pass, and leaves no other trace of them.
    n_extra_results : int
        Elements beyond one a case.
    n_followed : int
        Cases without a result that another case of the same test follows.
    n_single : int
        Tests that come once.
    is_late_again : bool
        Whether the last of such cases says that the teardown failed.
    """

    n_cases: int = 0
    n_nameless: int = 0
    n_failures: int = 0
    n_errors: int = 0
    n_skipped: int = 0
    n_counted: int = 0
    n_less: int = 0
    n_more: int = 0
    has_subtests: bool = False
    n_extra_results: int = 0
    n_followed: int = 0
    n_single: int = 0
    is_late_again: bool = False


def suite_of(attributes: dict[str, str], start: int) -> Suite:
    """Suite that begins with these attributes before case `start`; spans nothing yet."""
    get = attributes.get
    n_tests = None if get("hostname") == _CATCH2_HOST else _count(get("tests"))
    return Suite(
        name=get("name", "")[:200],
        time=get("time", "")[:100],
        timestamp=get("timestamp", "")[:100],
        n_tests=n_tests,
        n_failures=_count(get("failures")),
        n_errors=_count(get("errors")),
        n_skipped=_count(get("skipped", get("skips", get("ignored")))),
        n_disabled=_count(get("disabled")),
        is_pytest=tuple(attributes) == _PYTEST,
        start=start,
        end=start,
    )


class SuiteIndex:
    """Finds the suite of a case.

    Parameters
    ----------
    suites : sequence of Suite
        In the order of the file.
    """

    def __init__(self, suites: Sequence[Suite]) -> None:
        self.leaves = [suite for suite in suites if suite.is_leaf and suite.end > suite.start]
        self._starts = np.array([suite.start for suite in self.leaves], np.int64)
        self._ends = np.array([suite.end for suite in self.leaves], np.int64)

    def places(self, cases: np.ndarray) -> np.ndarray:
        """Place in `leaves` of the suite of each case; -1 where it lies beside other suites."""
        if not self.leaves:
            return np.full(len(cases), -1)
        places = np.searchsorted(self._starts, cases, "right") - 1
        return np.where((places >= 0) & (cases < self._ends[places]), places, -1)


def judge_repeats(suite: Suite, tally: Tally) -> Repeats:
    """What the bare cases of one suite are that another case of the same test follows.

    Examples
    --------
    >>> header = {"name": "pytest", "tests": "2"}
    >>> judge_repeats(suite_of(header, 0), Tally(n_cases=4, n_followed=2)).value
    'failed tries'
    >>> judge_repeats(suite_of(header, 0), Tally(n_cases=2, n_followed=1)).value
    'passes'
    >>> judge_repeats(suite_of({}, 0), Tally(n_cases=4, n_followed=2)).value
    'unknown'
    """
    if suite.n_tests is None:
        return Repeats.UNKNOWN
    if suite.is_pytest:
        are_tries, are_passes = _judge_pytest(suite, tally)
    else:
        n_left = tally.n_cases - tally.n_nameless - suite.n_tests
        readings = (n_left, n_left - tally.n_skipped)  # some count skipped tests, some do not
        are_tries, are_passes = tally.n_followed in readings, 0 in readings
    if are_tries == are_passes:
        return Repeats.UNKNOWN
    return Repeats.TRIES if are_tries else Repeats.PASSES


def n_cut_off(suite: Suite, tally: Tally) -> int:
    """How many cases without a result are no passes, although no other case of their test follows.

    A session that is interrupted between two tries leaves the failed one so. Only where all other figures of
    a header of pytest fit its cases.
    """
    if not suite.is_pytest or suite.n_tests is None or not _fits(suite, tally):
        return 0
    n_cut = _uncounted_by_pytest(suite, tally)[0] - tally.n_followed
    return n_cut if 0 < n_cut <= _MOST_WORKERS else 0


def n_missing(suite: Suite, tally: Tally, n_elsewhere: int = 0) -> int:
    """How many results the header promises that are not there.

    Parameters
    ----------
    suite : Suite
        With its header.
    tally : Tally
        Of its cases, those of inner suites included.
    n_elsewhere : int
        Results outside of any case, which the header may count.
    """
    if suite.n_tests is None:
        return 0
    if suite.is_pytest:
        # It writes when all is over and counts what leaves no case, like a subtest that passed: only results
        # that it lists one by one can be missing.
        pairs = (
            (suite.n_failures, tally.n_failures),
            (suite.n_errors, tally.n_errors),
            (suite.n_skipped, tally.n_skipped),
        )
        return sum(max(0, promised - found) for promised, found in pairs if promised is not None)
    unlisted = max(0, (suite.n_skipped or 0) - tally.n_skipped) + (suite.n_disabled or 0)
    found = tally.n_cases + tally.n_extra_results + tally.n_more + unlisted + n_elsewhere
    return max(0, suite.n_tests - found)


def missing_notes(suites: Sequence[Suite], tallies: Sequence[Tally], n_elsewhere: int) -> list[str]:
    """A line when headers promise more results than there are, as when a process died while it wrote.

    Parameters
    ----------
    suites : sequence of Suite
        All of a file.
    tallies : sequence of Tally
        Of those in `SuiteIndex.leaves`.
    n_elsewhere : int
        As in `n_missing`.
    """
    leaves = SuiteIndex(suites).leaves
    missing = [n_missing(suite, tally, n_elsewhere) for suite, tally in zip(leaves, tallies, strict=True)]
    # What a suite promises for those in it they promise as well. Sums from the start, as suites may be many.
    fields = ("n_failures", "n_errors", "n_skipped", "n_more", "n_extra_results")
    sums = {name: _sums([getattr(tally, name) for tally in tallies]) for name in fields}
    missing_sums = _sums(missing)
    starts = np.array([suite.start for suite in leaves], np.int64)
    first, n_outer = (next((s for s, n in zip(leaves, missing, strict=True) if n), None), 0)
    for suite in suites:
        if suite.is_leaf and suite.end > suite.start:
            continue
        low, high = np.searchsorted(starts, [suite.start, suite.end]).tolist()
        tally = Tally(n_cases=suite.end - suite.start)
        for name, values in sums.items():
            setattr(tally, name, int(values[high] - values[low]))
        n_more = n_missing(suite, tally, n_elsewhere) - int(missing_sums[high] - missing_sums[low])
        if n_more > n_outer:
            first, n_outer = first or suite, n_more
    if first is None:
        return []
    n_all = sum(missing) + n_outer
    return [f"{n_all} results are missing that the headers of suites promise, first in suite {first.name!r}"]


def _sums(values: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(values, np.int64))])


def _judge_pytest(suite: Suite, tally: Tally) -> tuple[bool, bool]:
    """Whether the cases may be failed tries, and whether they may be passes."""
    low, high = _uncounted_by_pytest(suite, tally)
    are_tries = low <= tally.n_followed <= high or n_cut_off(suite, tally) > 0
    # It counts a try whose call passed and whose teardown failed, so fewer may be left out than there are.
    # Where tests come again because everything ran again, as by `--dist=each`, none comes once.
    are_tries |= low > 0 and tally.n_single > 0 and _fits(suite, tally)
    are_passes = low <= 0 <= high and not (tally.n_single or tally.has_subtests or tally.is_late_again)
    return are_tries, are_passes


def _uncounted_by_pytest(suite: Suite, tally: Tally) -> tuple[int, int]:
    """Range in which the number of cases lies that the header leaves out; more where there are subtests."""
    n_left = tally.n_counted - (suite.n_tests or 0)
    return n_left - tally.n_less, n_left + tally.n_more


def _fits(suite: Suite, tally: Tally) -> bool:
    found = (tally.n_failures, tally.n_errors, tally.n_skipped)
    return (suite.n_failures, suite.n_errors, suite.n_skipped) == found


def _count(text: str | None) -> int | None:
    """A count of a header; some write 3.0, and nobody has run a billion tests."""
    if text is None:
        return None
    whole = text.strip().removesuffix(".0")
    return int(whole) if whole.isascii() and whole.isdigit() and len(whole) < 10 else None

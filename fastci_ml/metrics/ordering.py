"""How good an order of tests is: APFD, APFDc, NAPFD and the share of failures caught within a budget.

Everything here is a pure function of one order, higher is better, and NaN where nothing failed: callers
count such runs apart and leave them out of means. The mapping of faults is the caller's: a rank is "the place
of the first test that exposes this fault". With one fault per failing test (``per_failure``, which is what
replay uses) the ranks are the places of the failing tests.

Where every cost is zero, time says nothing, and each test counts as one second: this is the limit of equal
costs, so APFDc falls back to APFD and a budget to a share of the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# A budget of the whole time must run every test, however the sum of the costs was rounded.
_ROUNDING = 1e-9


def apfd(ranks: Sequence[int], n_tests: int) -> float:
    """Average percentage of faults detected by one ordering.

    ``1 - sum(ranks) / (n m) + 1 / (2 n)`` for n tests and m faults: the area under the share of faults found
    against the share of tests run.

    Parameters
    ----------
    ranks : sequence of int, shape (n_faults,)
        For each fault, the 1-based place of the first test that exposes it.
    n_tests : int
        Length of the whole ordering, passing tests included.

    Returns
    -------
    float
        In (0, 1), higher is better. NaN without faults: callers count such runs and leave them out of means.

    Raises
    ------
    ValueError
        If a rank lies outside 1..n_tests.

    Notes
    -----
    Rothermel et al., IEEE TSE 27(10), 2001.

    Examples
    --------
    >>> apfd([1, 3], n_tests=4)
    0.625
    """
    _check_ranks(ranks, n_tests)
    if len(ranks) == 0:
        return float("nan")
    return 1.0 - sum(ranks) / (n_tests * len(ranks)) + 1.0 / (2 * n_tests)


def apfdc(ranks: Sequence[int], costs: Sequence[float]) -> float:
    """APFD with the cost of each test in place of its count.

    ``sum_i (sum_{j >= r_i} c_j - c_{r_i} / 2) / (m sum_j c_j)`` for ranks r_i and costs c_j in order: the
    area under the share of faults found against the share of the cost spent. All faults weigh the same.

    Parameters
    ----------
    ranks : sequence of int, shape (n_faults,)
        For each fault, the 1-based place of the first test that exposes it.
    costs : sequence of float, shape (n_tests,)
        Cost of each test, such as its seconds, in the order in which they run; at least 0.

    Returns
    -------
    float
        In [0, 1], higher is better; equals `apfd` where all costs are equal, or all are 0. NaN without
        faults.

    Raises
    ------
    ValueError
        If a rank lies outside 1..n_tests, or a cost is negative, infinite or NaN.

    Notes
    -----
    Elbaum, Malishevsky and Rothermel, ICSE 2001, with all fault severities equal.

    Examples
    --------
    >>> apfdc([1], [1.0, 9.0]), apfdc([2], [1.0, 9.0])
    (0.95, 0.45)
    """
    _check_ranks(ranks, len(costs))
    spent = _effective_costs(costs)
    if len(ranks) == 0:
        return float("nan")
    places = np.asarray(ranks) - 1
    left = np.cumsum(spent[::-1])[::-1]
    return float(np.sum(left[places] - spent[places] / 2) / (len(ranks) * spent.sum()))


def napfd(ranks: Sequence[int], n_tests: int, n_run: int) -> float:
    """APFD of an ordering that is cut off, so that some faults may stay unfound.

    ``p - sum(found ranks) / (n m) + p / (2 n)`` where p is the share of the m faults that the first `n_run`
    tests expose, and n counts the *whole* ordering, tests that did not run included. So a longer run never
    scores lower, and a run of everything scores `apfd`.

    Parameters
    ----------
    ranks : sequence of int, shape (n_faults,)
        For each fault, the 1-based place of the first test that exposes it.
    n_tests : int
        Length of the whole ordering.
    n_run : int
        How many of its tests ran; see `n_within_budget` for a share of the time.

    Returns
    -------
    float
        In [0, 1), higher is better; 0 where every fault stays unfound. NaN without faults.

    Raises
    ------
    ValueError
        If a rank lies outside 1..n_tests, or `n_run` outside 0..n_tests.

    Notes
    -----
    Qu, Cohen and Woolf, ICSM 2007.

    Examples
    --------
    >>> napfd([1, 3], n_tests=4, n_run=2)
    0.4375
    """
    _check_ranks(ranks, n_tests)
    if not 0 <= n_run <= n_tests:
        raise ValueError(f"n_run is {n_run}, expected 0..{n_tests}")
    if len(ranks) == 0:
        return float("nan")
    found = [rank for rank in ranks if rank <= n_run]
    found_ratio = len(found) / len(ranks)
    return found_ratio - sum(found) / (n_tests * len(ranks)) + found_ratio / (2 * n_tests)


def n_within_budget(costs: Sequence[float], share: float) -> int:
    """Count the tests, from the front, that end within a share of the total cost.

    The first test that would end later stops the run, and nothing is run in its place: a CI job that is cut
    off does not look for shorter tests.

    Parameters
    ----------
    costs : sequence of float, shape (n_tests,)
        Cost of each test in the order in which they run; at least 0. All zero: each counts 1.
    share : float
        In [0, 1]; 1 runs everything.

    Raises
    ------
    ValueError
        If `share` lies outside [0, 1], or a cost is negative, infinite or NaN.

    Examples
    --------
    >>> n_within_budget([1.0, 3.0, 1.0, 5.0], share=0.5)
    3
    """
    _check_share(share)
    ends = np.cumsum(_effective_costs(costs))
    return int(np.count_nonzero(_is_within(ends, ends[-1:], share)))


def recall_at_budget(ranks: Sequence[int], costs: Sequence[float], share: float) -> float:
    """Share of the faults that are caught by tests that end within a share of the total cost.

    Parameters
    ----------
    ranks : sequence of int, shape (n_faults,)
        For each fault, the 1-based place of the first test that exposes it.
    costs : sequence of float, shape (n_tests,)
        Cost of each test in the order in which they run; at least 0. All zero: each counts 1.
    share : float
        In [0, 1]; 1 catches everything.

    Returns
    -------
    float
        In [0, 1], higher is better. NaN without faults.

    Raises
    ------
    ValueError
        If a rank lies outside 1..n_tests, `share` outside [0, 1], or a cost is negative, infinite or NaN.

    Examples
    --------
    >>> recall_at_budget([1, 4], [1.0, 3.0, 1.0, 5.0], share=0.5)
    0.5
    """
    _check_ranks(ranks, len(costs))
    n_run = n_within_budget(costs, share)
    if len(ranks) == 0:
        return float("nan")
    return sum(rank <= n_run for rank in ranks) / len(ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderScores:
    """Every metric of some orders of one run.

    Attributes
    ----------
    apfd, apfdc, napfd : array of float, shape (n_orders,)
        As the functions of these names.
    recall : array of float, shape (n_orders, n_shares)
        As `recall_at_budget`, one column a share.
    """

    apfd: npt.NDArray[np.float64]
    apfdc: npt.NDArray[np.float64]
    napfd: npt.NDArray[np.float64]
    recall: npt.NDArray[np.float64]


def score_orders(
    orders: npt.NDArray[np.intp],
    has_failed: npt.NDArray[np.bool_],
    costs: npt.NDArray[np.float64],
    *,
    napfd_share: float = 0.5,
    recall_shares: Sequence[float] = (0.1, 0.2, 0.5),
) -> OrderScores:
    """Score many orders of one run at once, with one fault per failing test.

    Gives what `apfd`, `apfdc`, `napfd` and `recall_at_budget` give one order at a time.

    Parameters
    ----------
    orders : array of int, shape (n_orders, n_tests) or (n_tests,)
        Each row a permutation: indices of the tests, first to run first.
    has_failed : array of bool, shape (n_tests,)
        By test, not by place.
    costs : array of float, shape (n_tests,)
        By test; at least 0, no NaN: impute before. All zero: each counts 1.
    napfd_share : float
        Share of the total cost at which `napfd` cuts the run off.
    recall_shares : sequence of float
        Shares of the total cost for `recall`.

    Returns
    -------
    OrderScores
        NaN throughout where no test failed.

    Raises
    ------
    ValueError
        If shapes differ, a cost is negative, infinite or NaN, or a share lies outside [0, 1].
    """
    orders = np.atleast_2d(orders)
    n_tests = orders.shape[1]
    if has_failed.shape != (n_tests,) or costs.shape != (n_tests,):
        raise ValueError(
            f"orders of {n_tests} tests, has_failed {has_failed.shape}, costs {costs.shape}: "
            "expected one length"
        )
    for share in (napfd_share, *recall_shares):
        _check_share(share)
    spent = _effective_costs(costs)[orders]
    n_failed = int(np.count_nonzero(has_failed))
    if n_failed == 0:
        nan = np.full(len(orders), np.nan)
        return OrderScores(
            apfd=nan, apfdc=nan, napfd=nan, recall=np.full((len(orders), len(recall_shares)), np.nan)
        )
    failed = has_failed[orders]
    # Only failing places matter from here on; each row has the same number of them, in ascending order.
    places = np.nonzero(failed)[1].reshape(len(orders), n_failed)
    ends = np.cumsum(spent, axis=1)
    fault_ends = np.take_along_axis(ends, places, axis=1)
    fault_costs = np.take_along_axis(spent, places, axis=1)
    totals = ends[:, -1:]
    ranks = places + 1
    is_found = _is_within(fault_ends, totals, napfd_share)
    found_ratio = is_found.mean(axis=1)
    return OrderScores(
        apfd=1.0 - ranks.sum(axis=1) / (n_tests * n_failed) + 1.0 / (2 * n_tests),
        apfdc=np.mean((totals - fault_ends + fault_costs / 2) / totals, axis=1),
        napfd=found_ratio
        - (ranks * is_found).sum(axis=1) / (n_tests * n_failed)
        + found_ratio / (2 * n_tests),
        recall=np.stack(
            [_is_within(fault_ends, totals, share).mean(axis=1) for share in recall_shares], axis=1
        )
        if recall_shares
        else np.empty((len(orders), 0)),
    )


def _is_within(
    ends: npt.NDArray[np.float64], totals: npt.NDArray[np.float64], share: float
) -> npt.NDArray[np.bool_]:
    is_within: npt.NDArray[np.bool_] = ends <= share * totals * (1 + _ROUNDING)
    return is_within


def _effective_costs(costs: Sequence[float] | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    array = np.asarray(costs, dtype=np.float64)
    is_sound = np.isfinite(array) & (array >= 0)
    if not is_sound.all():
        raise ValueError(f"a cost is {array[~is_sound][0]}, expected a finite number of at least 0")
    return array if array.any() else np.ones_like(array)


def _check_ranks(ranks: Sequence[int], n_tests: int) -> None:
    for rank in ranks:
        if not 1 <= rank <= n_tests:
            raise ValueError(f"rank {rank} lies outside 1..{n_tests}")


def _check_share(share: float) -> None:
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}, expected a number from 0 to 1")

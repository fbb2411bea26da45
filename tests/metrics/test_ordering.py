"""Metrics of an order, against slow obvious versions and against their laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.metrics.ordering import apfd, apfdc, n_within_budget, napfd, recall_at_budget, score_orders

COSTS = st.integers(0, 50).map(float)


@st.composite
def orders(draw: st.DrawFn, max_tests: int = 12) -> tuple[list[bool], list[float]]:
    """Which places fail (at least one does), and the cost of each, in order."""
    n = draw(st.integers(1, max_tests))
    failed = draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any))
    return failed, draw(st.lists(COSTS, min_size=n, max_size=n))


def places(failed: Sequence[bool]) -> list[int]:
    return [i for i, is_failed in enumerate(failed, start=1) if is_failed]


def area_by_trapezoids(failed: Sequence[bool], costs: Sequence[float]) -> float:
    """Area under the share of faults found against the share of cost spent, one trapezoid a test."""
    if not any(costs):
        costs = [1.0] * len(costs)
    area = found = 0.0
    for is_failed, cost in zip(failed, costs, strict=True):
        area += cost / sum(costs) * (found + found + is_failed / sum(failed)) / 2
        found += is_failed / sum(failed)
    return area


def napfd_by_the_book(failed: Sequence[bool], n_run: int) -> float:
    ranks = [rank for rank in places(failed) if rank <= n_run]
    m, n = sum(failed), len(failed)
    p = len(ranks) / m
    return p - sum(ranks) / (m * n) + p / (2 * n)


def n_run_by_hand(costs: Sequence[float], share: float) -> int:
    if not any(costs):
        costs = [1.0] * len(costs)
    spent, n_run = 0.0, 0
    for cost in costs:
        spent += cost
        if spent > share * sum(costs) + 1e-9 * sum(costs):
            break
        n_run += 1
    return n_run


@given(orders())
def test_apfd_is_the_area_under_the_faults_found(case: tuple[list[bool], list[float]]) -> None:
    failed, _ = case
    assert apfd(places(failed), len(failed)) == pytest.approx(area_by_trapezoids(failed, [1.0] * len(failed)))


@given(orders())
def test_apfdc_is_the_area_under_the_faults_found_by_cost(case: tuple[list[bool], list[float]]) -> None:
    failed, costs = case
    assert apfdc(places(failed), costs) == pytest.approx(area_by_trapezoids(failed, costs))


@given(orders())
def test_an_order_and_its_reverse_sum_to_one(case: tuple[list[bool], list[float]]) -> None:
    failed, costs = case
    backwards, n = failed[::-1], len(failed)
    assert apfd(places(failed), n) + apfd(places(backwards), n) == pytest.approx(1)
    assert apfdc(places(failed), costs) + apfdc(places(backwards), costs[::-1]) == pytest.approx(1)


@given(orders(), st.floats(1e-3, 1e6))
def test_equal_costs_make_apfdc_equal_apfd(case: tuple[list[bool], list[float]], cost: float) -> None:
    failed, _ = case
    assert apfdc(places(failed), [cost] * len(failed)) == pytest.approx(apfd(places(failed), len(failed)))


@given(orders())
def test_zero_total_cost_falls_back_to_equal_costs(case: tuple[list[bool], list[float]]) -> None:
    failed, _ = case
    zeros = [0.0] * len(failed)
    assert apfdc(places(failed), zeros) == pytest.approx(apfd(places(failed), len(failed)))
    assert n_within_budget(zeros, 0.5) == len(failed) // 2


@given(orders(), st.integers(0, 12))
def test_napfd_follows_its_formula_and_grows_with_what_runs(
    case: tuple[list[bool], list[float]], n_run: int
) -> None:
    failed, _ = case
    n_run = min(n_run, len(failed))
    score = napfd(places(failed), len(failed), n_run)
    assert score == pytest.approx(napfd_by_the_book(failed, n_run))
    if n_run:
        assert score >= napfd(places(failed), len(failed), n_run - 1) - 1e-12


@given(orders())
def test_napfd_of_a_full_run_is_apfd(case: tuple[list[bool], list[float]]) -> None:
    failed, costs = case
    n_run = n_within_budget(costs, 1.0)
    assert n_run == len(failed)
    assert napfd(places(failed), len(failed), n_run) == pytest.approx(apfd(places(failed), len(failed)))


@given(orders(), st.floats(0, 1))
def test_budget_counts_the_tests_that_end_within_it(
    case: tuple[list[bool], list[float]], share: float
) -> None:
    failed, costs = case
    n_run = n_run_by_hand(costs, share)
    assert n_within_budget(costs, share) == n_run
    assert recall_at_budget(places(failed), costs, share) == sum(failed[:n_run]) / sum(failed)


@given(orders(max_tests=5))
def test_failing_first_shortest_first_is_optimal_in_every_metric(
    case: tuple[list[bool], list[float]],
) -> None:
    failed, costs = (np.array(part) for part in case)
    best = np.lexsort((costs, ~failed))
    every = np.array(list(itertools.permutations(range(len(failed)))))
    shares = (0.1, 0.2, 0.5)
    top = score_orders(best, failed, costs, recall_shares=shares)
    rest = score_orders(every, failed, costs, recall_shares=shares)
    assert top.apfd[0] >= rest.apfd.max() - 1e-12
    assert top.apfdc[0] >= rest.apfdc.max() - 1e-12
    assert (top.recall[0] >= rest.recall.max(axis=0) - 1e-12).all()


@given(orders(), st.randoms(use_true_random=False), st.floats(0, 1))
def test_score_orders_gives_what_the_single_metrics_give(case, random, share) -> None:
    failed, costs = (np.array(part) for part in case)
    n = len(failed)
    shuffled = np.array([random.sample(range(n), n) for _ in range(3)])
    scores = score_orders(shuffled, failed, costs, napfd_share=share, recall_shares=(share, 0.2))
    for i, order in enumerate(shuffled):
        ranks, spent = places(failed[order]), costs[order]
        assert scores.apfd[i] == pytest.approx(apfd(ranks, n))
        assert scores.apfdc[i] == pytest.approx(apfdc(ranks, spent))
        assert scores.napfd[i] == pytest.approx(napfd(ranks, n, n_within_budget(spent, share)))
        assert scores.recall[i, 0] == recall_at_budget(ranks, spent, share)
        assert scores.recall[i, 1] == recall_at_budget(ranks, spent, 0.2)


def test_no_failure_is_nan_everywhere() -> None:
    assert math.isnan(apfd([], 3))
    assert math.isnan(apfdc([], [1.0, 2.0]))
    assert math.isnan(napfd([], 3, 1))
    assert math.isnan(recall_at_budget([], [1.0], 0.5))
    scores = score_orders(np.array([[0, 1], [1, 0]]), np.zeros(2, dtype=bool), np.ones(2))
    assert np.isnan(scores.apfd).all()
    assert scores.recall.shape == (2, 3)
    assert np.isnan(scores.recall).all()


@pytest.mark.parametrize("rank", [0, 4, -1])
def test_rank_outside_the_order_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=r"outside 1\.\.3"):
        apfd([rank], 3)


@pytest.mark.parametrize("cost", [-1.0, math.nan, math.inf])
def test_cost_that_is_no_cost_is_refused(cost: float) -> None:
    with pytest.raises(ValueError, match="a cost is"):
        apfdc([1], [1.0, cost])


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_share_outside_zero_to_one_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share is"):
        recall_at_budget([1], [1.0], share)


def test_parts_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="expected one length"):
        score_orders(np.array([0, 1]), np.zeros(3, dtype=bool), np.ones(2))
    with pytest.raises(ValueError, match="n_run is 4"):
        napfd([1], 3, 4)

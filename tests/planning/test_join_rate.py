"""Nothing is narrowed where too few tests have a history, or nobody knows how many have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.planning.join_rate import JoinRate, describe_join
from fastci_ml.records.plans import Decision, Plan, PlannedTest

counts = st.integers(0, 40)
rates = st.builds(
    lambda collected, known, attempts, certain, runs: JoinRate(
        n_collected=collected,
        n_known=min(known, collected),
        n_attempts=attempts,
        n_certain=min(certain, attempts),
        n_runs=runs,
    ),
    counts, counts, counts, counts, counts,
)  # fmt: skip


def rate(**changes: int) -> JoinRate:
    good = {"n_collected": 100, "n_known": 95, "n_attempts": 1000, "n_certain": 950, "n_runs": 20}
    return JoinRate(**{**good, **changes})


def codes(joined: JoinRate, floor: float = 0.9, *, has_model: bool = True) -> list[str]:
    return [reason.code for reason in joined.obstacles(floor, has_model=has_model)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"n_known": 90}, []),
        ({"n_known": 89}, ["low_join_rate"]),
        ({"n_certain": 900}, []),
        ({"n_certain": 899}, ["low_join_rate"]),
        ({"n_collected": 0, "n_known": 0}, ["low_join_rate"]),
        ({"n_attempts": 0, "n_certain": 0}, ["low_join_rate"]),
        ({"n_runs": 15}, []),
        ({"n_runs": 14}, ["little_history"]),
        ({"n_runs": 0, "n_known": 0, "n_attempts": 0, "n_certain": 0}, ["no_history", "low_join_rate"]),
    ],
)
def test_floor_of_each_figure(changes, expected):
    assert codes(rate(**changes)) == expected


def test_without_a_model_nothing_is_narrowed():
    assert codes(rate(), has_model=False) == ["no_model"]


def test_reason_has_the_figures_and_what_to_type():
    (reason,) = rate(n_known=899, n_collected=1000).obstacles(0.9, has_model=True)
    assert "899 of 1,000 collected tests have a history on this lane (89.9%, needed 90.0%)" in reason.text
    assert "fastci-ml ingest --collected" in reason.text
    assert reason.details["known_ratio"] == 0.899
    assert reason.details["min_join_ratio"] == 0.9
    (reason,) = rate(n_collected=0, n_known=0).obstacles(0.9, has_model=True)
    assert "pytest --collect-only -q > collected.txt; fastci-ml rank --collected" in reason.text


def test_share_just_below_the_floor_does_not_read_as_the_floor():
    (reason,) = rate(n_known=89_996, n_collected=100_000).obstacles(0.9, has_model=True)
    assert "89.9%" in reason.text


def test_floor_of_the_settings_counts():
    assert codes(rate(n_known=50), 0.5) == []
    assert codes(rate(n_known=0, n_certain=0), 0.0) == []
    # A share that nobody knows meets no floor.
    assert codes(rate(n_collected=0, n_known=0), 0.0) == ["low_join_rate"]


@given(rates, st.floats(0, 1), st.booleans())
def test_narrowing_needs_every_figure_to_be_known_and_high(joined, floor, has_model):
    is_allowed = not joined.obstacles(floor, has_model=has_model)
    figures = (joined.known_ratio, joined.join_ratio)
    expected = has_model and joined.n_runs >= 15 and all(f is not None and f >= floor for f in figures)
    assert is_allowed == expected
    assert describe_join(joined.to_json()).startswith("history: ")


@given(rates, rates, st.floats(0, 1))
def test_a_history_that_knows_less_never_allows_more(one, other, floor):
    less = JoinRate(
        n_collected=one.n_collected,
        n_known=min(one.n_known, other.n_known),
        n_attempts=one.n_attempts,
        n_certain=min(one.n_certain, other.n_certain),
        n_runs=min(one.n_runs, other.n_runs),
    )
    if one.obstacles(floor, has_model=True):
        assert less.obstacles(floor, has_model=True)


@given(rates, st.floats(0, 1))
def test_plan_with_an_obstacle_cannot_leave_out_a_test(joined, floor):
    """The guarantee is one of the plan itself, whatever a later stage decides."""
    full_run = joined.obstacles(floor, has_model=False)
    out = PlannedTest(id="t.py::x", decision=Decision.UNAFFECTED, order=0)
    with pytest.raises(ValueError, match="the plan is a full run"):
        Plan(base="", head="", head_tree="", lane="", model={}, tests=(out,), full_run=full_run)

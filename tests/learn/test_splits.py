from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.features.log import RunLog
from fastci_ml.learn.labels import labels, training_rows
from fastci_ml.learn.splits import rows_of_runs, split_by_time, split_for_training


def log_of(started: list[int], lengths: list[int], verdicts: list[int] | None = None) -> RunLog:
    """One test a run; only times and verdicts matter."""
    n = len(started)
    order = np.argsort(started, kind="stable")
    starts = np.array(started, dtype=np.int64)[order]
    return RunLog(
        node_ids=["t.py::test"],
        lanes=["x"],
        run_ids=[f"r{i}" for i in range(n)],
        run_lanes=["x"] * n,
        heads=[""] * n,
        started_us=starts,
        finished_us=starts + np.array(lengths, dtype=np.int64)[order],
        offsets=np.arange(n + 1),
        tests=np.zeros(n, dtype=np.int32),
        verdicts=np.array(verdicts or [0] * n, dtype=np.int8),
        durations_s=np.ones(n),
        changes=[None] * n,
    )


runs = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 60)), max_size=30)
shares = st.sampled_from([(0.7, 0.15, 0.15), (0.5, 0.5), (1.0,), (0.2, 0.3, 0.1, 0.4)])


@given(times=runs, fractions=shares)
def test_what_a_slice_holds_had_ended_when_a_later_one_began(
    times: list[tuple[int, int]], fractions: tuple[float, ...]
) -> None:
    log = log_of([start for start, _ in times], [length for _, length in times])
    slices = split_by_time(log, fractions)
    assert len(slices) == len(fractions)
    for i, earlier in enumerate(slices):
        for later in slices[i + 1 :]:
            if len(earlier) and len(later):
                assert log.finished_us[earlier].max() <= log.started_us[later].min()
    together = np.concatenate(slices)
    assert len(np.unique(together)) == len(together)


@given(times=runs, fractions=shares)
def test_runs_that_do_not_overlap_all_have_a_slice(
    times: list[tuple[int, int]], fractions: tuple[float, ...]
) -> None:
    log = log_of([100 * i for i in range(len(times))], [99] * len(times))
    assert np.concatenate(split_by_time(log, fractions)).tolist() == list(range(len(times)))


def test_a_long_run_belongs_to_no_slice_that_it_outlasts() -> None:
    log = log_of([0, 10, 20, 30], [5, 15, 5, 5])
    assert [part.tolist() for part in split_by_time(log, (0.5, 0.5))] == [[0], [2, 3]]


def test_the_training_split_is_seventy_fifteen_fifteen() -> None:
    slices = split_for_training(log_of([10 * i for i in range(100)], [1] * 100))
    assert [len(slices.fit), len(slices.calibrate), len(slices.test)] == [70, 15, 15]


@pytest.mark.parametrize("fractions", [(), (0.5,), (0.5, 0.6), (1.5, -0.5), (0.5, 0.0, 0.5)])
def test_shares_that_are_no_shares_are_refused(fractions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="sum of 1"):
        split_by_time(log_of([0, 1], [0, 0]), fractions)


def test_rows_without_a_verdict_do_not_train() -> None:
    log = log_of([0, 10, 20], [1, 1, 1], [1, -1, 0])
    assert training_rows(log).tolist() == [True, False, True]
    assert labels(log)[training_rows(log)].tolist() == [1.0, 0.0]
    assert rows_of_runs(log, np.array([0, 2])).tolist() == [True, False, True]

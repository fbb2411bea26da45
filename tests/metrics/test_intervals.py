"""Bootstrap intervals: seeded, paired, and as wide as they claim."""

from __future__ import annotations

import numpy as np
import pytest

from fastci_ml.metrics import intervals
from fastci_ml.metrics.intervals import bootstrap_means, paired_bootstrap


def test_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0.3, 1.0, size=(60, 400))
    found = bootstrap_means(values, seed=1, n_resamples=1_000)
    share = np.mean([one.low <= 0.3 <= one.high for one in found])
    assert 0.9 <= share <= 0.98


def test_same_seed_gives_the_same_interval_however_it_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(50, 3))
    once = bootstrap_means(values, seed=7)
    monkeypatch.setattr(intervals, "_BLOCK_CELLS", 1_000)
    assert bootstrap_means(values, seed=7) == once
    assert bootstrap_means(values, seed=8) != once


def test_interval_matches_resampling_by_hand() -> None:
    values = np.random.default_rng(3).exponential(size=(40, 1))
    (found,) = bootstrap_means(values, seed=1, n_resamples=20_000)
    rng = np.random.default_rng(9)
    means = [rng.choice(values[:, 0], 40).mean() for _ in range(20_000)]
    assert found.low == pytest.approx(np.quantile(means, 0.025), abs=0.01)
    assert found.high == pytest.approx(np.quantile(means, 0.975), abs=0.01)
    assert found.mean == values.mean()


def test_pairing_removes_what_runs_have_in_common() -> None:
    rng = np.random.default_rng(0)
    reference = rng.uniform(size=30)
    (shifted, same) = paired_bootstrap(np.column_stack([reference + 0.1, reference]), reference, seed=1)
    assert shifted.low == pytest.approx(0.1)
    assert shifted.high == pytest.approx(0.1)
    assert (same.mean, same.low, same.high) == (0, 0, 0)


def test_no_runs_give_nan() -> None:
    found = bootstrap_means(np.empty((0, 2)), seed=1)
    assert len(found) == 2
    assert np.isnan([found[0].mean, found[0].low, found[0].high]).all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="1 dimensions"):
        bootstrap_means(np.ones(3), seed=1)
    with pytest.raises(ValueError, match="hold NaN"):
        bootstrap_means(np.full((2, 1), np.nan), seed=1)
    with pytest.raises(ValueError, match="level is 95"):
        bootstrap_means(np.ones((2, 1)), seed=1, level=95)

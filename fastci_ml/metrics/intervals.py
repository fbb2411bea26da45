"""How sure a mean over runs is: bootstrap intervals, paired where two orders meet on the same runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# 2.5% of 4,000 resamples is 100: an end then moves by a few hundredths of the width between seeds.
N_RESAMPLES = 4_000
# Resampling counts are drawn in blocks of about this many numbers: 32 MB, however many runs there are.
_BLOCK_CELLS = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with the ends of its interval; all NaN without runs.

    Attributes
    ----------
    mean : float
        Mean over the runs.
    low, high : float
        Ends of the interval, as percentiles of the resampled means.
    """

    mean: float
    low: float
    high: float


def bootstrap_means(
    values: npt.NDArray[np.float64],
    *,
    seed: int,
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> list[Interval]:
    """Percentile bootstrap of the mean over runs, for each column.

    For a paired comparison pass differences: `paired_bootstrap` does. Every column meets the same resamples.

    Parameters
    ----------
    values : array of float, shape (n_runs, n_columns)
        No NaN: leave runs without failures out before.
    seed : int
        Seed of the resampling.
    level : float
        Coverage, in (0, 1).
    n_resamples : int
        How often the runs are drawn again.

    Returns
    -------
    list of Interval, length n_columns
        NaN without runs; of width 0 with a single run, which says nothing about spread.

    Raises
    ------
    ValueError
        If `values` has no two dimensions or holds a NaN, or `level` lies outside (0, 1).

    Notes
    -----
    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.
    """
    if values.ndim != 2:
        raise ValueError(f"values have {values.ndim} dimensions, expected (n_runs, n_columns)")
    if np.isnan(values).any():
        raise ValueError("values hold NaN: leave runs without a score out before")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, expected a number between 0 and 1")
    n_runs, n_columns = values.shape
    if n_runs == 0:
        return [Interval(mean=np.nan, low=np.nan, high=np.nan)] * n_columns
    rng = np.random.default_rng(seed)
    uniform = np.full(n_runs, 1.0 / n_runs)
    block = max(1, _BLOCK_CELLS // n_runs)
    # How often each run is drawn, times its value, is a resampled sum: one matrix product for all columns.
    sums = [
        rng.multinomial(n_runs, uniform, size=min(block, n_resamples - start)) @ values
        for start in range(0, n_resamples, block)
    ]
    tail = (1 - level) / 2
    lows, highs = np.quantile(np.concatenate(sums) / n_runs, [tail, 1 - tail], axis=0)
    return [
        Interval(mean=float(mean), low=float(low), high=float(high))
        for mean, low, high in zip(values.mean(axis=0), lows, highs, strict=True)
    ]


def paired_bootstrap(
    scores: npt.NDArray[np.float64],
    reference: npt.NDArray[np.float64],
    *,
    seed: int,
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> list[Interval]:
    """Bootstrap the mean difference of each column to a reference on the same runs.

    Parameters
    ----------
    scores : array of float, shape (n_runs, n_columns)
        One column a policy.
    reference : array of float, shape (n_runs,)
        The policy to compare with.
    seed, level, n_resamples
        As in `bootstrap_means`.

    Returns
    -------
    list of Interval, length n_columns
        Of ``scores - reference``: above 0 where the policy is better.

    Raises
    ------
    ValueError
        As in `bootstrap_means`.
    """
    return bootstrap_means(scores - reference[:, None], seed=seed, level=level, n_resamples=n_resamples)

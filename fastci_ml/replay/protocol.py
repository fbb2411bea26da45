"""The protocol of a prediction replay: which runs are scored, and what a model may have seen by then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastci_ml.features.log import FAILED, UNCLEAR, RunLog

# An order of fewer tests has nothing to choose.
MIN_TESTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How history is replayed.

    Attributes
    ----------
    start_share : float
        Runs before this share of all runs only teach; in (0, 1).
    retrain_share : float or None
        A model is trained again every so often, as a share of all runs, in (0, 1]; None trains once, at the
        start, which is a plain split by time.
    seed : int
        Of ties, random policies, training and resampling.
    n_repeats : int
        Orders whose mean is a policy's score of a run: ties are broken anew in each.
    n_random_repeats : int
        The same for policies that are random themselves.
    """

    start_share: float = 0.3
    retrain_share: float | None = 0.1
    seed: int = 0
    n_repeats: int = 3
    n_random_repeats: int = 10

    def __post_init__(self) -> None:
        if not 0 < self.start_share < 1:
            raise ValueError(f"start_share is {self.start_share}, expected a number between 0 and 1")
        if self.retrain_share is not None and not 0 < self.retrain_share <= 1:
            raise ValueError(f"retrain_share is {self.retrain_share}, expected a number above 0, at most 1")

    def first_run(self, log: RunLog) -> int:
        """Index of the first run that is predicted."""
        return int(self.start_share * log.n_runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Runs that one model predicts, and the runs it learned from.

    Attributes
    ----------
    first, last : int
        Runs ``first:last`` are predicted.
    training_runs : int64, shape (n_training_runs,)
        Runs that ended strictly before the first predicted run started, ascending.
    """

    first: int
    last: int
    training_runs: npt.NDArray[np.int64]


def training_blocks(log: RunLog, protocol: Protocol) -> list[Block]:
    """Cut the predicted runs into blocks, one model each.

    Returns
    -------
    list of Block
        In order of time; together they hold each predicted run once.
    """
    start, n_runs = protocol.first_run(log), log.n_runs
    step = n_runs if protocol.retrain_share is None else max(1, round(protocol.retrain_share * n_runs))
    return [
        Block(
            first=first,
            last=min(first + step, n_runs),
            # Runs overlap: one that started earlier may still be running when the block begins.
            training_runs=np.flatnonzero(log.finished_us < log.started_us[first]),
        )
        for first in range(start, n_runs, step)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoice:
    """The runs that are scored, and where the others went.

    Attributes
    ----------
    scored : int64, shape (n_scored,)
        Predicted runs with at least two tests and a failure, ascending.
    n_runs, n_predicted, n_too_small, n_passing : int
        All runs; those from the start on; of these, those with fewer than two tests that say anything, and
        those without a failure (which have no APFD). ``n_predicted = n_too_small + n_passing + len(scored)``.
    n_unclear : int
        Rows of predicted runs that say nothing about the code (skipped, infrastructure, flaky): they are in
        no order.
    """

    scored: npt.NDArray[np.int64]
    n_runs: int
    n_predicted: int
    n_too_small: int
    n_passing: int
    n_unclear: int


def choose_runs(log: RunLog, protocol: Protocol) -> RunChoice:
    """Find the runs to score, and count the rest."""
    start = protocol.first_run(log)
    run_of_row = log.run_of_row
    says_something = log.verdicts != UNCLEAR
    n_tests = np.bincount(run_of_row[says_something], minlength=log.n_runs)[start:]
    n_failed = np.bincount(run_of_row[log.verdicts == FAILED], minlength=log.n_runs)[start:]
    is_big = n_tests >= MIN_TESTS
    is_scored = is_big & (n_failed > 0)
    return RunChoice(
        scored=start + np.flatnonzero(is_scored),
        n_runs=log.n_runs,
        n_predicted=log.n_runs - start,
        n_too_small=int(np.count_nonzero(~is_big)),
        n_passing=int(np.count_nonzero(is_big & (n_failed == 0))),
        n_unclear=int(np.count_nonzero(~says_something[run_of_row >= start])),
    )

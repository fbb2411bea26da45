"""Prediction replay: how early each policy would have found the failures of recorded runs.

The protocol stands in `replay.protocol`, each choice with its reason in docs/metrics.md. Every policy sees
the features of a run as they were at its start, and nothing of the run itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

import numpy as np
import numpy.typing as npt

from fastci_ml.errors import TooLittleDataError
from fastci_ml.features.log import RunLog
from fastci_ml.learn.labels import labels, training_rows
from fastci_ml.learn.policies import POLICIES, SimplePolicy
from fastci_ml.learn.splits import rows_of_runs
from fastci_ml.records.progress import ProgressHook, silent
from fastci_ml.replay.protocol import Protocol, RunChoice, choose_runs, training_blocks
from fastci_ml.replay.scoring import Contender, RunView, ScoreTable

_Floats = npt.NDArray[np.float64]
_Matrix = npt.NDArray[np.float32]


class Ranker(Interface):
    """What replay asks of a fitted model."""

    def decision_function(self, X: _Matrix) -> _Floats:
        """Raw scores, higher is riskier, shape (n,); log-odds before calibration."""


# Called with features, labels (1 failed) and the run of each row; raises TooLittleDataError below its floors.
FitRanker = Callable[[_Matrix, _Floats, npt.NDArray[np.int64]], Ranker]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionReplay:
    """What a replay found.

    Attributes
    ----------
    protocol : Protocol
        As given.
    choice : RunChoice
        Which runs were scored.
    n_failures, n_new_failures : int64, shape (n_scored,)
        Failing tests of each scored run, and those whose previous run had passed.
    contenders : tuple of Contender
        Simple policies, the model twice (where there is one), the optimum.
    n_trainings : int
        How often the model was trained.
    n_imputed : int
        Tests of scored runs whose duration is unknown and taken to be the expected one.
    model_absence : str
        Why the model has no row; empty where it has one.
    """

    protocol: Protocol
    choice: RunChoice
    n_failures: npt.NDArray[np.int64]
    n_new_failures: npt.NDArray[np.int64]
    contenders: tuple[Contender, ...]
    n_trainings: int
    n_imputed: int
    model_absence: str


def replay_prediction(
    log: RunLog,
    X: _Matrix,
    protocol: Protocol,
    *,
    policies: Sequence[str] = tuple(POLICIES),
    fit: FitRanker | None = None,
    progress: ProgressHook = silent,
) -> PredictionReplay:
    """Run the protocol over a history.

    Parameters
    ----------
    log : RunLog
        The history.
    X : float32, shape (log.n_rows, N_FEATURES)
        `features.matrix.build_matrix` of it.
    protocol : Protocol
        Start, retraining, seed.
    policies : sequence of str
        Simple policies to compare: names of `POLICIES`. A policy's figures do not depend on the others.
    fit : callable, optional
        Trains the model; without it there is no model row.
    progress : ProgressHook
        Told of trainings and of scored runs.

    Raises
    ------
    TooLittleDataError
        If no run can be scored; the message says where the runs went.
    ValueError
        If a policy is unknown, or `X` has not one row for each row of `log`.
    """
    if len(X) != log.n_rows:
        raise ValueError(f"X has {len(X)} rows, the log {log.n_rows}")
    simple = [SimplePolicy(name) for name in policies]
    choice = choose_runs(log, protocol)
    if not len(choice.scored):
        raise TooLittleDataError(
            f"no run to score: of {choice.n_runs} runs {choice.n_predicted} lie after the start, "
            f"{choice.n_too_small} of these have fewer than two tests and {choice.n_passing} no failure",
            hint="fastci-ml status",
        )
    raw_scores, n_trainings, model_absence = _model_scores(log, X, protocol, fit, progress)
    table = ScoreTable(
        simple=simple, has_model=raw_scores is not None, n_scored=len(choice.scored), protocol=protocol
    )
    for place, run in enumerate(choice.scored.tolist()):
        table.add(place, RunView.of(log, X, run, raw_scores))
        progress("scoring runs", place + 1, len(choice.scored))
    return PredictionReplay(
        protocol=protocol,
        choice=choice,
        n_failures=table.n_failures,
        n_new_failures=table.n_new_failures,
        contenders=table.contenders(),
        n_trainings=n_trainings,
        n_imputed=table.n_imputed,
        model_absence=model_absence,
    )


def fit_model(seed: int) -> FitRanker:
    """Training of the model that bundles hold, as `replay_prediction` asks for it."""
    # scikit-learn is loaded by those who want the model only.
    from fastci_ml.learn.training import fit_ranker

    return lambda features, labels, runs: fit_ranker(features, labels, runs=runs, seed=seed)


def _model_scores(
    log: RunLog, X: _Matrix, protocol: Protocol, fit: FitRanker | None, progress: ProgressHook
) -> tuple[_Floats | None, int, str]:
    """Raw score of each predicted row, from the last model trained before it; or why there is none."""
    if fit is None:
        return None, 0, "not asked for"
    run_of_row = log.run_of_row
    is_label, y = training_rows(log), labels(log)
    scores = np.full(log.n_rows, np.nan)
    blocks = training_blocks(log, protocol)
    for i, block in enumerate(blocks):
        progress("training models", i, len(blocks))
        train = np.flatnonzero(rows_of_runs(log, block.training_runs) & is_label)
        try:
            ranker = fit(X[train], y[train], run_of_row[train])
        except TooLittleDataError as error:
            # A mean over the later runs alone would stand beside means over all: no row at all is honest.
            return None, i, f"training {i + 1} of {len(blocks)}: {error}"
        rows = slice(int(log.offsets[block.first]), int(log.offsets[block.last]))
        scores[rows] = ranker.decision_function(X[rows])
    progress("training models", len(blocks), len(blocks))
    return scores, len(blocks), ""

"""Simple policies on a real history score what was measured independently before this package existed.

The reference figures come from first tries on this history: train on 70%, evaluate later failing runs. Other
choices move figures by up to .02; ours agree within .01.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastci_ml.features.log import RunLog, build_log
from fastci_ml.features.matrix import build_matrix
from fastci_ml.replay.comparison import compare_all_failures, compare_new_failures
from fastci_ml.replay.prediction import PredictionReplay, replay_prediction
from fastci_ml.replay.protocol import Protocol
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.ingest.ingest import IngestOptions, ingest_paths
from fastci_ml.sources.presets import PRESETS

IOFROL = Path(__file__).parents[2].parent / "shared" / "data" / "ci_logs" / "iofrol" / "iofrol.csv"
pytestmark = pytest.mark.skipif(
    not IOFROL.is_file(), reason=f"no published history beside the checkout: {IOFROL}"
)

# Policy -> APFD, APFDc on the later 30%.
REFERENCE = {
    "random": (0.50, 0.50),
    "recently-failed": (0.653, 0.652),
    "failure-rate/duration": (0.618, 0.688),
    "recently-failed/duration": (0.607, 0.682),
    "optimal": (0.818, 0.836),
}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunLog, np.ndarray]:
    store = HistoryStore(tmp_path_factory.mktemp("iofrol") / "history")
    report = ingest_paths(store, [IOFROL], IngestOptions(lane="recorded", mapping=PRESETS["iofrol"]))
    assert not report.problems
    log = build_log(store)
    return log, build_matrix(log)


@pytest.fixture(scope="module")
def split(history: tuple[RunLog, np.ndarray]) -> PredictionReplay:
    return replay_prediction(*history, Protocol(start_share=0.7, retrain_share=None))


def test_the_same_runs_are_scored(history: tuple[RunLog, np.ndarray], split: PredictionReplay) -> None:
    assert split.choice.n_runs == 320
    assert len(split.choice.scored) == 64
    assert split.n_imputed == 0
    prequential = replay_prediction(*history, Protocol(), policies=["failure-rate"])
    assert len(prequential.choice.scored) == 156


@pytest.mark.parametrize("name", REFERENCE)
def test_policy_scores_what_was_measured_before(name: str, split: PredictionReplay) -> None:
    rows = {row.name: row for row in compare_all_failures(split).rows}
    assert (rows[name].means["apfd"], rows[name].means["apfdc"]) == pytest.approx(REFERENCE[name], abs=0.01)


def test_no_other_policy_is_far_better_than_those_measured_before(split: PredictionReplay) -> None:
    comparison = compare_all_failures(split)
    rows = {row.name: row.means for row in comparison.rows}
    assert 0.65 <= rows[comparison.best_simple["apfd"]]["apfd"] <= 0.68
    assert 0.68 <= rows[comparison.best_simple["apfdc"]]["apfdc"] <= 0.70


def test_new_failures_are_the_harder_ones(split: PredictionReplay) -> None:
    everything, new = compare_all_failures(split), compare_new_failures(split)
    assert (new.n_failures, new.n_runs) == (1_127, 40)
    for before, after in zip(everything.rows, new.rows, strict=True):
        # Repeating old failures does not help there.
        if before.name.startswith(("recently-failed", "last-failure", "failure-rate")):
            assert after.means["apfd"] < before.means["apfd"] - 0.03

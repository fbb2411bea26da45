from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from fastci_ml.errors import TooLittleDataError
from fastci_ml.features.log import RunLog
from fastci_ml.features.schema import FEATURE_NAMES
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.labels import labels
from fastci_ml.learn.training import Floors, fit_ranker, history_digest, train

CREATED_AT = datetime(2026, 11, 30, tzinfo=UTC)


def test_equal_arguments_give_equal_bundles_byte_for_byte(
    log: RunLog, X: np.ndarray, trained: ModelBundle, tmp_path: Path
) -> None:
    trained.save(tmp_path / "a")
    train(log, X, created_at=CREATED_AT, seed=3).save(tmp_path / "b")
    names = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(names) >= 7
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_the_card_says_what_was_learned_from_and_how_good_it_is(log: RunLog, trained: ModelBundle) -> None:
    card = trained.card
    assert card["created_at"] == "2026-11-30T00:00:00+00:00"
    assert card["history"]["n_runs"] == 60
    assert card["history"]["n_rows"] == 2_400
    assert card["history"]["n_failures"] == int(labels(log).sum())
    assert card["history"]["first_run_at"] == "2026-01-01T00:00:00+00:00"
    assert card["slices"]["test"]["n_runs"] == 9
    test = card["metrics"]["test"]
    # Failures here repeat, so both the model and the best rule are far above chance.
    assert 0.8 < test["apfd"] < 1
    assert test["best_simple_apfd"] > 0.8
    assert test["brier_skill"] > 0
    assert len(test["by_run"]) == test["n_failing_runs"]
    assert trained.is_calibrated
    assert set(card["gain"]) == set(FEATURE_NAMES)


@pytest.mark.parametrize(
    ("floors", "figure"),
    [
        (Floors(n_runs=61), "60 runs (needed 61)"),
        (Floors(n_failing_runs=100), "failing runs (needed 100)"),
        (Floors(n_failures=100_000), "failures (needed 100000)"),
    ],
)
def test_below_a_floor_nothing_is_trained_and_the_figures_say_why(
    log: RunLog, X: np.ndarray, floors: Floors, figure: str
) -> None:
    with pytest.raises(TooLittleDataError, match="too little history") as raised:
        train(log, X, created_at=CREATED_AT, floors=floors)
    assert figure in str(raised.value)
    with pytest.raises(TooLittleDataError):
        fit_ranker(X, labels(log), runs=log.run_of_row, floors=floors)


def test_an_empty_history_and_one_that_always_passes_are_too_little(log: RunLog, X: np.ndarray) -> None:
    with pytest.raises(TooLittleDataError, match="0 runs"):
        train(log.select_runs([]), X[:0], created_at=CREATED_AT)
    with pytest.raises(TooLittleDataError, match="0 failures"):
        fit_ranker(X, np.zeros(len(X)), runs=log.run_of_row)
    everything = Floors(n_runs=0, n_failing_runs=0, n_failures=0)
    with pytest.raises(TooLittleDataError, match="0 passes"):
        fit_ranker(X, np.ones(len(X)), runs=log.run_of_row, floors=everything)


def test_few_failures_in_the_last_runs_leave_the_model_uncalibrated(log: RunLog, X: np.ndarray) -> None:
    runs = np.arange(16)
    few = log.select_runs(runs)
    bundle = train(few, X[: few.n_rows], created_at=CREATED_AT, floors=Floors(n_failures=5))
    assert not bundle.is_calibrated
    assert any("uncalibrated" in warning for warning in bundle.card["warnings"])
    assert "brier_skill" not in bundle.card["metrics"]["test"]


def test_the_digest_of_a_history_follows_its_content(log: RunLog) -> None:
    assert history_digest(log) == history_digest(log)
    assert history_digest(log.select_runs(range(59))) != history_digest(log)

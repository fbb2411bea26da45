from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from random_runs import Run, to_log

from fastci_ml.errors import TooLittleDataError
from fastci_ml.features.log import RunLog
from fastci_ml.features.matrix import build_matrix
from fastci_ml.features.schema import FEATURE_NAMES
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.card import history_digest
from fastci_ml.learn.labels import labels, training_rows
from fastci_ml.learn.training import Floors, fit_ranker, train

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
    everything = Floors(n_runs=0, n_failing_runs=0, n_failures=0, n_passes=1)
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


def made(results: dict[int, Sequence[tuple[str, int, float]]], lanes: Sequence[str] = ("x",)) -> RunLog:
    """Runs ten microseconds apart, each over before the next; lanes take turns."""
    return to_log(
        [
            Run(lanes[i % len(lanes)], 10 * i, 10 * i + 5, tuple(rows), None)
            for i, rows in sorted(results.items())
        ]
    )


def runs_of_tests(
    n_runs: int, n_tests: int, fails: Callable[[int, int], object], seconds: float = 1.0
) -> dict[int, list[tuple[str, int, float]]]:
    return {
        run: [(f"t.py::t{test}", int(bool(fails(run, test))), seconds) for test in range(n_tests)]
        for run in range(n_runs)
    }


TOO_LITTLE: dict[str, tuple[dict[int, list[tuple[str, int, float]]], tuple[str, ...]]] = {
    "one row": (runs_of_tests(1, 1, lambda *_: 1), ("1 runs (needed 15)", "missing: 14 runs")),
    "five rows": (runs_of_tests(5, 1, lambda run, _: run == 2), ("5 runs (needed 15)", "missing: 10 runs")),
    "one run": (
        runs_of_tests(1, 99, lambda _, test: test < 40),
        ("1 runs (needed 15)", "missing: 14 runs, 4 failing runs"),
    ),
    "all pass": (
        runs_of_tests(50, 40, lambda *_: 0),
        ("0 failures (needed 15)", "missing: 5 failing runs, 15 failures"),
    ),
    "all fail": (runs_of_tests(50, 40, lambda *_: 1), ("0 passes (needed 15); missing: 15 passes",)),
    "all fail but once": (
        runs_of_tests(50, 40, lambda run, test: (run, test) != (9, 9)),
        ("1 passes (needed 15); missing: 14 passes",),
    ),
    "all pass but once": (
        runs_of_tests(50, 40, lambda run, test: (run, test) == (9, 9)),
        ("1 failures (needed 15)", "missing: 4 failing runs, 14 failures"),
    ),
    "one failing run": (
        runs_of_tests(50, 40, lambda run, _: run == 30),
        ("1 failing runs (needed 5)", "missing: 4 failing runs"),
    ),
    "nothing clear": (
        {run: [(f"t.py::t{test}", -1, 1.0) for test in range(30)] for run in range(40)},
        ("0 runs (needed 15), 0 failing runs (needed 5), 0 failures (needed 15), 0 passes",),
    ),
    "one test in turns": (
        runs_of_tests(40, 1, lambda run, _: run % 2),
        ("in 40 results no feature tells failures from passes (a leaf holds at least 30",),
    ),
    "a test for each class": (
        runs_of_tests(16, 2, lambda _, test: test == 0),
        ("in 32 results no feature tells failures from passes",),
    ),
}


@pytest.mark.parametrize("what", TOO_LITTLE)
def test_a_one_sided_or_tiny_history_is_refused_with_what_is_missing(what: str) -> None:
    # case 49: LightGBM itself gives all of these a model, with one score for every test.
    results, parts = TOO_LITTLE[what]
    log = made(results)
    X = build_matrix(log)
    with pytest.raises(TooLittleDataError, match="too little history to train on") as raised:
        train(log, X, created_at=CREATED_AT)
    for part in parts:
        assert part in str(raised.value)
    assert raised.value.hint == "fastci-ml ingest"
    rows = training_rows(log)
    with pytest.raises(TooLittleDataError):
        fit_ranker(X[rows], labels(log)[rows], runs=log.run_of_row[rows])


def test_runs_that_know_nothing_of_each_other_teach_nothing() -> None:
    # Constant features: all runs start before the first one ends.
    rows = tuple((f"t.py::t{test}", int(test < 3), 1.0) for test in range(30))
    log = to_log([Run("x", i, 10_000, rows, None) for i in range(60)])
    with pytest.raises(TooLittleDataError, match="no feature tells failures from passes"):
        train(log, build_matrix(log), created_at=CREATED_AT)


def test_lightgbm_itself_gives_such_histories_a_probability() -> None:
    # Why there are floors. Five rows: a constant; nothing but passes: 1e-15.
    import lightgbm

    X = np.arange(10.0).reshape(5, 2)
    params = {"objective": "binary", "verbosity": -1, "num_threads": 1}
    for y, expected in (([1, 0, 1, 0, 1], 0.6), ([0, 0, 0, 0, 0], 1e-15)):
        booster = lightgbm.train(params, lightgbm.Dataset(X, np.array(y, dtype=float)), 5)
        np.testing.assert_allclose(booster.predict(X), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("results", "warning"),
    [
        # Nothing fails before the last slice: there is no earlier model to judge or to calibrate with.
        (runs_of_tests(60, 40, lambda run, test: run > 52 and test < 4), "nothing was judged and risks are"),
        # Nothing fails in it.
        (runs_of_tests(60, 40, lambda run, test: run < 8 and test < 4), "0 failures and 360 passes"),
        # All of the last slice fails.
        (runs_of_tests(60, 40, lambda run, test: run > 45 or test < 1), "and 0 passes in the last runs"),
        # What always failed passes in the end, and what never failed fails, each test once: scores mislead.
        (
            runs_of_tests(
                60,
                40,
                lambda run, test: test < 4 if run < 51 else 4 + 4 * (run - 51) <= test < 8 + 4 * (run - 51),
            ),
            "failures do not score higher than passes there",
        ),
    ],
    ids=["failures last", "failures first", "all fail last", "misleading"],
)
def test_above_the_floors_a_model_that_cannot_be_checked_orders_and_gives_no_risk(
    results: dict[int, list[tuple[str, int, float]]], warning: str, tmp_path: Path
) -> None:
    # case 49
    log = made(results)
    X = build_matrix(log)
    train(log, X, created_at=CREATED_AT).save(tmp_path / "model")
    bundle = ModelBundle.load(tmp_path / "model")
    assert not bundle.is_calibrated
    assert any(warning in text for text in bundle.card["warnings"]), bundle.card["warnings"]
    assert any("uncalibrated" in text for text in bundle.card["warnings"])
    assert bundle.card["calibration"] == "uncalibrated"
    assert len(np.unique(bundle.raw_scores(X))) > 1
    assert np.isnan(bundle.risk(X)).all()


@pytest.mark.parametrize("seconds", [math.nan, 0.0])
def test_durations_that_are_all_unknown_or_nothing_train_a_model_all_the_same(seconds: float) -> None:
    rng = np.random.default_rng(0)
    log = made(runs_of_tests(80, 40, lambda _, test: rng.random() < (0.4 if test < 6 else 0.01), seconds))
    bundle = train(log, build_matrix(log), created_at=CREATED_AT)
    assert bundle.is_calibrated
    risks = bundle.risk(build_matrix(log))
    assert 1e-4 < risks.min() < risks.max() < 0.99
    assert 0 < bundle.card["metrics"]["test"]["apfdc"] < 1


def test_a_model_is_calibrated_for_the_lanes_that_it_was_checked_on_and_no_other(tmp_path: Path) -> None:
    # case 49, by lane: on one that it never saw, risks are many times too high here.
    rng = np.random.default_rng(1)
    rates = {"often": 0.2, "seldom": 0.01}
    lanes = ("often", "seldom")

    def rows(lane: str) -> list[tuple[str, int, float]]:
        return [
            (f"t{test % 5}.py::t{test}", int(rng.random() < rates[lane] * (2 if test < 10 else 0.5)), 1.0)
            for test in range(40)
        ]

    both = made({run: rows(lanes[run % 2]) for run in range(160)}, lanes)
    bundle = train(both, build_matrix(both), created_at=CREATED_AT)
    assert [bundle.calibrates(lane) for lane in ("often", "seldom", "new")] == [True, True, False]
    figures = bundle.card["calibration_lanes"]
    assert figures["often"]["risk"] > 3 * figures["seldom"]["risk"]
    assert sum(lane["n_rows"] for lane in figures.values()) == bundle.calibration.n_rows

    one = made({run: rows("often") for run in range(160)}, ("often",))
    bundle = train(one, build_matrix(one), created_at=CREATED_AT)
    bundle.save(tmp_path / "model")
    bundle = ModelBundle.load(tmp_path / "model")
    assert [bundle.calibrates(lane) for lane in ("often", "seldom")] == [True, False]
    unseen = bundle.state.matrix([f"t{test % 5}.py::t{test}" for test in range(40)], "seldom", None)
    assert bundle.risk(unseen).mean() > 5 * rates["seldom"]
    # A bundle of the first release does not say; an uncalibrated one says no for every lane.
    del bundle.card["calibration_lanes"]  # type: ignore[attr-defined]
    assert bundle.calibrates("seldom")

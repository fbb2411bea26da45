from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastci_ml.errors import DataError, RegistryError
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.registry import Registry
from fastci_ml.learn.registry.versions import OutcomeRecord, total_outcomes
from fastci_ml.learn.spool import Spool
from fastci_ml.settings import Settings


def record(outcome_id: str, version: str = "1") -> dict[str, Any]:
    return {
        "outcome_id": outcome_id,
        "model": {"name": "fastci-risk", "version": version},
        "at": "2026-11-30T12:00:00",
        "metrics": {"n_failures": 1, "apfd": None},
    }


def test_records_wait_and_the_ones_that_cannot_be_sent_stay(
    make_settings: Callable[..., Settings], bundle_dir: Path
) -> None:
    settings = make_settings()
    registry = Registry(settings)
    registry.log_training(bundle_dir, ModelBundle.load(bundle_dir), [])
    spool = Spool(settings.spool_dir)
    assert spool.flush(registry).n_sent == 0
    spool.add(record("a/../b"))
    spool.add(record("a/../b"))
    spool.add(record("c"))
    unknown = spool.add(record("d", version="9"))
    torn = settings.spool_dir / "torn.json"
    torn.write_text('{"outcome_id": "e", ')
    report = spool.flush(registry)
    assert report.n_sent == 2
    assert set(report.failures) == {unknown, torn}
    assert spool.files() == sorted([unknown, torn])
    assert registry.versions()[0].outcomes == {"n_outcomes": 2, "n_failures": 2}


def test_nothing_is_lost_while_the_registry_is_away(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, state_dir=tmp_path, tracking_uri="http://127.0.0.1:9")
    spool = Spool(settings.spool_dir)
    path = spool.add(record("a"))
    with pytest.raises(RegistryError, match=r"127\.0\.0\.1:9"):
        spool.flush(Registry(settings))
    assert json.loads(path.read_text()) == record("a")


@pytest.mark.parametrize("outcome_id", [None, "", 7])
def test_a_record_without_an_id_is_refused(tmp_path: Path, outcome_id: object) -> None:
    with pytest.raises(DataError, match="outcome_id"):
        Spool(tmp_path).add({"outcome_id": outcome_id})


def test_numbers_that_say_nothing_are_left_out() -> None:
    metrics = {"apfd": None, "n_run": 3, "x": float("nan"), "y": float("inf")}
    outcome = OutcomeRecord.from_json({**record("a"), "metrics": metrics})
    assert outcome.metrics == {"n_run": 3.0}
    assert outcome.at.tzinfo is not None


@pytest.mark.parametrize(
    "change",
    [
        {"outcome_id": ""},
        {"model": None},
        {"model": {"version": "1"}},
        {"at": "soon"},
        {"metrics": {"x": "y"}},
    ],
)
def test_a_record_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="no CI outcome record"):
        OutcomeRecord.from_json(record("a") | change)


def test_counts_and_savings_add_up_and_the_rest_is_a_mean() -> None:
    outcomes = [
        {"n_run": 2.0, "apfd": 0.5, "expected_saved_s": 10.0, "observed_failures": 1.0},
        {"n_run": 3.0, "apfd": 1.0, "expected_saved_s": 5.0, "observed_failures": 0.0},
        {"n_run": 1.0},
    ]
    assert total_outcomes(outcomes) == {
        "n_outcomes": 3.0,
        "apfd": 0.75,
        "expected_saved_s": 15.0,
        "n_run": 6.0,
        "observed_failures": 1.0,
    }

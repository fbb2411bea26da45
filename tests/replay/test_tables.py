"""The answer of a replay: nothing unsaid in the notes, nothing rounded in the JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from fastci_ml.cli.output import answer_json
from fastci_ml.features.log import RunLog
from fastci_ml.features.matrix import build_matrix
from fastci_ml.learn.policies import POLICIES
from fastci_ml.replay.comparison import compare_all_failures
from fastci_ml.replay.prediction import PredictionReplay, replay_prediction
from fastci_ml.replay.protocol import Protocol
from fastci_ml.replay.scoring import METRICS
from fastci_ml.replay.tables import (
    comparison_frame,
    comparison_heading,
    replay_cells,
    replay_comparisons,
    replay_document,
    replay_notes,
)


@pytest.fixture(scope="module")
def replay(busy_log: RunLog) -> PredictionReplay:
    return replay_prediction(busy_log, build_matrix(busy_log), Protocol(seed=5))


def test_notes_say_how_faults_ties_and_runs_were_counted(replay: PredictionReplay) -> None:
    text = "\n".join(replay_notes(replay))
    for part in (
        "80, of which 24 came before the start (30%)",
        "one fault per failing test (per_failure)",
        "seed 5",
        "mean of 3 orders, 10 for random and thompson",
        "results that say nothing about the code",
        "unknown durations taken to be the expected ones",
        "no row lightgbm: not asked for",
        f"{len(replay.choice.scored)} failing runs scored",
        f"{replay.choice.n_passing} without failures",
        f"{replay.choice.n_too_small} dropped",
    ):
        assert part in text


def test_table_has_every_policy_and_one_best_a_metric(replay: PredictionReplay) -> None:
    for comparison in replay_comparisons(replay):
        header, rows = replay_cells(comparison)
        assert [row[0] for row in rows] == [*POLICIES, "optimal"]
        assert {len(row) for row in rows} == {len(header)}
        for column, heading in enumerate(header):
            if heading.startswith("vs"):
                assert [row[column] for row in rows].count("best") == 1
        assert f"{comparison.n_failures:,} in {comparison.n_runs:,} runs" in comparison_heading(comparison)


def test_frame_has_every_policy_and_the_figures_of_the_comparison(replay: PredictionReplay) -> None:
    comparison = compare_all_failures(replay)
    frame = comparison_frame(comparison)
    assert list(frame.index) == [(row.kind, row.name) for row in comparison.rows]
    assert list(frame.columns.unique("metric")) == list(METRICS)
    for row, (_, cells) in zip(comparison.rows, frame.iterrows(), strict=True):
        for metric, interval in row.differences.items():
            found = cells[metric][["mean", "vs_best", "low", "high"]].tolist()
            assert found == [row.means[metric], interval.mean, interval.low, interval.high]


def test_frame_without_simple_policies_knows_no_differences(busy_log: RunLog) -> None:
    replay = replay_prediction(busy_log, build_matrix(busy_log), Protocol(), policies=[])
    frame = comparison_frame(compare_all_failures(replay))
    assert frame["apfd"].notna().to_numpy().tolist() == [[True, False, False, False]]


def test_replay_without_a_pass_to_fail_failure_says_so(make_log: Callable[..., RunLog]) -> None:
    log = make_log([{"a": (1, 1.0), "b": (0, 1.0)}] * 3)
    comparison = replay_comparisons(replay_prediction(log, build_matrix(log), Protocol()))[1]
    assert comparison_heading(comparison).endswith(": none")
    _, rows = replay_cells(comparison)
    assert {cell for row in rows for cell in row[1:]} == {"-"}


def test_document_survives_json_with_full_floats(
    replay: PredictionReplay, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_json(replay_document(replay))
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "fastci.replay/1"
    assert document["protocol"]["fault_mapping"] == "per_failure"
    assert document["model"] == {"n_trainings": 0, "absence": "not asked for"}
    runs = document["runs"]
    assert runs["n_predicted"] == runs["n_scored"] + runs["n_passing"] + runs["n_too_small"]
    everything, new = document["comparisons"]
    assert (everything["failures"], new["failures"]) == ("all", "pass_to_fail")
    expected = compare_all_failures(replay)
    for policy, row in zip(everything["policies"], expected.rows, strict=True):
        assert policy["means"] == row.means
        assert policy["vs_best_simple"]["apfdc"]["low"] == row.differences["apfdc"].low


def test_same_history_gives_the_same_document(busy_log: RunLog, replay: PredictionReplay) -> None:
    again = replay_prediction(busy_log, build_matrix(busy_log), Protocol(seed=5))
    np.testing.assert_equal(replay_document(again), replay_document(replay))

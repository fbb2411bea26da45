from __future__ import annotations

import dataclasses
import math

import pytest

from fastci_ml.records.frames import EXECUTIONS
from fastci_ml.records.ids import NodeId
from fastci_ml.records.outcomes import Execution, FailureClass, Outcome


@pytest.mark.parametrize("outcome", Outcome)
def test_only_failed_and_error_count_against_a_run(outcome):
    assert outcome.is_failure == (outcome.value in ("failed", "error"))


@pytest.mark.parametrize("outcome", Outcome)
def test_skipped_and_unknown_say_nothing_about_the_code(outcome):
    assert outcome.has_run == (outcome.value not in ("skipped", "unknown"))


def test_failure_classes_are_those_of_the_evaluation():
    assert {kind.value for kind in FailureClass} == {
        "", "test", "setup", "timeout", "crash", "infrastructure", "environment", "flaky",
    }  # fmt: skip


def test_execution_knows_nothing_it_was_not_told():
    execution = Execution(
        run_id="1", job="", shard="", lane="l", node_id=NodeId("a::b"), outcome=Outcome.PASSED
    )
    assert math.isnan(execution.duration_s)
    assert math.isnan(execution.n_gpus)
    assert math.isnan(execution.gpu_s)
    assert execution.started_at is None


def test_execution_has_the_columns_of_its_frame():
    assert [field.name for field in dataclasses.fields(Execution)] == list(EXECUTIONS.columns)

"""Evaluation: one mean over all tokens, in every layout, and no trace in training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from declare import case
from oracles import FP64, assert_close

if TYPE_CHECKING:
    from runs import Train

CHECKS = {"eval_loss": "tolerance"}


@pytest.mark.parametrize(
    "plain",
    [
        # 23 rows in batches of 8: the last one is not full, and one data rank has none of it.
        case(
            "cp-last-batch-uneven",
            2,
            "tiny",
            "parallel.cp=2 run.steps=10 run.eval_every=5 run.eval_batches=9 data.eval_documents=31 "
            "precision.dtype=fp64",
            CHECKS,
            None,
            smoke=True,
        ),
        case(
            "dp-one-rank-without-rows",
            4,
            "tiny-moe",
            "parallel.dp=4 parallel.ep=2 data.micro_batch=1 run.steps=10 run.eval_every=10 "
            "run.eval_batches=9 data.eval_documents=13 precision.dtype=fp64",
            CHECKS,
            None,
        ),
        case(
            "pp-virtual",
            2,
            "tiny",
            "model.layers=4 parallel.pp=2 parallel.vpp=2 data.micro_batch=2 run.steps=10 run.eval_every=4 "
            "precision.dtype=fp64",
            CHECKS,
            None,
        ),
        case(
            "tp-sequence-unpacked-dropout",
            2,
            "tiny",
            "parallel.tp=2 parallel.sequence_parallel=true data.packing=false model.dropout=0.3 "
            "run.steps=10 run.eval_every=5 precision.dtype=fp64",
            CHECKS,
            None,
        ),
        case(
            "capacity-cp-ep-zero",
            4,
            "tiny-moe",
            "model.capacity_factor=1.0 parallel.cp=2 parallel.dp=2 parallel.ep=4 parallel.zero=true "
            "run.steps=10 run.eval_every=5 run.eval_batches=1 precision.dtype=fp64",
            CHECKS,
            None,
        ),
    ],
)
def test_eval_loss_is_that_of_one_rank(plain: None, train: Train) -> None:
    assert_close(train().eval_losses, train.plain().eval_losses, FP64)


@pytest.mark.recipe(
    "tiny", "run.steps=10", "model.dropout=0.1", world=1, checks={"loss": "exact", "events": "exact"}
)
def test_evaluation_leaves_no_trace_in_training(train: Train) -> None:
    run = train("run.eval_every=3")
    assert run.losses == train.plain("run.eval_every=0").losses
    assert run.events == [("eval", 3), ("eval", 6), ("eval", 9), ("eval", 10), ("end", 10)]


@pytest.mark.recipe(
    "tiny",
    "run.steps=6",
    "run.eval_every=6",
    "data.eval_documents=31",
    "precision.dtype=fp64",
    world=1,
    checks={"eval_loss": "tolerance"},
)
def test_eval_loss_does_not_depend_on_the_micro_batch_and_more_batches_add_rows(train: Train) -> None:
    whole = train("run.eval_batches=50", folder="a").eval_losses
    assert_close(train("run.eval_batches=50", "data.micro_batch=1", folder="b").eval_losses, whole, FP64)
    assert_close(train("run.eval_batches=3", folder="c").eval_losses, whole, FP64)  # 24 rows hold them all
    assert train("run.eval_batches=1", folder="d").eval_losses != pytest.approx(whole, rel=1e-4)


@pytest.mark.recipe(
    "tiny", "run.steps=4", "run.eval_every=4", "optim.lr=1e-20", world=1, checks={"eval_loss": "exact"}
)
def test_evaluation_loss_is_taken_without_dropout(train: Train) -> None:
    """Nothing is learned at this rate, so both runs evaluate the same weights."""
    with_dropout = train("model.dropout=0.5", folder="with")
    assert with_dropout.eval_losses == train(folder="without").eval_losses

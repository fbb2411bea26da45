"""Every layout trains like one rank: losses, balance and gradient norms agree in every step.

Gradient norms hold the gradient of every weight, and the losses of later steps hold every update; that of the
last step is held by the evaluation that ends each run. In fp64 the
layouts agree to rounding; in fp32, as trained, to 1e-5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from declare import IDENTICAL, SAME, case
from oracles import FP32, FP64, assert_close, assert_identical_training, assert_same_training

if TYPE_CHECKING:
    from runs import Train

EXPERTS = {**SAME, "balance": "tolerance"}


@pytest.mark.parametrize(
    "tolerance",
    [
        case("tp", 2, "small", "parallel.tp=2 run.steps=10", SAME, FP32, smoke=True),
        case(
            "dp-clipped",
            2,
            "small",
            "parallel.dp=2 data.micro_batch=2 run.steps=10 optim.clip=0.1",
            SAME,
            FP32,
        ),
        case(
            "cp-long-documents",
            2,
            "small",
            "parallel.cp=2 run.steps=10 precision.dtype=fp64 data.mean_length=100",
            SAME,
            FP64,
            smoke=True,
        ),
        case("pp", 2, "small", "parallel.pp=2 data.micro_batch=2 run.steps=10", SAME, FP32, smoke=True),
        case(
            "pp-virtual",
            2,
            "small",
            "parallel.pp=2 parallel.vpp=2 data.micro_batch=1 run.steps=6 precision.dtype=fp64",
            SAME,
            FP64,
        ),
        case(
            "pp4-tied",
            4,
            "small",
            "parallel.pp=4 data.micro_batch=1 model.tied_embeddings=true run.steps=6 precision.dtype=fp64",
            SAME,
            FP64,
        ),
        case(
            "zero4",
            4,
            "small",
            "parallel.dp=4 parallel.zero=true data.micro_batch=2 run.steps=10",
            SAME,
            FP32,
        ),
        case(
            "zero-lion-tied",
            2,
            "small",
            "parallel.dp=2 parallel.zero=true model.tied_embeddings=true run.steps=10 "
            "optim.name=lion optim.lr=3e-4 precision.dtype=fp64",
            SAME,
            FP64,
        ),
        case(
            "tp-sequence-dropout",
            2,
            "tiny",
            "parallel.tp=2 parallel.sequence_parallel=true model.dropout=0.2 run.steps=10 "
            "precision.dtype=fp64",
            SAME,
            FP64,
        ),
        case(
            "tp-cp-sequence-dropout",
            4,
            "tiny",
            "parallel.tp=2 parallel.cp=2 parallel.sequence_parallel=true model.dropout=0.2 "
            "run.steps=10 precision.dtype=fp64",
            SAME,
            FP64,
        ),
        case(
            "tp4-two-kv-heads",
            4,
            "tiny",
            "parallel.tp=4 model.kv_heads=2 run.steps=10 precision.dtype=fp64",
            SAME,
            FP64,
        ),
        case(
            "tp-pp-tied-sequence",
            4,
            "tiny",
            "parallel.tp=2 parallel.pp=2 model.tied_embeddings=true "
            "parallel.sequence_parallel=true data.micro_batch=2 run.steps=10 precision.dtype=fp64",
            SAME,
            FP64,
        ),
        case(
            "cp-pp-recompute",
            4,
            "tiny",
            "parallel.cp=2 parallel.pp=2 parallel.recompute_layers=1 data.micro_batch=2 run.steps=10",
            SAME,
            FP32,
        ),
        case("cp4-unpacked", 4, "tiny", "parallel.cp=4 data.packing=false run.steps=10", SAME, FP32),
    ],
)
def test_dense_layout_trains_like_one_rank(tolerance: float, train: Train) -> None:
    assert_same_training(train(), train.plain(), tolerance)


@pytest.mark.parametrize(
    "tolerance",
    [
        case("ep", 2, "small-moe", "parallel.dp=2 parallel.ep=2 run.steps=10", EXPERTS, FP32, smoke=True),
        case(
            "ep-of-dp4-zero",
            4,
            "small-moe",
            "parallel.dp=4 parallel.ep=2 parallel.zero=true data.micro_batch=2 run.steps=6 "
            "precision.dtype=fp64",
            EXPERTS,
            FP64,
        ),
        case(
            "tp",
            2,
            "tiny-moe",
            "parallel.tp=2 model.balance_coefficient=0.5 run.steps=10 precision.dtype=fp64",
            EXPERTS,
            FP64,
        ),
        case(
            "tp-sequence-capacity",
            2,
            "tiny-moe",
            "parallel.tp=2 parallel.sequence_parallel=true model.capacity_factor=1.0 run.steps=10 "
            "precision.dtype=fp64",
            EXPERTS,
            FP64,
        ),
        case(
            "ep-over-cp-capacity",
            2,
            "tiny-moe",
            "parallel.cp=2 parallel.ep=2 model.capacity_factor=0.75 run.steps=10 "
            "precision.dtype=fp64 model.balance_coefficient=0.5",
            EXPERTS,
            FP64,
        ),
        case(
            "tp-ep-top1",
            4,
            "tiny-moe",
            "parallel.tp=2 parallel.dp=2 parallel.ep=2 model.top_k=1 "
            "model.balance_coefficient=0.5 run.steps=10 precision.dtype=fp64",
            EXPERTS,
            FP64,
        ),
        case(
            "pp-ep-one-stage-dense",
            4,
            "tiny-moe",
            "parallel.pp=2 parallel.dp=2 parallel.ep=2 model.layers=4 model.moe_every=3 "
            "data.micro_batch=2 model.balance_coefficient=0.5 run.steps=10 precision.dtype=fp64",
            EXPERTS,
            FP64,
        ),
        case(
            "ep4",
            4,
            "tiny-moe",
            "parallel.dp=4 parallel.ep=4 model.experts=8 data.micro_batch=2 run.steps=10",
            EXPERTS,
            FP32,
        ),
    ],
)
def test_expert_layout_trains_like_one_rank(tolerance: float, train: Train) -> None:
    run, plain = train(), train.plain()
    assert_same_training(run, plain, tolerance)
    assert_close(run.steps("balance"), plain.steps("balance"), tolerance)


@pytest.mark.parametrize(
    "whole",
    [
        case("dense", 1, "small", "data.micro_batch=1 run.steps=10", SAME, 8, smoke=True),
        case(
            "experts-capacity-dropout",
            1,
            "small-moe",
            "data.micro_batch=2 model.capacity_factor=1.0 model.dropout=0.1 run.steps=10",
            SAME,
            8,
        ),
        case(
            "unpacked-pp-dp",
            4,
            "tiny",
            "data.micro_batch=1 data.packing=false parallel.dp=2 parallel.pp=2 run.steps=10",
            SAME,
            8,
        ),
    ],
)
def test_accumulation_trains_like_the_whole_batch(whole: int, train: Train) -> None:
    """Micro-batches hold different numbers of counted tokens: a mean of means would differ."""
    assert_same_training(train(), train.plain(f"data.micro_batch={whole}"), FP32)


@pytest.mark.parametrize(
    "chunk",
    [
        case("all-in-one", 1, "tiny-moe", "model.layers=4 run.steps=10 model.dropout=0.1", IDENTICAL, 4),
        case(
            "rest-of-one",
            1,
            "tiny-moe",
            "model.layers=4 run.steps=10 model.dropout=0.1",
            IDENTICAL,
            3,
            smoke=True,
        ),
        case("bf16-experts", 1, "tiny-moe", "model.layers=4 run.steps=5 precision.dtype=bf16", IDENTICAL, 2),
    ],
)
def test_recompute_changes_no_bit(chunk: int, train: Train) -> None:
    assert_identical_training(train(f"parallel.recompute_layers={chunk}"), train.plain())


@pytest.mark.recipe(
    "tiny",
    "precision.dtype=bf16",
    "parallel.dp=2",
    "parallel.zero=true",
    "parallel.bucket_kib=5",
    "run.steps=10",
    world=2,
    checks={**IDENTICAL, "grad_norm": "tolerance"},
)
def test_zero_changes_no_bit_on_two_ranks(train: Train) -> None:
    """A sum of two is the same in any order: reduce-scatter gives what all-reduce gives."""
    sharded, whole = train(folder="sharded"), train("parallel.zero=false", folder="whole")
    assert sharded.losses == whole.losses
    assert sharded.eval_losses == whole.eval_losses
    assert sharded.steps("grad_norm") == pytest.approx(whole.steps("grad_norm"), rel=1e-12)

"""Sizes that do not divide: sequences, chunks, shares of parameters, heads, vocabularies, batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from declare import IDENTICAL, SAME, case
from oracles import FP64, assert_identical_training, assert_same_training

if TYPE_CHECKING:
    from runs import Train


@pytest.mark.parametrize(
    "tolerance",
    [
        case(
            "odd-sequence-over-dp",
            2,
            "tiny",
            "data.sequence=37 parallel.dp=2 run.steps=10 precision.dtype=fp64",
            SAME,
            FP64,
        ),
        case(
            "sequence-of-one-token-a-piece",
            4,
            "tiny",
            "data.sequence=8 data.mean_length=5 parallel.cp=4 run.steps=10 precision.dtype=fp64",
            SAME,
            FP64,
        ),
        case(
            "vocabulary-over-tp4",
            4,
            "tiny",
            "model.vocabulary=97 model.kv_heads=4 parallel.tp=4 run.steps=10 precision.dtype=fp64",
            SAME,
            FP64,
            smoke=True,
        ),
        case(
            "parameters-over-zero3-one-bucket",
            3,
            "tiny",
            "data.batch=9 data.micro_batch=3 model.ffn=61 parallel.dp=3 parallel.zero=true "
            "parallel.bucket_kib=100000 run.steps=10 precision.dtype=fp64",
            SAME,
            FP64,
        ),
        case(
            "one-kv-head-over-tp-with-sequence-split",
            2,
            "tiny",
            "model.kv_heads=1 parallel.tp=2 parallel.sequence_parallel=true parallel.recompute_layers=3 "
            "run.steps=10 precision.dtype=fp64",
            SAME,
            FP64,
        ),
        case(
            "experts-without-tokens",
            2,
            "tiny-moe",
            "model.experts=16 model.top_k=1 data.sequence=4 data.mean_length=4 data.batch=2 "
            "data.micro_batch=1 parallel.dp=2 parallel.ep=2 run.steps=10 precision.dtype=fp64",
            SAME,
            FP64,
        ),
    ],
)
def test_uneven_sizes_train_like_one_rank(tolerance: float, train: Train) -> None:
    assert_same_training(train(), train.plain(), tolerance)


@pytest.mark.recipe(
    "tiny", "model.layers=7", "run.steps=5", "parallel.pp=1", world=1, checks=IDENTICAL
)  # a prime number of blocks: no chunk but 1 and 7 divides it
@pytest.mark.parametrize("chunk", [1, 2, 5, 8])
def test_any_chunk_of_recompute_gives_the_same(chunk: int, train: Train) -> None:
    assert_identical_training(train(f"parallel.recompute_layers={chunk}"), train.plain())

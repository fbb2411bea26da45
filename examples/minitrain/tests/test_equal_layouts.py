"""Every layout trains like one rank: the same losses and gradient norms, to rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from oracles import FP64, assert_same_training

if TYPE_CHECKING:
    from runs import Train

SAME = {"loss": "tolerance", "grad_norm": "tolerance"}


@pytest.mark.smoke
@pytest.mark.recipe("small", "parallel.tp=2", "precision.dtype=fp64", "run.steps=6", world=2, checks=SAME)
def test_tensor_parallel(train: Train) -> None:
    assert_same_training(train(), train.plain(), FP64)

"""Number formats: bf16 and fp16 train near fp32, and the loss scale moves when and where it must."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from declare import SAME, case
from oracles import assert_close, assert_same_training
from pool import RankError

from minitrain.config import PrecisionConfig
from minitrain.errors import DivergenceError
from minitrain.mesh import Mesh
from minitrain.precision import LossScaler
from minitrain.recipes import recipe
from minitrain.trainer import Trainer

if TYPE_CHECKING:
    from pathlib import Path

    from runs import Train

    from minitrain.config import Config


def scaler(**settings: float) -> LossScaler:
    return LossScaler(PrecisionConfig(dtype="fp16", **settings))  # type: ignore[arg-type]


def test_scale_halves_after_an_overflow_and_doubles_after_good_steps_in_a_row() -> None:
    made = scaler(loss_scale=8.0, growth_interval=2)
    scales = []
    for is_finite in (False, True, False, True, True, True, True, False):
        made.update(is_finite=is_finite)
        scales.append(made.scale)
    assert scales == [4, 4, 2, 2, 4, 4, 8, 4]


def test_scale_that_cannot_fall_further_is_an_error() -> None:
    made = scaler(loss_scale=2.0)
    made.update(is_finite=False)
    with pytest.raises(DivergenceError, match="not finite at loss scale 1"):
        made.update(is_finite=False)


def test_scale_goes_on_from_its_state() -> None:
    first, second = scaler(loss_scale=4.0, growth_interval=3), scaler(growth_interval=3)
    first.update(is_finite=True)
    first.update(is_finite=True)
    second.restore(first.state())
    second.update(is_finite=True)
    assert second.scale == 8.0


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16"])
def test_other_formats_have_no_scale(dtype: str) -> None:
    made = LossScaler(PrecisionConfig(dtype=dtype))  # type: ignore[arg-type]
    for _ in range(200):
        made.update(is_finite=True)
    made.restore({"scale": 4.0, "n_good_steps": 0})
    assert made.scale == 1.0
    with pytest.raises(DivergenceError):
        made.update(is_finite=False)


@pytest.mark.parametrize(
    "tolerance",
    [
        case("bf16", 1, "tiny", "precision.dtype=bf16 run.steps=20", SAME, 0.02, smoke=True),
        case(
            "bf16-zero-accumulated",
            2,
            "tiny",
            "precision.dtype=bf16 parallel.dp=2 parallel.zero=true data.micro_batch=1 run.steps=20",
            SAME,
            0.02,
        ),
        case(
            "bf16-experts-cp-recompute",
            2,
            "tiny-moe",
            "precision.dtype=bf16 parallel.cp=2 parallel.ep=2 parallel.recompute_layers=2 run.steps=10",
            SAME,
            0.05,
        ),
        case(
            "fp16-tp-pp",
            4,
            "tiny",
            "precision.dtype=fp16 parallel.tp=2 parallel.pp=2 data.micro_batch=2 run.steps=10",
            SAME,
            0.02,
        ),
    ],
)
def test_half_precision_trains_near_fp32(tolerance: float, train: Train) -> None:
    assert_same_training(train(), train.plain("precision.dtype=fp32"), tolerance)


@pytest.mark.recipe(
    "tiny",
    "precision.dtype=bf16",
    "parallel.tp=2",
    "run.steps=2",
    "run.eval_every=0",
    "optim.warmup_steps=1",
    world=2,
    checks={"loss": "invariant"},
)
def test_half_precision_is_used(train: Train) -> None:
    """Else the tests above would hold for any format."""
    run, exact = train(), train.plain("precision.dtype=fp32")
    assert all(abs(a - b) > 1e-5 for a, b in zip(run.losses, exact.losses, strict=True))


@pytest.mark.recipe(
    "tiny",
    "precision.dtype=fp16",
    "precision.loss_scale=67108864",
    "precision.growth_interval=4",
    "run.steps=20",
    "run.eval_every=0",
    "parallel.dp=2",
    world=2,
    checks={
        "loss": "invariant",
        "grad_norm": "exact",
        "loss_scale": "exact",
        "is_skipped": "exact",
        "lr": "exact",
    },
)
def test_overflow_skips_steps_and_the_scale_settles(train: Train) -> None:
    run = train()
    scales, skipped, rates = run.steps("loss_scale"), run.steps("is_skipped"), run.steps("lr")
    assert skipped[0]
    assert False in skipped
    first_good = skipped.index(False)
    assert scales[: first_good + 1] == [2.0 ** (26 - number) for number in range(first_good + 1)]
    # Skipped steps are no updates: the schedule waits for them.
    assert len(set(rates[: first_good + 1])) == 1
    assert rates[first_good + 1] > rates[first_good]
    # Four good steps double it, and soon it overflows again.
    grown = [later > earlier for earlier, later in pairwise(scales)]
    assert any(grown[first_good:])
    assert all(norm is None for norm, skip in zip(run.steps("grad_norm"), skipped, strict=True) if skip)
    assert run.losses[-1] < run.losses[0]


@pytest.mark.recipe(
    "tiny",
    "precision.dtype=fp16",
    "precision.loss_scale=256",
    "run.steps=8",
    "run.eval_every=0",
    "parallel.dp=2",
    "parallel.tp=2",
    world=4,
    checks={"is_skipped": "exact"},
)
def test_overflow_on_one_rank_skips_the_step_on_all(train: Train) -> None:
    is_skipped, values = train.on_ranks(train_with_overflow, train.configured(), world=4)
    assert is_skipped == [False, True, False]
    assert values[1] == values[0]  # nothing moved, on any rank
    assert values[2] != values[1]
    # Without the overflow no step is skipped.
    assert not any(train("run.exit_at=3").steps("is_skipped"))


def train_with_overflow(config: Config) -> tuple[list[bool], list[list[float]]]:
    """Make three steps; in the second one, the last rank's gradients overflow. Return what all ranks saw."""
    made = Trainer(config)
    is_skipped, values = [], []
    for step in range(3):
        if step == 1 and made.mesh.rank == 3:
            weight = made.buckets.all[-1].weights[0]
            handle = weight.register_hook(lambda gradient: gradient * float("inf"))
        is_skipped.append(bool(made.train_step()["is_skipped"]))
        if step == 1 and made.mesh.rank == 3:
            handle.remove()
        sums = torch.stack([bucket.values.double().sum() for bucket in made.buckets.all]).sum()
        everywhere = [torch.zeros_like(sums) for _ in range(4)]
        dist.all_gather(everywhere, sums)
        values.append([float(value) for value in everywhere])
    return is_skipped, values


@pytest.mark.recipe(
    "tiny", "run.steps=6", "optim.lr=1e30", "optim.clip=0", "parallel.dp=2", world=2, checks={}
)
def test_diverged_run_stops_and_says_where(train: Train) -> None:
    with pytest.raises(RankError, match=r"DivergenceError: step \d: loss"):
        train()


def test_trainer_alone_needs_no_process_group(tmp_path: Path) -> None:
    made = Trainer(recipe("tiny", [f"run.dir={tmp_path}", f"data.dir={tmp_path}", "run.steps=3"]))
    assert isinstance(made.mesh, Mesh)
    assert_close(
        [record["loss"] for record in made.train() if record["event"] == "step"][:1], [5.07708], 1e-4
    )

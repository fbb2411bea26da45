"""Optimizers, learning rates, clipping, decay: against torch, against formulas, and in runs."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import torch
from declare import SAME, case
from oracles import FP32, FP64, assert_same_training

from minitrain.config import assign
from minitrain.data import Loader
from minitrain.recipes import recipe
from minitrain.schedule import learning_rate
from minitrain.trainer import Trainer

if TYPE_CHECKING:
    from pathlib import Path

    from runs import Train


def trainer(tmp_path: Path, *assignments: str) -> Trainer:
    places = [f"run.dir={tmp_path}/run", f"data.dir={tmp_path}/data"]
    return Trainer(recipe("tiny", ["precision.dtype=fp64", *assignments, *places]))


def weights_of(made: Trainer) -> dict[str, torch.Tensor]:
    return {
        weight.placement.name: weight.detach().clone() for stage in made.stages for weight in stage.weights()
    }


def test_adamw_is_that_of_torch(tmp_path: Path) -> None:
    """Three steps, with the gradients that clipping left."""
    settings = "lr=0.01 weight_decay=0.3 beta1=0.8 beta2=0.9 eps=1e-4 warmup_steps=0 decay=constant"
    made = trainer(tmp_path, *(f"optim.{setting}" for setting in settings.split()))
    copies = {name: torch.nn.Parameter(value) for name, value in weights_of(made).items()}
    decayed = [copy for copy in copies.values() if copy.ndim > 1]
    gains = [copy for copy in copies.values() if copy.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 0.3}, {"params": gains, "weight_decay": 0.0}]
    expected = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.9), eps=1e-4)
    for _ in range(3):
        made.train_step()
        for stage in made.stages:
            for weight in stage.weights():
                assert weight.grad is not None
                copies[weight.placement.name].grad = weight.grad.clone()
        expected.step()
        for name, value in weights_of(made).items():
            torch.testing.assert_close(value, copies[name].detach(), rtol=1e-9, atol=1e-12)


def test_lion_moves_every_element_by_its_rate(tmp_path: Path) -> None:
    made = trainer(
        tmp_path,
        "optim.name=lion",
        "optim.lr=0.001",
        "optim.warmup_steps=0",
        "optim.decay=constant",
        "optim.weight_decay=0",
    )
    momentum: dict[str, torch.Tensor] = {}
    for _ in range(3):
        before = weights_of(made)
        made.train_step()
        for stage in made.stages:
            for weight in stage.weights():
                name, gradient = weight.placement.name, weight.grad
                assert gradient is not None
                old = momentum.get(name, torch.zeros_like(gradient))
                step = -0.001 * (0.9 * old + 0.1 * gradient).sign()
                torch.testing.assert_close(weight.detach() - before[name], step, rtol=1e-6, atol=1e-12)
                momentum[name] = 0.95 * old + 0.05 * gradient


def test_only_matrices_decay(tmp_path: Path) -> None:
    made = trainer(tmp_path, "optim.lr=0.1", "optim.warmup_steps=0", "optim.weight_decay=0.5")
    before = weights_of(made)
    made.buckets.zero_gradients()
    made.optimizer.update(0.1)
    for name, value in weights_of(made).items():
        factor = 1.0 if before[name].ndim == 1 else 0.95
        torch.testing.assert_close(value, before[name] * factor)


@pytest.mark.parametrize("dtype", ["fp64", "fp16"])
def test_gradient_norm_is_that_of_all_weights_and_clipping_scales_all(dtype: str, tmp_path: Path) -> None:
    """In fp16 too, where the loss scale has to be taken out: both optimizers hardly see a constant factor."""
    made = trainer(tmp_path, f"precision.dtype={dtype}", "optim.clip=0.25")
    record = made.train_step()
    gradients = torch.cat([weight.grad.flatten() for stage in made.stages for weight in stage.weights()])  # type: ignore[union-attr]
    assert record["grad_norm"] > 1
    assert float(gradients.norm()) == pytest.approx(0.25, rel=1e-5)
    free = trainer(tmp_path, f"precision.dtype={dtype}", "optim.clip=0")
    assert free.train_step()["grad_norm"] == pytest.approx(record["grad_norm"])
    unclipped = torch.cat([weight.grad.flatten() for stage in free.stages for weight in stage.weights()])  # type: ignore[union-attr]
    assert float(unclipped.norm()) == pytest.approx(record["grad_norm"])


def test_gradient_is_the_slope_of_the_loss(tmp_path: Path) -> None:
    """By finite differences over the whole trainer, balance loss included."""
    made = trainer(
        tmp_path,
        "model.experts=4",
        "optim.clip=0",
        "data.batch=2",
        "data.micro_batch=1",
        "model.balance_coefficient=0.5",
    )
    batches = Loader(made.config, made.mesh, is_eval=False).batches(0)

    def total() -> float:
        made.buckets.zero_gradients()
        sums = made.pipeline.train(batches, loss_scale=0.01, balance_scale=0.25, buckets=made.buckets)
        return float(0.01 * sums.loss + 0.25 * sums.balance)

    total()
    generator = torch.Generator().manual_seed(1)
    slope = 0.0
    directions = []
    for bucket in made.buckets.all:
        direction = torch.randn(bucket.values.shape, generator=generator, dtype=torch.float64)
        slope += float(bucket.gradients @ direction)
        directions.append(direction)

    def total_at(distance: float) -> float:
        for bucket, direction in zip(made.buckets.all, directions, strict=True):
            bucket.values.add_(direction, alpha=distance)
        return total()

    above, below = total_at(1e-6), total_at(-2e-6)
    assert (above - below) / 2e-6 == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
def test_rate_rises_to_its_peak_and_falls_to_its_floor(decay: str) -> None:
    config = assign(
        recipe("tiny"),
        [
            f"optim.decay={decay}",
            "optim.lr=2",
            "optim.warmup_steps=5",
            "run.steps=25",
            "optim.min_lr_ratio=0.25",
        ],
    )
    rates = [learning_rate(config, number) for number in range(30)]
    assert rates[:5] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])
    if decay == "constant":
        assert set(rates[4:]) == {2.0}
        return
    assert rates[24:] == pytest.approx([0.5] * 6)
    assert all(earlier > later for earlier, later in pairwise(rates[4:25]))
    middle = rates[14]  # half way down
    assert middle == pytest.approx(1.25)
    quarter = {"linear": 1.625, "cosine": 2 - 1.5 * (1 - math.cos(math.pi / 4)) / 2}[decay]
    assert rates[9] == pytest.approx(quarter)


@pytest.mark.parametrize(("warmup", "steps"), [(0, 1), (0, 4), (1, 4)])
def test_without_warm_up_the_first_rate_is_the_peak(warmup: int, steps: int) -> None:
    config = assign(recipe("tiny"), [f"optim.warmup_steps={warmup}", f"run.steps={steps}"])
    assert learning_rate(config, 0) == config.optim.lr


@pytest.mark.parametrize(
    "changes",
    [
        case(
            "lion-linear",
            1,
            "tiny",
            "run.steps=50",
            {**SAME, "lr": "exact"},
            ["optim.name=lion", "optim.lr=3e-4", "optim.decay=linear"],
        ),
        case(
            "no-clip-no-decay",
            1,
            "tiny",
            "run.steps=10",
            {**SAME, "lr": "exact"},
            ["optim.clip=0", "optim.weight_decay=0", "optim.decay=constant"],
        ),
        case(
            "slow-start-early-floor",
            1,
            "tiny",
            "run.steps=50",
            {**SAME, "lr": "exact"},
            ["optim.warmup_steps=20", "optim.decay_steps=30", "optim.min_lr_ratio=0"],
        ),
    ],
)
def test_run_follows_its_schedule_and_learns(changes: list[str], train: Train) -> None:
    run, usual = train(*changes), train(folder="usual")
    expected = [learning_rate(assign(train.config, changes), step) for step in range(len(run.losses))]
    assert run.steps("lr") == expected
    assert run.losses[0] == usual.losses[0]
    assert run.losses[5] != usual.losses[5]
    assert run.losses[-1] < run.losses[0]
    assert all(norm > 0 for norm in run.steps("grad_norm"))
    assert run.eval_losses[0] < run.losses[0]


@pytest.mark.recipe(
    "tiny-moe",
    "optim.clip=0.2",
    "run.steps=10",
    "parallel.tp=2",
    "parallel.dp=2",
    "parallel.ep=2",
    "parallel.zero=true",
    "precision.dtype=fp64",
    "model.tied_embeddings=true",
    world=4,
    checks=SAME,
)
def test_clipping_counts_every_weight_once_in_a_mixed_layout(train: Train) -> None:
    assert_same_training(train(), train.plain(), FP64)


@pytest.mark.recipe(
    "tiny",
    "run.steps=20",
    "run.eval_every=0",
    "parallel.dp=2",
    world=2,
    checks={"loss": "exact", "lr": "exact"},
)
def test_early_exit_leaves_the_schedule_alone(train: Train) -> None:
    whole, cut = train(folder="whole"), train("run.exit_at=8", folder="cut")
    assert cut.steps("lr") == whole.steps("lr")[:8]
    assert cut.losses == whole.losses[:8]


@pytest.mark.recipe("tiny", "run.steps=10", "parallel.dp=2", "parallel.zero=true", world=2, checks=SAME)
@pytest.mark.parametrize("kib", [1, 4096])
def test_size_of_buckets_changes_nothing(kib: int, train: Train) -> None:
    assert_same_training(train(f"parallel.bucket_kib={kib}"), train.plain(), FP32)

"""Work and time of steps. Work is counted, so exact; times are compared within a test. Never shrunk."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

import pytest
from torch.utils.flop_counter import FlopCounterMode

from minitrain.trainer import Trainer

if TYPE_CHECKING:
    from runs import Train
    from torch import Tensor

    from minitrain.config import Config

pytestmark = pytest.mark.performance


def operations_of_step(config: Config) -> int:
    """Return the floating-point operations of rank 0 in the matrix products of a step."""
    made = Trainer(config)
    with FlopCounterMode(display=False) as counter:
        made.train_step()
    return int(counter.get_total_flops())


@pytest.mark.recipe("small", "parallel.recompute_layers=3", world=1, checks={})
def test_recompute_costs_one_more_forward_pass_of_the_blocks(train: Train) -> None:
    plain = train.on_ranks(operations_of_step, train.configured("parallel.recompute_layers=0"), world=1)
    again = train.on_ranks(operations_of_step, train.configured(), world=1)
    assert 1.25 < again / plain < 4 / 3  # the head is not run again


@pytest.mark.recipe("small", "model.experts=8", "model.top_k=1", world=1, checks={})
def test_unchosen_experts_do_no_work(train: Train) -> None:
    dense = train.on_ranks(operations_of_step, train.configured("model.experts=0"), world=1)
    one_of_eight = train.on_ranks(operations_of_step, train.configured(), world=1)
    assert 1 < one_of_eight / dense < 1.05  # the router's work


@pytest.mark.parametrize("layout", ["tp", "cp", "dp", "pp"])
@pytest.mark.recipe("small", "model.kv_heads=4", "data.micro_batch=2", world=2, checks={})
def test_two_ranks_do_half_of_the_work_each(layout: str, train: Train) -> None:
    alone = train.on_ranks(operations_of_step, train.configured(), world=1)
    shared = train.on_ranks(operations_of_step, train.configured(f"parallel.{layout}=2"), world=2)
    assert shared / alone == pytest.approx(0.5, abs=0.05)


def seconds_of_steps(first: Config, second: Config, n_steps: int) -> float:
    """Return how much longer a step of the second one takes; they take turns, to share disturbances."""
    seconds = []
    trainers = [Trainer(first), Trainer(second)]
    for _ in range(n_steps):
        pair = []
        for made in trainers:
            started = time.process_time()
            made.train_step()
            pair.append(time.process_time() - started)
        seconds.append(pair)
    return median(later / earlier for earlier, later in seconds[1:])


@pytest.mark.recipe("small", "data.micro_batch=8", world=1, checks={})
def test_more_layers_take_more_time_in_proportion(train: Train) -> None:
    """Bounds are wide: they tell work that is done twice, not a machine that is busy."""
    configs = [train.configured(f"model.layers={layers}") for layers in (2, 6)]
    assert 1.7 < train.on_ranks(seconds_of_steps, *configs, 12, world=1) < 4


def reductions_before_the_last_gradient(config: Config) -> tuple[int, int]:
    """Return how many reductions had begun when the embedding's gradient came, and how many there are."""
    made = Trainer(config)
    embedding = made.stages[0].embedding
    assert embedding is not None
    begun = []

    def note(gradient: Tensor) -> None:
        begun.append(made.buckets._n_started)

    embedding.weight.register_hook(note)
    made.train_step()
    return begun[-1], len(made.buckets.all)


@pytest.mark.parametrize("recompute", [0, 2])
@pytest.mark.recipe(
    "small", "parallel.dp=2", "data.micro_batch=2", "parallel.bucket_kib=16", world=2, checks={}
)
def test_gradients_travel_while_the_backward_pass_runs(recompute: int, train: Train) -> None:
    config = train.configured(f"parallel.recompute_layers={recompute}")
    begun, n_buckets = train.on_ranks(reductions_before_the_last_gradient, config, world=2)
    assert begun >= 0.6 * n_buckets


@pytest.mark.recipe(
    "tiny",
    "run.steps=30",
    "run.eval_every=5",
    world=1,
    checks={"seconds": "invariant", "tokens_per_s": "invariant", "n_tokens": "invariant"},
)
def test_steps_take_the_time_that_the_journal_says(train: Train) -> None:
    started = time.perf_counter()
    run = train()
    elapsed = time.perf_counter() - started
    seconds, rates = run.steps("seconds"), run.steps("tokens_per_s")
    assert 0 < sum(seconds) < elapsed
    for n_tokens, second, rate in zip(run.steps("n_tokens"), seconds, rates, strict=True):
        assert rate == pytest.approx(n_tokens / second)

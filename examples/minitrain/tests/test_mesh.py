"""Groups of ranks, and communication over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from declare import case

from minitrain import collectives
from minitrain.mesh import Mesh, layout
from minitrain.recipes import recipe
from minitrain.validate import validate

if TYPE_CHECKING:
    from runs import Train

    from minitrain.config import Config

LAYOUTS = [
    "tp=2 cp=2 dp=2 pp=2",
    "dp=4 ep=2",
    "dp=2 cp=2 ep=4",
    "tp=4 pp=2",
    "dp=3",
    "pp=4",
    "tp=2 dp=2 ep=2",
]


@pytest.mark.parametrize("sizes", LAYOUTS)
def test_every_axis_parts_the_world_into_groups_of_its_size(sizes: str) -> None:
    config = recipe(
        "small-moe", ["data.batch=48", "data.micro_batch=1", *(f"parallel.{part}" for part in sizes.split())]
    )
    assert validate(config) == []
    parallel = config.parallel
    data = parallel.dp * parallel.cp
    expected = {
        "world": parallel.world,
        "tp": parallel.tp,
        "cp": parallel.cp,
        "dp": parallel.dp,
        "pp": parallel.pp,
        "data": data,
        "ep": parallel.ep,
        "expert_data": data // parallel.ep,
        "kv": max(1, parallel.tp // config.model.kv_heads),
    }
    groups = layout(config)
    for axis, size in expected.items():
        assert {len(ranks) for ranks in groups[axis]} == {size}  # type: ignore[index]
    for axis, found in groups.items():
        assert sorted(rank for ranks in found for rank in ranks) == list(range(parallel.world)), axis
        assert all(list(ranks) == sorted(ranks) for ranks in found)


def test_axes_cross_each_other_once() -> None:
    groups = layout(recipe("small", ["parallel.tp=2", "parallel.cp=2", "parallel.dp=2", "parallel.pp=2"]))
    for one in ("tp", "cp", "dp", "pp"):
        for other in ("tp", "cp", "dp", "pp"):
            for ranks in groups[one]:
                for others in groups[other]:
                    assert one == other or len(set(ranks) & set(others)) <= 1


def test_first_and_last_stage_share_the_embedding() -> None:
    assert layout(recipe("small", ["parallel.pp=4"]))["embedding"] == [(0, 3), (1,), (2,)]
    assert layout(recipe("small", ["parallel.pp=2", "parallel.tp=2"]))["embedding"] == [(0, 2), (1, 3)]
    assert layout(recipe("small"))["embedding"] == [(0,)]


def test_neighbours_share_a_key_value_head_when_there_are_too_few() -> None:
    groups = layout(recipe("small", ["parallel.tp=4", "model.kv_heads=2"]))
    assert groups["kv"] == [(0, 1), (2, 3)]
    assert layout(recipe("small", ["parallel.tp=4", "model.kv_heads=1"]))["kv"] == [(0, 1, 2, 3)]
    assert layout(recipe("small", ["parallel.tp=2", "model.kv_heads=2"]))["kv"] == [(0,), (1,)]


def gradients_of_collectives(config: Config) -> dict[str, tuple[float, float]]:
    """Compare each function's backward pass with the slope of the sum of its output over all ranks."""
    mesh = Mesh(config)
    group = mesh["tp"]
    generator = torch.Generator().manual_seed(mesh.rank)
    weights = torch.randn(64, generator=generator, dtype=torch.float64)
    send = [1 + (mesh.rank + 2 * other) % 3 for other in range(group.size)]
    receive = [1 + (other + 2 * mesh.rank) % 3 for other in range(group.size)]
    functions = {
        "gather_from": lambda x: collectives.gather_from(x, group, 1),
        "scatter_sum_from": lambda x: collectives.scatter_sum_from(x, group, 1),
        "exchange": lambda x: collectives.exchange(x.flatten()[: sum(send), None], send, receive, group),
    }
    slopes = {}
    for name, function in functions.items():
        x = torch.randn(2, 4, 2, generator=generator, dtype=torch.float64, requires_grad=True)
        change = torch.randn(x.shape, generator=generator, dtype=torch.float64)

        def total(x: torch.Tensor, function=function) -> torch.Tensor:  # type: ignore[no-untyped-def]
            out = function(x)
            return (out.flatten() * weights[: out.numel()]).sum()

        total(x).backward()
        assert x.grad is not None
        along = collectives.sum_((x.grad * change).sum(), group)
        with torch.no_grad():
            difference = (total(x + change) - total(x - change)) / 2
        slopes[name] = (float(along), float(collectives.sum_(difference, group)))
    return slopes


@pytest.mark.recipe("small", "parallel.tp=4", world=4, checks={})
def test_gradients_of_collectives_are_their_slopes(train: Train) -> None:
    slopes = train.on_ranks(gradients_of_collectives, train.configured(), world=4)
    for name, (found, expected) in slopes.items():
        assert found == pytest.approx(expected, rel=1e-9), name


def values_of_collectives(config: Config) -> dict[str, list[float]]:
    mesh = Mesh(config)
    group, rank = mesh["tp"], mesh.rank
    x = torch.tensor([[1.0, 2.0]]) * (rank + 1)
    ones = torch.ones(1, 2, requires_grad=True)
    copied, summed = collectives.copy_to(ones, group), collectives.sum_from(ones * (rank + 1), group)
    (copied.sum() * (rank + 1)).backward()
    assert ones.grad is not None
    copy_gradient = ones.grad.clone()
    ones.grad = None
    summed.sum().backward()
    found = {
        "sum": collectives.sum_(x.clone(), group),
        "max": collectives.max_(x.clone(), group),
        "all_gather": collectives.all_gather(x, group, 1),
        "reduce_scatter": collectives.reduce_scatter(x, group, 1),
        "all_to_all": collectives.all_to_all(x.T, [1] * group.size, [1] * group.size, group),
        "copy_gradient": copy_gradient,
        "sum_from": summed.detach(),
        "sum_gradient": ones.grad,
        "broadcast": torch.tensor(collectives.broadcast_object(rank + 5, group)),
    }
    collectives.barrier(group)
    return {name: tensor.flatten().tolist() for name, tensor in found.items()}


@pytest.mark.parametrize(
    "expected",
    [
        case(
            "two",
            2,
            "small",
            "parallel.tp=2",
            {},
            {
                "sum": [3, 6],
                "max": [2, 4],
                "all_gather": [1, 2, 2, 4],
                "reduce_scatter": [3],
                "all_to_all": [1, 2],
                "copy_gradient": [3, 3],
                "sum_from": [3, 3],
                "sum_gradient": [1, 1],
                "broadcast": [5],
            },
        ),
        case(
            "alone",
            1,
            "small",
            "",
            {},
            {
                "sum": [1, 2],
                "max": [1, 2],
                "all_gather": [1, 2],
                "reduce_scatter": [1, 2],
                "all_to_all": [1, 2],
                "copy_gradient": [1, 1],
                "sum_from": [1, 1],
                "sum_gradient": [1, 1],
                "broadcast": [5],
            },
        ),
    ],
)
def test_collectives_give_what_they_say(expected: dict[str, list[float]], train: Train) -> None:
    config = train.config
    found = train.on_ranks(values_of_collectives, config, world=config.parallel.world)
    assert found == expected

"""Layers against formulas, written out slowly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from declare import case

from minitrain.attention import Attention
from minitrain.data import Loader
from minitrain.layers import Norm, SwiGLU, dropout, rotary_angles, rotate
from minitrain.loss import cross_entropy
from minitrain.mesh import Mesh
from minitrain.model import Stage
from minitrain.moe import MixtureOfExperts
from minitrain.parameters import Weight, make_weight, share
from minitrain.recipes import recipe

if TYPE_CHECKING:
    from pathlib import Path

    from runs import Train

    from minitrain.config import Config
    from minitrain.data import Batch


def configured(tmp_path: Path, *assignments: str) -> Config:
    return recipe("tiny", ["precision.dtype=fp64", f"data.dir={tmp_path}", *assignments])


def batch_of(config: Config) -> Batch:
    return Loader(config, Mesh(config), is_eval=False).batches(0)[0]


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_norm_gives_the_root_mean_square_of_its_gain(tmp_path: Path) -> None:
    norm = Norm(configured(tmp_path), "x")
    norm.gain.data.copy_(noise(32))
    x = 3 * noise(2, 5, 32)
    expected = x / x.square().mean(-1, keepdim=True).sqrt() * norm.gain
    torch.testing.assert_close(norm(x), expected, rtol=1e-5, atol=1e-6)


def test_attention_is_the_sum_over_earlier_tokens_of_the_document(tmp_path: Path) -> None:
    config = configured(tmp_path, "data.mean_length=9")
    mesh, batch = Mesh(config), batch_of(config)
    layer = Attention(config, mesh, "x")
    angles = rotary_angles(config, batch.positions)
    x = noise(len(batch.samples), batch.row_length, 32)
    found = layer(x, batch, angles)

    size, group = config.model.head_size, config.model.heads // config.model.kv_heads
    for row, place in ((0, 0), (1, 13), (3, 31)):
        mixed = []
        for head in range(config.model.heads):

            def part(
                weight: torch.Tensor, head: int, place: int, *, turn: bool, row: int = row
            ) -> torch.Tensor:
                vector = weight[head * size : (head + 1) * size] @ x[row, place]
                if not turn:
                    return vector
                turned = rotate(
                    vector[None, None, None], rotary_angles(config, batch.positions[row, place][None, None])
                )
                return turned[0, 0, 0]

            query = part(layer.query, head, place, turn=True)
            first = place - int(batch.positions[row, place])
            places = range(first, place + 1)
            scores = torch.stack(
                [query @ part(layer.key, head // group, other, turn=True) for other in places]
            )
            values = torch.stack([part(layer.value, head // group, other, turn=False) for other in places])
            mixed.append((scores / size**0.5).softmax(0) @ values)
        torch.testing.assert_close(found[row, place], layer.output @ torch.cat(mixed))


def test_rotation_keeps_lengths_and_sees_distances_only(tmp_path: Path) -> None:
    config = configured(tmp_path)
    query, key = noise(1, 1, 1, 8), noise(1, 1, 1, 8).flip(-1)

    def score(at: int, other: int) -> float:
        turned = [
            rotate(vector, rotary_angles(config, torch.tensor([[position]])))
            for vector, position in ((query, at), (key, other))
        ]
        assert float(turned[0].norm()) == pytest.approx(float(query.norm()))
        return float((turned[0] * turned[1]).sum())

    assert score(7, 3) == pytest.approx(score(14, 10))
    usual = score(7, 3)
    config = configured(tmp_path, "model.rope_base=100")
    assert score(7, 3) != pytest.approx(usual)
    assert score(7, 3) == pytest.approx(score(14, 10))
    assert score(7, 3) != pytest.approx(score(7, 4))
    assert score(0, 0) == pytest.approx(float((query * key).sum()))


def test_dropout_keeps_the_mean(tmp_path: Path) -> None:
    batch = batch_of(configured(tmp_path))
    dropped = dropout(torch.ones(4, 32, 500), 0.25, batch, "a")
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.01)
    assert float((dropped == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert torch.equal(dropped, dropout(torch.ones(4, 32, 500), 0.25, batch, "a"))
    assert not torch.equal(dropped, dropout(torch.ones(4, 32, 500), 0.25, batch, "b"))
    assert not torch.equal(dropped[0], dropped[1])


def experts(tmp_path: Path, *assignments: str) -> tuple[MixtureOfExperts, Batch]:
    config = configured(tmp_path, "model.experts=4", *assignments)
    return MixtureOfExperts(config, Mesh(config), "x"), batch_of(config)


def test_experts_are_the_weighted_sum_of_the_chosen(tmp_path: Path) -> None:
    layer, batch = experts(tmp_path)
    x = noise(4, 32, 32)
    found, balance = layer(x, batch)
    total = 0.0
    for row in range(4):
        counts, mean = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
        for place in range(32):
            token = x[row, place]
            probabilities = (layer.router @ token).softmax(0)
            chosen = probabilities.argsort(descending=True)[:2].tolist()
            expected = torch.zeros(32, dtype=torch.float64)
            for expert in chosen:
                inner = F.silu(layer.gate[expert] @ token) * (layer.up[expert] @ token)
                weight = probabilities[expert] / probabilities[chosen].sum()
                expected += weight * (layer.down[expert] @ inner)
            torch.testing.assert_close(found[row, place], expected)
            counts[chosen] += 1 / 64
            mean += probabilities.detach() / 32
        total += float(4 * (counts * mean).sum())
    assert float(balance.detach()) == pytest.approx(total)


def test_experts_alike_are_one_dense_layer(tmp_path: Path) -> None:
    layer, batch = experts(tmp_path, "model.top_k=3")
    dense = SwiGLU(configured(tmp_path), layer.mesh, "y")
    for name in ("gate", "up", "down"):
        getattr(layer, name).data.copy_(getattr(dense, name)[None])
    x = noise(4, 32, 32)
    torch.testing.assert_close(layer(x, batch)[0], dense(x))


def test_balance_is_one_for_an_even_choice(tmp_path: Path) -> None:
    layer, batch = experts(tmp_path)
    layer.router.data.zero_()
    assert float(layer(noise(4, 32, 32), batch)[1].detach()) == pytest.approx(4.0)  # 1 a row


@pytest.mark.parametrize(
    ("top_k", "factor", "capacity"), [(2, 0.5, 8), (2, 1.0, 16), (2, 1.01, 17), (1, 1.0, 8)]
)
def test_no_expert_takes_more_than_its_capacity(
    top_k: int, factor: float, capacity: int, tmp_path: Path
) -> None:
    layer, batch = experts(tmp_path, f"model.capacity_factor={factor}", f"model.top_k={top_k}")
    chosen = torch.arange(top_k).expand(4, 32, top_k)  # all tokens want the same experts
    kept = layer._within_capacity(chosen, batch)
    assert kept[:, :capacity].all()  # of 32 places, those that come first
    assert not kept[:, capacity:].any()


def losses_of_shares(config: Config, logits: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
    """Return the loss of each token, and the gradient of its sum, put together from all ranks."""
    group = Mesh(config)["tp"]
    start, stop = share(logits.shape[-1], group.index, group.size)
    own = logits[..., start:stop].clone().requires_grad_()
    loss = cross_entropy(own, labels, start, group)
    (loss * torch.arange(loss.numel()).view_as(loss)).sum().backward()
    assert own.grad is not None
    whole = torch.zeros_like(logits)
    whole[..., start:stop] = own.grad
    if group.size > 1:
        torch.distributed.all_reduce(whole)
    return [loss.detach(), whole]


@pytest.mark.parametrize(
    "scale",
    [
        case("alone", 1, "tiny", "", {}, 1.0),
        case(
            "three-uneven",
            3,
            "tiny",
            "parallel.tp=3 model.heads=3 model.kv_heads=3 model.hidden=36 model.ffn=66",
            {},
            1.0,
        ),
        case("two-large-logits", 2, "tiny", "parallel.tp=2", {}, 300.0),
    ],
)
def test_cross_entropy_is_that_of_torch(scale: float, train: Train) -> None:
    logits, labels = scale * noise(3, 5, 19), torch.arange(15).view(3, 5)
    config = train.config
    loss, gradient = train.on_ranks(losses_of_shares, config, logits, labels, world=config.parallel.world)
    expected_logits = logits.clone().requires_grad_()
    expected = F.cross_entropy(expected_logits.flatten(0, 1), labels.flatten(), reduction="none").view(3, 5)
    (expected * torch.arange(15).view(3, 5)).sum().backward()
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, expected_logits.grad)


def test_shares_of_a_weight_are_slices_of_the_same_tensor(tmp_path: Path) -> None:
    config = configured(tmp_path)
    whole = make_weight(config, "w", (7, 4), std=1.0)
    parts = [make_weight(config, "w", (7, 4), std=1.0, split={0: (index, 3)}) for index in range(3)]
    assert torch.equal(torch.cat(parts), whole)
    assert [part.placement.slices[0] for part in parts] == [(0, 2), (2, 4), (4, 7)]
    assert not torch.equal(make_weight(config, "v", (7, 4), std=1.0), whole)
    rounded = make_weight(configured(tmp_path, "precision.dtype=bf16"), "w", (7, 4), std=1.0)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), whole.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tied", ["true", "false"])
def test_stage_lists_every_weight_once_under_a_name_of_its_own(tied: str, tmp_path: Path) -> None:
    config = configured(tmp_path, f"model.tied_embeddings={tied}", "model.experts=4", "model.moe_every=2")
    weights = Stage(config, Mesh(config), 0).weights()
    assert all(isinstance(weight, Weight) for weight in weights)
    names = [weight.placement.name for weight in weights]
    assert len(set(names)) == len(names) == 9 + 10 + (2 if tied == "true" else 3)


def test_rows_do_not_see_each_other(tmp_path: Path) -> None:
    """A row's loss is the same in any company."""
    config = configured(tmp_path, "model.experts=4", "model.capacity_factor=1.0", "data.micro_batch=1")
    loader = Loader(config, Mesh(config), is_eval=False)
    stage = Stage(config, Mesh(config), 0)
    alone = sum(float(stage(None, batch)[0].detach()) for batch in loader.batches(0)[:4])
    together = recipe(
        "tiny",
        ["precision.dtype=fp64", f"data.dir={tmp_path}", "model.experts=4", "model.capacity_factor=1.0"],
    )
    batch = Loader(together, Mesh(together), is_eval=False).batches(0)[0]
    assert float(stage(None, batch)[0].detach()) == pytest.approx(alone)

"""What a rank keeps: optimizer state, activations, weights. Counted in bytes, so exact. Never shrunk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from declare import case

from minitrain.trainer import Trainer

if TYPE_CHECKING:
    from runs import Train

    from minitrain.config import Config

pytestmark = pytest.mark.memory


def kept_bytes(config: Config) -> dict[str, int]:
    """Return what rank 0 keeps between steps, and the most that it keeps for backward passes."""
    made = Trainer(config)
    made.train_step()
    state = sum(tensor.nbytes for bucket in made.optimizer.state for tensor in bucket.values())
    weights = sum(weight.nbytes for stage in made.stages for weight in stage.weights())
    return {"state": state, "weights": weights, "activations": peak_of_saved_tensors(made)}


def peak_of_saved_tensors(made: Trainer) -> int:
    """Return the most bytes that autograd held at a time, each tensor counted once."""
    held: dict[int, list[int]] = {}  # storage: bytes, number of holders
    peak = 0

    class Held:
        def __init__(self, tensor: torch.Tensor) -> None:
            nonlocal peak
            self.tensor = tensor
            storage = tensor.untyped_storage()
            self.key = storage.data_ptr()
            held.setdefault(self.key, [storage.nbytes(), 0])[1] += 1
            peak = max(peak, sum(size for size, _ in held.values()))

        def __del__(self) -> None:
            held[self.key][1] -= 1
            if held[self.key][1] == 0:
                del held[self.key]

    weights = {weight.untyped_storage().data_ptr() for stage in made.stages for weight in stage.weights()}

    def pack(tensor: torch.Tensor) -> Any:
        return tensor if tensor.untyped_storage().data_ptr() in weights else Held(tensor)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: getattr(packed, "tensor", packed)):
        made.train_step()
    return peak


@pytest.mark.parametrize(
    ("ranks", "exact"),
    [
        case("two", 2, "tiny", "parallel.dp=2 parallel.zero=true", {}, 2, None),
        case(
            "three-unevenly",
            3,
            "tiny",
            "data.batch=6 data.micro_batch=2 parallel.dp=3 parallel.zero=true",
            {},
            3,
            None,
        ),
        case("over-context-ranks", 4, "tiny", "parallel.dp=2 parallel.cp=2 parallel.zero=true", {}, 4, None),
    ],
)
def test_zero_keeps_a_share_of_the_optimizer_state(ranks: int, exact: None, train: Train) -> None:
    whole = train.on_ranks(kept_bytes, train.configured("parallel.zero=false"), world=ranks)
    share = train.on_ranks(kept_bytes, train.configured(), world=ranks)
    assert share["weights"] == whole["weights"]
    assert whole["state"] == 2 * whole["weights"]
    padding = 64 * 8 * ranks  # a few elements a bucket
    assert whole["state"] / ranks <= share["state"] < whole["state"] / ranks + padding


@pytest.mark.recipe("small", "model.layers=8", "data.micro_batch=8", world=1, checks={})
def test_recompute_keeps_one_chunk_of_activations(train: Train) -> None:
    sizes = [
        train.on_ranks(kept_bytes, train.configured(f"parallel.recompute_layers={chunk}"), world=1)[
            "activations"
        ]
        for chunk in (0, 4, 2, 1)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[3] < 0.35 * sizes[0]


@pytest.mark.recipe("small", "parallel.pp=2", "model.layers=4", "data.micro_batch=1", world=2, checks={})
def test_pipeline_keeps_as_many_micro_batches_as_there_are_stages(train: Train) -> None:
    """1F1B: with twice the micro-batches, the same memory; the first stage holds two at a time."""
    few = train.on_ranks(kept_bytes, train.configured("data.batch=4"), world=2)["activations"]
    many = train.on_ranks(kept_bytes, train.configured("data.batch=8"), world=2)["activations"]
    assert many == pytest.approx(few, rel=0.02)


@pytest.mark.recipe(
    "small-moe",
    "model.kv_heads=4",
    "parallel.tp=2",
    "parallel.dp=2",
    "parallel.ep=2",
    "model.tied_embeddings=true",
    world=4,
    checks={},
)
def test_tensor_and_expert_ranks_keep_their_share_of_the_weights(train: Train) -> None:
    whole = train.on_ranks(
        kept_bytes, train.configured("parallel.tp=1", "parallel.dp=1", "parallel.ep=1"), world=1
    )
    share = train.on_ranks(kept_bytes, train.configured(), world=4)
    model = train.config.model
    n_moe_layers = model.layers // model.moe_every
    experts = n_moe_layers * 3 * model.experts * model.hidden * model.ffn * 4
    repeated = ((2 * model.layers + 1) * model.hidden + n_moe_layers * model.experts * model.hidden) * 4
    dense = whole["weights"] - experts - repeated
    assert share["weights"] == experts / 4 + dense / 2 + repeated

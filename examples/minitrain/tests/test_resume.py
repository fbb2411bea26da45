"""A run that stops and goes on is the run that never stopped; another layout may take it over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from declare import IDENTICAL, SAME, case
from oracles import FP64, assert_identical_training, assert_same_training
from pool import RankError
from runs import Run

from minitrain.checkpoint import folder_of

if TYPE_CHECKING:
    from pathlib import Path

    from runs import Train

ONCE = {**IDENTICAL, "events": "exact"}


def joined(runs: list[Run]) -> Run:
    """Return the runs, each of which goes on from the one before, as one that ends like the last."""
    steps = [record for run in runs for record in run.records if record["event"] == "step"]
    ends = [record for record in runs[-1].records if record["event"] == "eval"]
    return Run(steps + ends, runs[-1].directory, runs[-1]._looked_at)


@pytest.mark.parametrize(
    "n_saves",
    [
        case("plain", 1, "tiny", "run.steps=50 checkpoint.every=25", ONCE, 1, smoke=True),
        case(
            "experts-zero",
            2,
            "tiny-moe",
            "run.steps=50 checkpoint.every=25 parallel.dp=2 parallel.ep=2 parallel.zero=true",
            ONCE,
            1,
        ),
        case(
            "tp-pp-tied",
            4,
            "tiny",
            "run.steps=50 checkpoint.every=25 parallel.tp=2 parallel.pp=2 "
            "model.tied_embeddings=true data.micro_batch=2",
            ONCE,
            1,
        ),
        case(
            "lion-dropout-unpacked-off-the-grid",
            1,
            "tiny",
            "run.steps=50 checkpoint.every=7 model.dropout=0.1 optim.name=lion optim.lr=3e-4 "
            "data.packing=false",
            ONCE,
            3,
        ),
        case(
            "second-epoch-dp3",
            3,
            "tiny",
            "run.steps=20 checkpoint.every=5 data.documents=30 data.batch=12 parallel.dp=3",
            ONCE,
            2,
        ),
        case(
            "fp16-scale-in-motion",
            1,
            "tiny",
            "run.steps=12 checkpoint.every=6 precision.dtype=fp16 precision.loss_scale=4194304 "
            "precision.growth_interval=2",
            ONCE,
            1,
        ),
        case(
            "cp-zero-while-warming-up",
            2,
            "tiny",
            "run.steps=20 checkpoint.every=2 parallel.cp=2 parallel.zero=true run.eval_every=5",
            ONCE,
            1,
        ),
    ],
)
def test_resumed_run_is_the_uninterrupted_one_to_the_bit(n_saves: int, train: Train) -> None:
    stop = n_saves * train.config.checkpoint.every
    whole = train(folder="whole")
    runs = [train(f"run.exit_at={stop}"), train("checkpoint.resume=true")]
    assert ("resume", stop) in runs[1].events
    assert_identical_training(joined(runs), whole)


@pytest.mark.recipe("tiny-moe", "run.steps=30", "checkpoint.every=10", "parallel.dp=2", world=2, checks=ONCE)
def test_second_resume_goes_on_from_the_first(train: Train) -> None:
    whole = train(folder="whole")
    every = train.config.checkpoint.every
    runs = [train("checkpoint.resume=true", f"run.exit_at={number * every}") for number in (1, 2, 3)]
    assert [run.events[0] for run in runs] == [("eval", every), ("resume", every), ("resume", 2 * every)]
    assert_identical_training(joined(runs), whole)


@pytest.mark.parametrize(
    "layouts",
    [
        case(
            "up-zero2-to-zero4",
            4,
            "tiny",
            "run.steps=50 checkpoint.every=25 precision.dtype=fp64 parallel.dp=2 "
            "parallel.zero=true parallel.bucket_kib=3",
            SAME,
            ["dp=4", "bucket_kib=16", "zero=true"],
            smoke=True,
        ),
        case(
            "down-zero4-to-one",
            4,
            "tiny",
            "run.steps=50 checkpoint.every=25 precision.dtype=fp64 parallel.dp=4 "
            "parallel.zero=true data.micro_batch=2",
            SAME,
            [],
        ),
        case(
            "tp-to-pp-uneven-vocabulary-one-kv-head",
            4,
            "tiny",
            "run.steps=50 checkpoint.every=25 precision.dtype=fp64 parallel.tp=2 "
            "model.vocabulary=97 model.kv_heads=1",
            SAME,
            ["pp=2", "dp=2"],
        ),
        case(
            "experts-spread-to-tensor-ranks",
            4,
            "tiny-moe",
            "run.steps=20 checkpoint.every=10 precision.dtype=fp64 parallel.dp=2 parallel.ep=2 "
            "parallel.zero=true",
            SAME,
            ["tp=2", "cp=2", "sequence_parallel=true"],
        ),
        case(
            "virtual-stages-to-two-zero",
            2,
            "tiny",
            "model.layers=4 run.steps=20 checkpoint.every=10 precision.dtype=fp64 parallel.pp=2 "
            "parallel.vpp=2 data.micro_batch=2 model.tied_embeddings=true",
            SAME,
            ["dp=2", "zero=true"],
        ),
    ],
)
def test_another_layout_takes_the_run_over(layouts: list[str], train: Train) -> None:
    whole = train.plain(folder="whole")
    other = [f"parallel.{part}" for part in ["dp=1", "tp=1", "pp=1", "vpp=1", "ep=1", "zero=false", *layouts]]
    stop = train.config.checkpoint.every
    runs = [train(f"run.exit_at={stop}"), train(*other, "data.micro_batch=2", "checkpoint.resume=true")]
    assert_same_training(joined(runs), whole, FP64)


@pytest.mark.recipe(
    "tiny-moe", "run.steps=24", "checkpoint.every=8", "precision.dtype=fp64", world=4, checks=SAME
)
def test_three_layouts_one_after_the_other(train: Train) -> None:
    every = train.config.checkpoint.every
    whole = train(folder="whole")
    runs = [
        train("parallel.dp=2", "parallel.zero=true", f"run.exit_at={every}"),
        train("parallel.tp=2", "parallel.pp=2", f"run.exit_at={2 * every}", "checkpoint.resume=true"),
        train("parallel.cp=2", "parallel.ep=2", "checkpoint.resume=true"),
    ]
    assert_same_training(joined(runs), whole, FP64)


@pytest.mark.recipe(
    "tiny",
    "run.steps=12",
    "run.eval_every=0",
    "checkpoint.every=2",
    "checkpoint.keep=2",
    "parallel.dp=2",
    world=2,
    checks={"checkpoint": "exact", "events": "exact"},
)
def test_only_the_newest_checkpoints_are_kept(train: Train) -> None:
    run = train("run.exit_at=7")
    assert run.checkpoints == [6, 7]  # the last step is saved, on the grid or not
    assert [step for kind, step in run.events if kind == "save"] == [2, 4, 6, 7]
    resumed = train("checkpoint.resume=true")
    assert resumed.checkpoints == [10, 12]
    assert resumed.events[0] == ("resume", 7)


@pytest.mark.recipe(
    "tiny",
    "run.steps=6",
    "run.eval_every=0",
    "checkpoint.every=3",
    world=1,
    checks={"loss": "exact", "events": "exact"},
)
def test_half_written_checkpoint_is_passed_over(train: Train) -> None:
    first = train("run.exit_at=3")
    folder = folder_of(first.directory / "checkpoints", 6)
    folder.with_name(folder.name + ".partial").mkdir()
    resumed = train("checkpoint.resume=true")
    assert resumed.events == [("resume", 3), ("save", 6), ("end", 6)]
    assert first.losses + resumed.losses == train(folder="whole").losses


@pytest.mark.recipe(
    "tiny",
    "run.steps=3",
    "run.eval_every=0",
    "checkpoint.every=2",
    "parallel.tp=2",
    world=2,
    checks={"checkpoint": "invariant"},
)
def test_checkpoint_without_a_file_is_refused(train: Train) -> None:
    run = train()
    assert run.checkpoints == [2, 3]
    (folder_of(run.directory / "checkpoints", 3) / "rank-00001.pt").unlink()
    with pytest.raises(RankError, match=r"lacks \d+ elements"):
        train("checkpoint.resume=true", "run.steps=4")


@pytest.mark.recipe(
    "tiny",
    "run.steps=3",
    "run.eval_every=0",
    "checkpoint.every=3",
    "parallel.pp=2",
    world=2,
    checks={"checkpoint": "invariant"},
)
def test_checkpoint_without_a_stage_is_refused(train: Train) -> None:
    run = train()
    (folder_of(run.directory / "checkpoints", run.checkpoints[-1]) / "rank-00000.pt").unlink()
    with pytest.raises(RankError, match=r"blocks\.0\.attention\.key is in no file"):
        train("checkpoint.resume=true", "run.steps=4")


@pytest.mark.recipe("tiny", "run.steps=3", "run.eval_every=0", "checkpoint.every=2", world=1, checks={})
@pytest.mark.parametrize("change", ["model.ffn=48", "optim.name=lion", "data.seed=5", "data.batch=4"])
def test_checkpoint_of_another_run_is_refused(change: str, train: Train) -> None:
    train()
    with pytest.raises(RankError, match=change.partition("=")[0]):
        train(change, "checkpoint.resume=true")


@pytest.mark.recipe(
    "tiny", "run.steps=4", "checkpoint.every=4", "parallel.tp=2", world=2, checks={"checkpoint": "tolerance"}
)
def test_checkpoint_holds_logical_tensors_whatever_the_layout(train: Train) -> None:
    runs = [train("precision.dtype=fp64"), train.plain("precision.dtype=fp64")]
    sharded, plain = (
        tensors_of(folder_of(run.directory / "checkpoints", run.checkpoints[-1])) for run in runs
    )
    assert sharded.keys() == plain.keys()
    for key, tensor in plain.items():
        torch.testing.assert_close(sharded[key], tensor, rtol=1e-9, atol=1e-12)


def tensors_of(folder: Path) -> dict[tuple[str, str], torch.Tensor]:
    """Put slices together without the help of the code under test."""
    tensors: dict[tuple[str, str], torch.Tensor] = {}
    for path in folder.glob("rank-*.pt"):
        for piece in torch.load(path, weights_only=True):
            index = tuple(slice(*bounds) for bounds in piece["slices"])
            for kind, tensor in piece["tensors"].items():
                whole = tensors.setdefault(
                    (piece["name"], kind), torch.full(piece["shape"], float("nan"), dtype=torch.float64)
                )
                whole[index] = tensor
    return tensors

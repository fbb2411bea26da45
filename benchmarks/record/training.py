"""Tests that train minitrain's recipes in the process of pytest: copied into its suite by `bench_record`.

Its own tests hand training to ranks, which are processes of their own; what recording costs shows here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from minitrain.recipes import recipe
from minitrain.trainer import Trainer

RECIPES = ("tiny", "tiny-moe", "small", "small-moe", "odd")
CHANGES = {
    "plain": (),
    "lion": ("optim.name=lion", "optim.lr=1e-3"),
    "double": ("precision.dtype=fp64",),
    "tied": ("model.tied_embeddings=true", "model.dropout=0.1"),
    "unpacked": ("data.packing=false",),
    "recomputed": ("parallel.recompute_layers=1",),
    "saving": ("checkpoint.every=4", "checkpoint.keep=1", "run.eval_every=6"),
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("name", RECIPES)
def test_loss_falls(name: str, changes: tuple[str, ...], tmp_path: Path) -> None:
    places = (f"run.dir={tmp_path / 'run'}", f"data.dir={tmp_path / 'data'}", "run.steps=12")
    losses = [
        record["loss"]
        for record in Trainer(recipe(name, (*places, *changes))).train()
        if record["event"] == "step"
    ]
    assert len(losses) == 12
    assert min(losses[-4:]) < losses[0]

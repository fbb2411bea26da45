"""Checkpoints that any layout can read: slices of logical tensors, each with its place in the whole.

A checkpoint is a folder ``step-00000010`` with ``meta.json`` and a file of slices for each rank that holds
any. It is written under another name and then renamed, so a folder of that name is complete.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minitrain.buckets import Buckets
from minitrain.collectives import barrier, broadcast_object
from minitrain.config import Config, flatten
from minitrain.errors import CheckpointError
from minitrain.mesh import Mesh
from minitrain.optim import Optimizer
from minitrain.parameters import slice_of

# Settings that say what the tensors and the samples mean: a run may go on only with the same ones.
_FIXED = (
    "model.vocabulary model.layers model.hidden model.ffn model.heads model.kv_heads model.rope_base "
    "model.tied_embeddings model.experts model.top_k model.moe_every data.documents data.eval_documents "
    "data.mean_length data.topics data.sequence data.batch data.packing data.shuffle data.seed optim.name"
)


def folder_of(directory: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return directory / f"step-{step:08d}"


def saved_steps(directory: Path) -> list[int]:
    """Return the steps that have a complete checkpoint, oldest first."""
    return sorted(int(path.name[5:]) for path in directory.glob("step-*") if path.name[5:].isdigit())


def save(
    directory: Path,
    config: Config,
    mesh: Mesh,
    buckets: Buckets,
    optimizer: Optimizer,
    progress: dict[str, Any],
) -> None:
    """Write a checkpoint, and remove the oldest ones beyond ``checkpoint.keep``. All ranks take part.

    Parameters
    ----------
    progress : dict
        What else a run needs to go on; it has the key ``step``.
    """
    target = folder_of(directory, progress["step"])
    partial = target.with_name(target.name + ".partial")
    is_writer = mesh.rank == 0
    if is_writer:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    barrier(mesh["world"])
    pieces = _own_pieces(mesh, buckets, optimizer)
    if pieces:
        torch.save(pieces, partial / f"rank-{mesh.rank:05d}.pt")
    barrier(mesh["world"])
    if is_writer:
        meta = {"progress": progress, "state_names": optimizer.state_names, "config": flatten(config)}
        (partial / "meta.json").write_text(json.dumps(meta, indent=1))
        if target.exists():  # a run that was resumed from an earlier step comes here again
            shutil.rmtree(target)
        partial.rename(target)
        keep = config.checkpoint.keep
        for step in saved_steps(directory)[:-keep] if keep else []:
            shutil.rmtree(folder_of(directory, step))
    barrier(mesh["world"])


def _own_pieces(mesh: Mesh, buckets: Buckets, optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the slices that this rank writes: of all ranks that hold the same one, the first does."""
    pieces = []
    for bucket, state in zip(buckets.all, optimizer.state, strict=True):
        # Gathering is for all ranks, writing is not.
        flat = {"value": bucket.values} | {name: bucket.gather(own) for name, own in state.items()}
        place = bucket.placement
        if not mesh.is_first_in([place.data_axis] + ([place.copies] if place.copies else [])):
            continue
        views = {name: bucket.split(whole) for name, whole in flat.items()}
        for number, weight in enumerate(bucket.weights):
            own = weight.placement
            # Cloned, because a view would be saved with the whole bucket behind it.
            tensors = {name: of_weights[number].clone() for name, of_weights in views.items()}
            pieces.append({"name": own.name, "shape": own.shape, "slices": own.slices, "tensors": tensors})
    return pieces


def restore(
    directory: Path, config: Config, mesh: Mesh, buckets: Buckets, optimizer: Optimizer
) -> dict[str, Any] | None:
    """Read the newest checkpoint into weights and optimizer state. All ranks take part.

    Returns
    -------
    dict or None
        The `progress` that was saved; None without a checkpoint.

    Raises
    ------
    CheckpointError
        If it is of another model, data set or optimizer, or lacks a tensor.
    """
    # One rank looks, so that all see the same folder.
    steps = broadcast_object(saved_steps(directory), mesh["world"])
    if not steps:
        return None
    folder = folder_of(directory, steps[-1])
    meta = json.loads((folder / "meta.json").read_text())
    _check_fixed(folder, meta["config"], flatten(config))
    names = {weight.placement.name for bucket in buckets.all for weight in bucket.weights}
    tensors = _read_tensors(folder, names, ("value", *optimizer.state_names))
    for bucket, state in zip(buckets.all, optimizer.state, strict=True):
        own = {"value": bucket.own_values, **state}
        for kind, target in own.items():
            whole = torch.zeros_like(bucket.values)
            for weight, view in zip(bucket.weights, bucket.split(whole), strict=True):
                place = weight.placement
                view.copy_(tensors[place.name, kind][slice_of(place.slices)])
            start = bucket.group.index * len(target) if bucket.is_sharded else 0
            target.copy_(whole[start : start + len(target)])
    buckets.gather_values()
    progress: dict[str, Any] = meta["progress"]
    return progress


def _check_fixed(folder: Path, saved: dict[str, Any], asked: dict[str, Any]) -> None:
    differing = [
        f"{key} was {saved[key]}, is {asked[key]}" for key in _FIXED.split() if saved[key] != asked[key]
    ]
    if differing:
        raise CheckpointError(f"{folder} is of another run: {'; '.join(differing)}")


def _read_tensors(folder: Path, names: set[str], kinds: tuple[str, ...]) -> dict[tuple[str, str], Tensor]:
    """Put logical tensors together from all files, and check that nothing is missing."""
    tensors: dict[tuple[str, str], Tensor] = {}
    n_missing: dict[str, int] = {}
    for path in sorted(folder.glob("rank-*.pt")):
        for piece in torch.load(path, weights_only=True):
            name, slices = piece["name"], slice_of(piece["slices"])
            for kind in kinds:
                tensor = piece["tensors"][kind]
                whole = tensors.setdefault((name, kind), tensor.new_zeros(piece["shape"]))
                whole[slices] = tensor
            n_missing[name] = n_missing.get(name, whole.numel()) - tensor.numel()
    for name in sorted(names):
        if name not in n_missing:
            raise CheckpointError(f"{folder}: {name} is in no file")
        if n_missing[name]:
            raise CheckpointError(f"{folder}: {name} lacks {n_missing[name]} elements")
    return tensors

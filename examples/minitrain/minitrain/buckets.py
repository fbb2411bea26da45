"""Weights and gradients in flat buckets: their reduction while the backward pass runs, and ZeRO-1.

A bucket holds weights that are reduced over the same ranks. Without ZeRO its gradients are summed and every
rank updates all of it. With ZeRO they are summed and scattered, each rank updates its share, and the shares
are gathered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from weakref import proxy

import torch
import torch.distributed as dist
from torch import Tensor

from minitrain.collectives import all_gather, sum_
from minitrain.config import Config
from minitrain.mesh import Mesh
from minitrain.model import Stage
from minitrain.parameters import Weight


class Bucket:
    """Weights laid out one after the other, and their gradients, padded to equal shares for all data ranks.

    Attributes
    ----------
    values, gradients : Tensor, shape (padded size,)
        What the weights and their ``grad`` are views of.
    own_values, own_gradients : Tensor
        The part that this rank updates: all, or its share.
    """

    def __init__(self, mesh: Mesh, weights: Sequence[Weight], *, is_sharded: bool) -> None:
        self.mesh, self.weights = mesh, list(weights)
        self.placement = self.weights[0].placement  # its axes are those of all weights here
        self.group = mesh[self.placement.data_axis]
        self.is_sharded = is_sharded and self.group.size > 1
        self.size = sum(weight.numel() for weight in self.weights)
        padded = self.size + -self.size % self.group.size if self.is_sharded else self.size
        self.values = self.weights[0].new_zeros(padded)
        self.gradients = torch.zeros_like(self.values)
        for weight, value, gradient in zip(
            self.weights, self.split(self.values), self.split(self.gradients), strict=True
        ):
            value.copy_(weight.detach())
            weight.data, weight.grad = value, gradient
        self.own_values, self.own_gradients = self.values, self.gradients
        if self.is_sharded:
            length = padded // self.group.size
            self.own_values = self.values[self.group.index * length :][:length]
            self.own_gradients = torch.zeros_like(self.own_values)
        self.n_awaited = 0  # weights whose last gradient of the step has not come
        self._work: dist.Work | None = None

    def split(self, flat: Tensor) -> list[Tensor]:
        """View a flat tensor of the bucket's size, or a padded one, as tensors of its weights' shapes."""
        pieces = flat[: self.size].split([weight.numel() for weight in self.weights])
        return [piece.view_as(weight) for piece, weight in zip(pieces, self.weights, strict=True)]

    def start_reduction(self) -> None:
        """Begin to sum gradients over the data ranks."""
        if self.group.size == 1:
            return
        if self.is_sharded:
            self._work = dist.reduce_scatter_single(
                self.own_gradients, self.gradients, group=self.group.handle, async_op=True
            )
        else:
            self._work = dist.all_reduce(self.gradients, group=self.group.handle, async_op=True)

    def finish_reduction(self) -> None:
        """Wait for the sum, and add the parts that copies beside the data axis hold."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        if self.placement.is_partial and self.placement.copies is not None:
            sum_(self.own_gradients, self.mesh[self.placement.copies])

    def gather(self, own: Tensor) -> Tensor:
        """Return the whole of a flat tensor of which every data rank has its own part."""
        return all_gather(own, self.group) if self.is_sharded else own

    @property
    def is_counted(self) -> bool:
        """Whether what this rank updates counts in global sums: of all copies, one must."""
        axes = [self.placement.copies] if self.placement.copies is not None else []
        if not self.is_sharded:
            axes.append(self.placement.data_axis)
        return self.mesh.is_first_in(axes)


class Buckets:
    """All buckets of a rank, in the order in which the backward pass fills them."""

    def __init__(self, config: Config, mesh: Mesh, stages: Sequence[Stage]) -> None:
        self.mesh = mesh
        self.all = _pack(config, mesh, stages)
        self._stage_weights = [stage.weights() for stage in stages]
        self._bucket_of: dict[Tensor, Bucket] = {}
        self._awaited: set[Tensor] = set()  # weights whose next gradient is the last of the step
        self._n_started = 0
        # Weak: torch holds hooks where no collector looks, and a strong one all process groups with it.
        hook = partial(Buckets._on_gradient, proxy(self))
        for bucket in self.all:
            for weight in bucket.weights:
                self._bucket_of[weight] = bucket
                weight.register_post_accumulate_grad_hook(hook)

    def zero_gradients(self) -> None:
        """Forget the gradients of the step before."""
        for bucket in self.all:
            bucket.gradients.zero_()
            bucket.n_awaited = len(bucket.weights)
        self._n_started = 0

    def expect_last_gradients(self, chunk: int) -> None:
        """Say that the next backward pass through this virtual stage is its last one in the step."""
        self._awaited.update(self._stage_weights[chunk])

    def _on_gradient(self, weight: Tensor) -> None:
        if weight not in self._awaited:
            return
        self._awaited.remove(weight)
        self._bucket_of[weight].n_awaited -= 1
        # All ranks must start reductions in the same order, so a full bucket waits for those before it.
        while self._n_started < len(self.all) and self.all[self._n_started].n_awaited == 0:
            self.all[self._n_started].start_reduction()
            self._n_started += 1

    def finish_reductions(self) -> None:
        """Wait until every rank has the summed gradients of what it updates."""
        assert self._n_started == len(self.all), "a weight got no gradient"
        for bucket in self.all:
            bucket.finish_reduction()

    def gradient_norm(self) -> float:
        """Return the norm of the whole model's gradient, the same on all ranks."""
        squares = torch.zeros((), dtype=torch.float64)
        for bucket in self.all:
            if bucket.is_counted:
                squares += bucket.own_gradients.double().square().sum()
        return float(sum_(squares, self.mesh["world"]).sqrt())

    def scale_gradients(self, factor: float) -> None:
        """Multiply the gradients that this rank updates with."""
        if factor != 1.0:
            for bucket in self.all:
                bucket.own_gradients.mul_(factor)

    def gather_values(self) -> None:
        """Give every rank the weights that the others updated."""
        for bucket in self.all:
            if bucket.is_sharded:
                bucket.values.copy_(bucket.gather(bucket.own_values))


def _pack(config: Config, mesh: Mesh, stages: Sequence[Stage]) -> list[Bucket]:
    """Fill buckets from the last weight to the first; one is closed when it is as large as asked for."""
    limit = config.parallel.bucket_kib * 1024
    open_: dict[tuple[object, ...], list[Weight]] = {}
    closed: list[list[Weight]] = []
    for stage in reversed(stages):
        for weight in reversed(stage.weights()):
            place = weight.placement
            key = (place.is_expert, place.copies, place.is_partial, place.is_decayed)
            weights = open_.setdefault(key, [])
            weights.append(weight)
            if sum(w.numel() * w.element_size() for w in weights) >= limit:
                closed.append(open_.pop(key))
    closed.extend(open_.values())
    return [Bucket(mesh, weights, is_sharded=config.parallel.zero) for weights in closed]

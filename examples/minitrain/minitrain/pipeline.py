"""Micro-batches through pipeline stages: the order of passes, and the messages between ranks.

Without pipeline parallelism the same loop runs, with one stage: it is gradient accumulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from minitrain.buckets import Buckets
from minitrain.config import Config
from minitrain.data import Batch
from minitrain.mesh import Mesh
from minitrain.model import Stage
from minitrain.precision import autocast, parameter_dtype

Kept = tuple[Tensor | None, Tensor, Tensor]  # of a forward pass: its input, its output, its balance loss


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward or backward pass of one micro-batch through one of a rank's virtual stages."""

    kind: Literal["forward", "backward"]
    chunk: int
    microbatch: int


def one_forward_one_backward(pp: int, vpp: int, rank: int, n_microbatches: int) -> list[Pass]:
    """Return the passes of one rank, interleaved over its virtual stages when there are several.

    A rank first runs as many forward passes as it takes until the first gradient can come back, and then
    one backward pass after each forward pass, so that no more activations are kept than needed.

    >>> [f"{p.kind[0]}{p.microbatch}" for p in one_forward_one_backward(2, 1, 0, 3)]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    total = n_microbatches * vpp
    ahead = pp - rank - 1 if vpp == 1 else 2 * (pp - rank - 1) + (vpp - 1) * pp
    ahead = min(ahead, total)

    def numbered(kind: Literal["forward", "backward"], index: int) -> Pass:
        # Groups of pp micro-batches go through all virtual stages before the next group starts.
        group, place = divmod(index, pp * vpp)
        chunk = place // pp
        return Pass(kind, chunk if kind == "forward" else vpp - 1 - chunk, group * pp + place % pp)

    passes = [numbered("forward", index) for index in range(ahead)]
    for index in range(total - ahead):
        passes += [numbered("forward", ahead + index), numbered("backward", index)]
    return passes + [numbered("backward", index) for index in range(total - ahead, total)]


@dataclass(slots=True)
class Sums:
    """What a rank's passes added up to: the loss of its tokens, and its part of the balance loss."""

    loss: Tensor
    balance: Tensor


class Pipeline:
    """Runs the stages of one rank."""

    def __init__(self, config: Config, mesh: Mesh, stages: Sequence[Stage]) -> None:
        self.config, self.stages = config, stages
        self.group = mesh["pp"]
        self._outbox: list[tuple[dist.Work, Tensor]] = []

    def train(
        self, batches: Sequence[Batch], loss_scale: float, balance_scale: float, buckets: Buckets
    ) -> Sums:
        """Run all passes of a step, leaving in the buckets the gradient of both losses times their scales."""
        pp, vpp = self.group.size, len(self.stages)
        passes = one_forward_one_backward(pp, vpp, self.group.index, len(batches))
        left = [len(batches)] * vpp
        kept: dict[tuple[int, int], Kept] = {}
        sums = self._zeros()
        for step in passes:
            key = (step.chunk, step.microbatch)
            if step.kind == "forward":
                kept[key] = self._forward(step, batches[step.microbatch], sums)
                continue
            left[step.chunk] -= 1
            if left[step.chunk] == 0:
                buckets.expect_last_gradients(step.chunk)
            self._backward(step, kept.pop(key), loss_scale, balance_scale)
        self._flush()
        return sums

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Batch]) -> Sums:
        """Run forward passes only."""
        sums = self._zeros()
        # All micro-batches pass one virtual stage before the next: no backward pass waits for them.
        for chunk in range(len(self.stages)):
            for microbatch, batch in enumerate(batches):
                self._forward(Pass("forward", chunk, microbatch), batch, sums)
        self._flush()
        return sums

    def _forward(self, step: Pass, batch: Batch, sums: Sums) -> Kept:
        stage, hidden = self.stages[step.chunk], None
        if not stage.is_first:
            shape = (len(batch.samples), len(batch.resident_places), self.config.model.hidden)
            hidden = self._receive(shape, stage.index - 1, step).requires_grad_(torch.is_grad_enabled())
        with autocast(self.config.precision):
            output, balance = stage(hidden, batch)
        sums.balance += balance.detach()
        if stage.is_last:
            sums.loss += output.detach()
        else:
            self._send(output.detach(), stage.index, step)
        return hidden, output, balance

    def _backward(self, step: Pass, kept: Kept, loss_scale: float, balance_scale: float) -> None:
        stage = self.stages[step.chunk]
        hidden, output, balance = kept
        gradient: float | Tensor = loss_scale
        if not stage.is_last:
            gradient = self._receive(output.shape, stage.index, step)
        # A scalar root: when `backward` is given gradients, torch imports sympy, 0.8 s of every rank's start.
        ((output * gradient).sum() + balance * balance_scale).backward()
        if hidden is not None and hidden.grad is not None:
            self._send(hidden.grad, stage.index - 1, step)

    def _zeros(self) -> Sums:
        dtype = parameter_dtype(self.config.precision)
        return Sums(torch.zeros((), dtype=dtype), torch.zeros((), dtype=dtype))

    def _send(self, tensor: Tensor, boundary: int, step: Pass) -> None:
        """Send over the boundary behind stage number `boundary`: forward to the next stage, or back to it.

        Messages need no names: a rank sends to another in the order in which that one receives.
        """
        number = boundary + 1 if step.kind == "forward" else boundary
        tensor = tensor.contiguous()
        rank = self.group.ranks[number % self.group.size]
        work = dist.isend(tensor, rank, group=self.group.handle)
        assert work is not None
        self._outbox.append((work, tensor))

    def _receive(self, shape: Sequence[int], boundary: int, step: Pass) -> Tensor:
        number = boundary if step.kind == "forward" else boundary + 1
        tensor = torch.empty(shape, dtype=parameter_dtype(self.config.precision))
        rank = self.group.ranks[number % self.group.size]
        dist.recv(tensor, rank, group=self.group.handle)
        return tensor

    def _flush(self) -> None:
        """Wait for what was sent; until then its memory must stay."""
        for work, _ in self._outbox:
            work.wait()
        self._outbox.clear()

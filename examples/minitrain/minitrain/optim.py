"""AdamW and Lion, element by element on flat buckets: a share is updated as the whole would be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from minitrain.buckets import Buckets
from minitrain.config import OptimConfig


class Optimizer(ABC):
    """State for the part of each bucket that this rank updates.

    Attributes
    ----------
    state : list of dict of Tensor
        For each bucket, tensors as long as its ``own_values``, by name.
    n_updates : int
        Updates made; skipped steps do not count.
    """

    state_names: ClassVar[tuple[str, ...]]

    def __init__(self, config: OptimConfig, buckets: Buckets) -> None:
        self.config, self.buckets, self.n_updates = config, buckets, 0
        self.state = [
            {name: torch.zeros_like(bucket.own_values) for name in self.state_names} for bucket in buckets.all
        ]

    @torch.no_grad()
    def update(self, lr: float) -> None:
        """Move the weights against their gradients, decaying matrices first."""
        self.n_updates += 1
        for bucket, state in zip(self.buckets.all, self.state, strict=True):
            if bucket.placement.is_decayed:
                bucket.own_values.mul_(1 - lr * self.config.weight_decay)
            bucket.own_values.sub_(self._direction(bucket.own_gradients, state), alpha=lr)

    @abstractmethod
    def _direction(self, gradient: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Return what to subtract at a rate of 1, and bring the state up to date."""


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    state_names = ("mean", "square")

    def _direction(self, gradient: Tensor, state: dict[str, Tensor]) -> Tensor:
        beta1, beta2 = self.config.beta1, self.config.beta2
        mean = state["mean"].lerp_(gradient, 1 - beta1)
        square = state["square"].lerp_(gradient.square(), 1 - beta2)
        root = (square / (1 - beta2**self.n_updates)).sqrt()
        return mean / (1 - beta1**self.n_updates) / (root + self.config.eps)


class Lion(Optimizer):
    """Sign of an interpolated momentum (Chen et al., 2023)."""

    state_names = ("mean",)

    def _direction(self, gradient: Tensor, state: dict[str, Tensor]) -> Tensor:
        direction = state["mean"].lerp(gradient, 1 - self.config.beta1).sign()
        state["mean"].lerp_(gradient, 1 - self.config.beta2)
        return direction


OPTIMIZERS: dict[str, type[Optimizer]] = {"adamw": AdamW, "lion": Lion}

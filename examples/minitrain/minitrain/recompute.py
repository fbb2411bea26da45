"""Activation recompute: forget what a chunk of blocks computed, and compute it again on the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

Chunk = Callable[[Tensor], tuple[Tensor, Tensor]]


class _Recompute(Function):
    @staticmethod
    def forward(ctx: Any, chunk: Chunk, hidden: Tensor) -> tuple[Tensor, Tensor]:
        ctx.chunk = chunk
        # The second pass must use the number formats of the first; backward runs outside of any autocast.
        ctx.autocast = {"enabled": torch.is_autocast_enabled("cpu"), "dtype": torch.get_autocast_dtype("cpu")}
        ctx.save_for_backward(hidden)
        return chunk(hidden)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor | None]:
        (saved,) = ctx.saved_tensors
        hidden = saved.detach().requires_grad_()
        with torch.enable_grad(), torch.autocast("cpu", **ctx.autocast):
            output, balance = ctx.chunk(hidden)
            # A scalar root, for the reason given in `Pipeline`.
            root = (output * gradients[0]).sum() + balance * gradients[1]
        root.backward()
        return None, hidden.grad


def recompute(chunk: Chunk, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Run `chunk`, keeping only its input for the backward pass.

    The chunk must give the same result twice: dropout here has no state, so nothing else needs restoring.
    Gradients of its weights are added where they belong during the backward pass.
    """
    outputs: tuple[Tensor, Tensor] = _Recompute.apply(chunk, hidden)
    return outputs

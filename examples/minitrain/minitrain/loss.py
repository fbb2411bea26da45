"""Cross entropy over a vocabulary whose rows are shared by tensor ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from minitrain.collectives import max_, sum_

if TYPE_CHECKING:
    from minitrain.mesh import Group


class _CrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, start: int, group: Group) -> Tensor:
        local = labels - start
        is_here = (local >= 0) & (local < logits.shape[-1])
        local = local.clamp(0, logits.shape[-1] - 1)[..., None]
        shifted = logits - max_(logits.amax(-1), group)[..., None]
        exponent = shifted.exp()
        # One message for both sums: it is the waiting that costs.
        parts = torch.stack((shifted.gather(-1, local)[..., 0] * is_here, exponent.sum(-1)))
        target, total = sum_(parts, group).unbind()
        ctx.save_for_backward(exponent / total[..., None], local, is_here)
        return total.log() - target

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        probabilities, local, is_here = ctx.saved_tensors
        change = probabilities.scatter_add(-1, local, -is_here[..., None].to(probabilities.dtype))
        return change * gradient[..., None], None, None, None


def cross_entropy(logits: Tensor, labels: Tensor, start: int, group: Group) -> Tensor:
    """Return the loss of each token, in fp32 at least.

    Parameters
    ----------
    logits : Tensor, shape (..., rows of the vocabulary here)
    labels : Tensor, shape (...)
        Numbers of tokens in the whole vocabulary.
    start : int
        First row of the vocabulary that is held here.
    group : Group
        The tensor ranks, which hold the other rows.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss: Tensor = _CrossEntropy.apply(logits, labels, start, group)
    return loss

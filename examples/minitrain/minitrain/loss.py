"""Cross entropy over a vocabulary whose rows are shared by tensor ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from minitrain.collectives import max_, sum_from
from minitrain.mesh import Group


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
    # The largest logit keeps the exponentials finite, and cancels out: it needs no gradient.
    shifted = logits - max_(logits.detach().amax(-1), group)[..., None]
    local = labels - start
    is_here = (local >= 0) & (local < logits.shape[-1])
    target = shifted.gather(-1, (local * is_here)[..., None])[..., 0] * is_here
    # One message for both sums: it is the waiting that costs.
    target, total = sum_from(torch.stack((target, shifted.exp().sum(-1))), group).unbind()
    return total.log() - target

"""Communication over one `Group`, plain and differentiable. A group of one returns its input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from minitrain.mesh import Group

Way = Callable[[Tensor], Tensor]


def sum_(tensor: Tensor, group: Group) -> Tensor:
    """Sum `tensor` over the group, in place."""
    if group.size > 1:
        dist.all_reduce(tensor, group=group.handle)
    return tensor


def max_(tensor: Tensor, group: Group) -> Tensor:
    """Take the largest of each element over the group, in place."""
    if group.size > 1:
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group.handle)
    return tensor


def all_gather(tensor: Tensor, group: Group, dim: int = 0) -> Tensor:
    """Join the tensors of all ranks along `dim`, in the order of the group; shapes must agree."""
    if group.size == 1:
        return tensor
    first = tensor.movedim(dim, 0).contiguous()
    whole = first.new_empty((group.size * first.shape[0], *first.shape[1:]))
    dist.all_gather_single(whole, first, group=group.handle)
    return whole.movedim(0, dim)


def reduce_scatter(tensor: Tensor, group: Group, dim: int = 0) -> Tensor:
    """Sum over the group, and return this rank's even share along `dim`."""
    if group.size == 1:
        return tensor
    first = tensor.movedim(dim, 0).contiguous()
    share = first.new_empty((first.shape[0] // group.size, *first.shape[1:]))
    dist.reduce_scatter_single(share, first, group=group.handle)
    return share.movedim(0, dim)


def all_to_all(tensor: Tensor, send: Sequence[int], receive: Sequence[int], group: Group) -> Tensor:
    """Send rows to every rank: ``send[i]`` of them to the i-th, which sends ``receive[i]`` in return."""
    if group.size == 1:
        return tensor
    received = tensor.new_empty((sum(receive), *tensor.shape[1:]))
    dist.all_to_all_single(received, tensor.contiguous(), list(receive), list(send), group=group.handle)
    return received


def broadcast_object(value: Any, group: Group) -> Any:
    """Return what the first rank of the group passed."""
    if group.size == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=group.ranks[0], group=group.handle)
    return box[0]


def barrier(group: Group) -> None:
    """Wait until every rank of the group is here."""
    if group.size > 1:
        dist.barrier(group=group.handle)


class _Communicate(Function):
    """A linear communication, and the one that takes its gradient back."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, there: Way, back: Way) -> Tensor:
        ctx.back = back
        return there(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back(gradient), None, None


def _communicate(tensor: Tensor, group: Group, there: Way, back: Way) -> Tensor:
    return tensor if group.size == 1 else _Communicate.apply(tensor, there, back)


def copy_to(tensor: Tensor, group: Group) -> Tensor:
    """Hand a tensor that all ranks hold to work that they share: the gradient is summed on the way back."""
    return _communicate(tensor, group, lambda x: x.view_as(x), lambda g: sum_(g.clone(), group))


def sum_from(tensor: Tensor, group: Group) -> Tensor:
    """Sum partial results, for work that all ranks repeat: each of them has the whole gradient already."""
    return _communicate(tensor, group, lambda x: sum_(x.clone(), group), lambda g: g)


def gather_from(tensor: Tensor, group: Group, dim: int) -> Tensor:
    """Join shares along `dim` for shared work: the gradient is summed and split again on the way back."""
    return _communicate(
        tensor, group, lambda x: all_gather(x, group, dim), lambda g: reduce_scatter(g, group, dim)
    )


def scatter_sum_from(tensor: Tensor, group: Group, dim: int) -> Tensor:
    """Sum partial results and keep an even share along `dim`: the gradient is joined on the way back."""
    return _communicate(
        tensor, group, lambda x: reduce_scatter(x, group, dim), lambda g: all_gather(g, group, dim)
    )


def exchange(tensor: Tensor, send: Sequence[int], receive: Sequence[int], group: Group) -> Tensor:
    """Send rows to every rank as `all_to_all` does; gradients take the way back."""
    return _communicate(
        tensor,
        group,
        lambda x: all_to_all(x, send, receive, group),
        lambda g: all_to_all(g, receive, send, group),
    )

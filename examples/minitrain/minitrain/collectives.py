"""Communication over one `Group`, plain and differentiable. A group of one returns its input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.autograd import Function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minitrain.mesh import Group


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


class _CopyTo(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return sum_(gradient.clone(), ctx.group), None


class _SumFrom(Function):
    @staticmethod
    def forward(_ctx: Any, tensor: Tensor, group: Group) -> Tensor:
        return sum_(tensor.clone(), group)

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _GatherFrom(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Group, dim: int) -> Tensor:
        ctx.group, ctx.dim = group, dim
        return all_gather(tensor, group, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return reduce_scatter(gradient, ctx.group, ctx.dim), None, None


class _ScatterSumFrom(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Group, dim: int) -> Tensor:
        ctx.group, ctx.dim = group, dim
        return reduce_scatter(tensor, group, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return all_gather(gradient, ctx.group, ctx.dim), None, None


class _Exchange(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, send: list[int], receive: list[int], group: Group) -> Tensor:
        ctx.send, ctx.receive, ctx.group = send, receive, group
        return all_to_all(tensor, send, receive, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return all_to_all(gradient, ctx.receive, ctx.send, ctx.group), None, None, None


def copy_to(tensor: Tensor, group: Group) -> Tensor:
    """Hand a tensor that all ranks hold to work that they share: the gradient is summed on the way back."""
    return tensor if group.size == 1 else _CopyTo.apply(tensor, group)


def sum_from(tensor: Tensor, group: Group) -> Tensor:
    """Sum partial results, for work that all ranks repeat: each of them has the whole gradient already."""
    return tensor if group.size == 1 else _SumFrom.apply(tensor, group)


def gather_from(tensor: Tensor, group: Group, dim: int) -> Tensor:
    """Join shares along `dim` for shared work: the gradient is summed and split again on the way back."""
    return tensor if group.size == 1 else _GatherFrom.apply(tensor, group, dim)


def scatter_sum_from(tensor: Tensor, group: Group, dim: int) -> Tensor:
    """Sum partial results and keep an even share along `dim`: the gradient is joined on the way back."""
    return tensor if group.size == 1 else _ScatterSumFrom.apply(tensor, group, dim)


def exchange(tensor: Tensor, send: list[int], receive: list[int], group: Group) -> Tensor:
    """Send rows to every rank as `all_to_all` does; gradients take the way back."""
    return tensor if group.size == 1 else _Exchange.apply(tensor, send, receive, group)

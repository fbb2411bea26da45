"""Who talks to whom: the ranks of every parallel axis, and the process groups over them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch.distributed as dist

from minitrain.config import Config

Axis = Literal["world", "tp", "cp", "dp", "pp", "data", "ep", "expert_data", "kv", "embedding"]


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that share one communication, as seen from one of them.

    Attributes
    ----------
    ranks : tuple of int
        Global ranks in the order of the axis.
    index : int
        Place of this rank among them.
    handle : ProcessGroup or None
        None for a group of one, which never communicates.
    """

    ranks: tuple[int, ...]
    index: int
    handle: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)


def layout(config: Config) -> dict[Axis, list[tuple[int, ...]]]:
    """Return, for each axis, the groups that all ranks fall into.

    Tensor ranks are neighbours, then context, data and pipeline ranks. ``data`` joins dp and cp: its ranks
    see other tokens with the same dense weights. Experts are spread over ``ep`` neighbours in it, and ranks
    of ``expert_data`` hold the same ones. ``kv`` joins tensor ranks that hold the same key-value head,
    ``embedding`` the first and the last pipeline stage.

    >>> from minitrain.config import assign, Config
    >>> layout(assign(Config(), ["parallel.tp=2", "parallel.dp=2"]))["dp"]
    [(0, 2), (1, 3)]
    """
    parallel = config.parallel
    tp, cp, dp, pp, ep = parallel.tp, parallel.cp, parallel.dp, parallel.pp, parallel.ep
    n_kv_copies = max(1, tp // config.model.kv_heads)
    # A rank's key tells its group of the axis; ranks rise in a group, which is the order of the axis.
    keys: dict[Axis, Callable[[int, int, int, int], object]] = {
        "world": lambda _t, _c, _d, _p: 0,
        "tp": lambda _t, c, d, p: (c, d, p),
        "cp": lambda t, _c, d, p: (t, d, p),
        "dp": lambda t, c, _d, p: (t, c, p),
        "pp": lambda t, c, d, _p: (t, c, d),
        "data": lambda t, _c, _d, p: (t, p),
        "ep": lambda t, c, d, p: (t, p, (d * cp + c) // ep),
        "expert_data": lambda t, c, d, p: (t, p, (d * cp + c) % ep),
        "kv": lambda t, c, d, p: (t // n_kv_copies, c, d, p),
        "embedding": lambda t, c, d, p: (t, c, d, 0 if p in (0, pp - 1) else p),
    }
    groups: dict[Axis, list[tuple[int, ...]]] = {}
    for axis, key in keys.items():
        members: dict[object, list[int]] = {}
        for rank in range(parallel.world):
            t, c, d, p = rank % tp, rank // tp % cp, rank // (tp * cp) % dp, rank // (tp * cp * dp)
            members.setdefault(key(t, c, d, p), []).append(rank)
        groups[axis] = [tuple(ranks) for ranks in members.values()]
    return groups


class Mesh:
    """The groups of one rank. Making it is a collective of the whole world, with the same configuration."""

    def __init__(self, config: Config) -> None:
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        handles: dict[tuple[int, ...], dist.ProcessGroup | None] = {}
        own: dict[Axis, Group] = {}
        for axis, groups in layout(config).items():
            for ranks in groups:
                if ranks not in handles:
                    handles[ranks] = _connect(ranks, config.parallel.world)
                if self.rank in ranks:
                    own[axis] = Group(ranks, ranks.index(self.rank), handles[ranks])
        self._groups = own

    def __getitem__(self, axis: Axis) -> Group:
        return self._groups[axis]

    def is_first_in(self, axes: Iterable[Axis]) -> bool:
        """Whether this rank is the first on all of `axes`: the one that speaks for all of them."""
        return all(self[axis].index == 0 for axis in axes)


def _connect(ranks: tuple[int, ...], world: int) -> dist.ProcessGroup | None:
    if len(ranks) == 1:
        return None
    return dist.group.WORLD if len(ranks) == world else dist.new_group(list(ranks))


def disconnect() -> None:
    """Leave all process groups, which nothing may hold any more: one that lives until exit aborts it."""
    gc.collect()
    dist.destroy_process_group()

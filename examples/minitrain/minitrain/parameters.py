"""Weights that know their place: which slice of which logical tensor a rank holds, and who else holds it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from torch import nn

from minitrain.config import Config
from minitrain.mesh import Axis
from minitrain.precision import parameter_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a weight stands in the whole model.

    Attributes
    ----------
    name, shape
        Of the logical tensor, the same in every layout.
    slices : tuple of (int, int)
        For each dimension, the start and the end of what this rank holds.
    copies : Axis or None
        Axis whose ranks all hold this slice, apart from the data axis.
    is_partial : bool
        Whether each of those copies sees a part of the gradient only, so that they must be summed.
    is_expert : bool
        Whether the copies for other tokens stand on ``expert_data`` and not on ``data``.
    """

    name: str
    shape: tuple[int, ...]
    slices: tuple[tuple[int, int], ...]
    copies: Axis | None = None
    is_partial: bool = False
    is_expert: bool = False

    @property
    def data_axis(self) -> Axis:
        """Axis over which other tokens meet the same weight."""
        return "expert_data" if self.is_expert else "data"

    @property
    def is_decayed(self) -> bool:
        """Whether weight decay applies: to matrices, not to gains."""
        return len(self.shape) > 1


class Weight(nn.Parameter):
    """A parameter with a `Placement`."""

    placement: Placement


def share(size: int, index: int, parts: int) -> tuple[int, int]:
    """Return start and end of one of `parts` nearly even shares.

    >>> [share(97, index, 2) for index in range(2)]
    [(0, 48), (48, 97)]
    """
    return size * index // parts, size * (index + 1) // parts


def make_weight(
    config: Config,
    name: str,
    shape: tuple[int, ...],
    *,
    std: float | None = None,
    split: dict[int, tuple[int, int]] | None = None,
    copies: Axis | None = None,
    is_partial: bool = False,
    is_expert: bool = False,
) -> Weight:
    """Make this rank's slice of a logical tensor.

    Every rank draws the whole tensor from a generator seeded by its name, so that no layout changes a value.

    Parameters
    ----------
    std : float or None
        Standard deviation of the first values; None makes ones.
    split : dict
        For a dimension that is shared out: index of the share, and how many there are.
    """
    slices = [(0, size) for size in shape]
    for dim, (index, parts) in (split or {}).items():
        slices[dim] = share(shape[dim], index, parts)
    # Drawn in fp64 and then rounded: runs that differ in precision start from the same point.
    whole = torch.ones(shape, dtype=torch.float64)
    if std is not None:
        generator = torch.Generator().manual_seed(zlib.crc32(f"{config.run.seed}/{name}".encode()))
        whole.normal_(0.0, std, generator=generator)
    weight = Weight(whole[slice_of(slices)].to(parameter_dtype(config.precision)).clone())
    weight.placement = Placement(
        name=name,
        shape=shape,
        slices=tuple(slices),
        copies=copies,
        is_partial=is_partial,
        is_expert=is_expert,
    )
    return weight


def slice_of(slices: list[tuple[int, int]] | tuple[tuple[int, int], ...]) -> tuple[slice, ...]:
    """Return the index of a slice of a logical tensor."""
    return tuple(slice(start, stop) for start, stop in slices)

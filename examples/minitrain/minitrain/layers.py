"""What blocks are made of: the border of tensor parallelism, norm, rotary embedding, dropout, SwiGLU."""

from __future__ import annotations

import zlib

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch import Tensor, nn

from minitrain.collectives import copy_to, gather_from, scatter_sum_from, sum_from
from minitrain.config import Config
from minitrain.data import Batch
from minitrain.mesh import Mesh
from minitrain.parameters import make_weight
from minitrain.precision import parameter_dtype


class TensorParallel(nn.Module):
    """Base of layers whose work is shared by tensor ranks."""

    def __init__(self, config: Config, mesh: Mesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.is_sequence_split = config.parallel.sequence_parallel

    def enter(self, x: Tensor) -> Tensor:
        """Give every tensor rank the whole of `x`, shape (rows, sequence, ...)."""
        if self.is_sequence_split:
            return gather_from(x, self.mesh["tp"], 1)
        return copy_to(x, self.mesh["tp"])

    def leave(self, x: Tensor) -> Tensor:
        """Sum partial results, and keep the rank's part of the sequence where that is split."""
        if self.is_sequence_split:
            return scatter_sum_from(x, self.mesh["tp"], 1)
        return sum_from(x, self.mesh["tp"])


class Norm(nn.Module):
    """Root-mean-square norm with a gain, computed in fp32 at least."""

    def __init__(self, config: Config, name: str) -> None:
        super().__init__()
        # Where the sequence is split, a rank's gain sees only the rank's tokens.
        partial = config.parallel.sequence_parallel
        self.gain = make_weight(config, name, (config.model.hidden,), copies="tp", is_partial=partial)

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` scaled to a root mean square of 1 along its last dimension, times the gain."""
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return x * scale * self.gain


class SwiGLU(TensorParallel):
    """Gated feed-forward block: two column-parallel matrices, then a row-parallel one."""

    def __init__(self, config: Config, mesh: Mesh, name: str) -> None:
        super().__init__(config, mesh)
        hidden, ffn, part = config.model.hidden, config.model.ffn, (mesh["tp"].index, mesh["tp"].size)
        std = hidden**-0.5
        self.gate = make_weight(config, f"{name}.gate", (ffn, hidden), std=std, split={0: part})
        self.up = make_weight(config, f"{name}.up", (ffn, hidden), std=std, split={0: part})
        std = residual_std(config, ffn)
        self.down = make_weight(config, f"{name}.down", (hidden, ffn), std=std, split={1: part})

    def forward(self, x: Tensor) -> Tensor:
        """Transform the residual stream, shape (rows, sequence, hidden)."""
        return self.leave(swiglu(self.enter(x), self.gate, self.up, self.down))


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Multiply two projections of `x`, one of them through a SiLU, and project the product back."""
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def residual_std(config: Config, width: int) -> float:
    """Spread of a matrix that adds to the residual stream: the sum over all blocks keeps its size."""
    return float((2 * config.model.layers * width) ** -0.5)


def rotary_angles(config: Config, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of the rotation at each position, shape (rows, 1, sequence, head size / 2)."""
    half = config.model.head_size // 2
    frequencies = config.model.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = (positions[:, None, :, None] * frequencies).to(parameter_dtype(config.precision))
    return angles.cos(), angles.sin()


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Turn pairs of channels by their position, shape (rows, heads, sequence, head size)."""
    cosine, sine = angles
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), -1).to(x.dtype)


def dropout(x: Tensor, rate: float, batch: Batch, key: str) -> Tensor:
    """Drop elements of the residual stream, shape (rows, sequence here, hidden).

    The mask is a function of the sample, the place in its row and `key`, which tells apart the uses in a
    model. So it is the same in every layout, in a recomputed forward pass and after a resume, and there is
    no state to save.
    """
    masks = []
    for sample in batch.samples:
        generator = torch.Generator().manual_seed(zlib.crc32(f"{key}/{sample}".encode()))
        whole = torch.rand(batch.row_length, x.shape[-1], generator=generator)
        masks.append(whole[batch.resident_places] >= rate)
    return x * torch.stack(masks) / (1.0 - rate)

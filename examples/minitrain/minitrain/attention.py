"""Causal grouped-query attention, its heads shared by tensor ranks and its sequence by context ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch import Tensor

from minitrain.collectives import gather_from
from minitrain.layers import TensorParallel, residual_std, rotate
from minitrain.parameters import make_weight

if TYPE_CHECKING:
    from minitrain.config import Config
    from minitrain.data import Batch
    from minitrain.mesh import Mesh


class Attention(TensorParallel):
    """Attention within documents: local queries, and keys and values gathered from all context ranks."""

    def __init__(self, config: Config, mesh: Mesh, name: str) -> None:
        super().__init__(config, mesh)
        hidden, tp = config.model.hidden, mesh["tp"]
        self.head_size = config.model.head_size
        part = (tp.index, tp.size)
        # With fewer key-value heads than tensor ranks, neighbours hold the same one and serve other queries.
        n_parts = min(tp.size, config.model.kv_heads)
        kv_part = (tp.index * n_parts // tp.size, n_parts)
        kv_shape = (config.model.kv_heads * self.head_size, hidden)
        std = hidden**-0.5
        self.query = make_weight(config, f"{name}.query", (hidden, hidden), std=std, split={0: part})
        self.key = make_weight(
            config, f"{name}.key", kv_shape, std=std, split={0: kv_part}, copies="kv", is_partial=True
        )
        self.value = make_weight(
            config, f"{name}.value", kv_shape, std=std, split={0: kv_part}, copies="kv", is_partial=True
        )
        self.output = make_weight(
            config, f"{name}.output", (hidden, hidden), std=residual_std(config, hidden), split={1: part}
        )

    def forward(self, x: Tensor, batch: Batch, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Transform the residual stream, shape (rows, sequence, hidden)."""
        x = self.enter(x)
        query = rotate(self._heads(F.linear(x, self.query)), angles)
        key = rotate(self._heads(F.linear(x, self.key)), angles)
        value = self._heads(F.linear(x, self.value))
        # Keys are turned before they travel: each rank knows the positions of its own tokens only.
        key, value = gather_from(torch.stack((key, value)), self.mesh["cp"], 3).unbind()
        mixed: Tensor = F.scaled_dot_product_attention(
            query, key, value, attn_mask=batch.mask, enable_gqa=True
        )
        return self.leave(F.linear(mixed.transpose(1, 2).flatten(2), self.output))

    def _heads(self, x: Tensor) -> Tensor:
        heads: Tensor = x.unflatten(2, (-1, self.head_size)).transpose(1, 2)
        return heads

"""Causal grouped-query attention, its heads shared by tensor ranks and its sequence by context ranks."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch import Tensor

from minitrain.collectives import gather_from
from minitrain.config import Config
from minitrain.data import Batch
from minitrain.layers import TensorParallel, residual_std, rotate
from minitrain.mesh import Mesh
from minitrain.parameters import make_weight


class Attention(TensorParallel):
    """Attention within documents: local queries, and keys and values gathered from all context ranks."""

    def __init__(self, config: Config, mesh: Mesh, name: str) -> None:
        super().__init__(config, mesh)
        hidden, tp = config.model.hidden, mesh["tp"]
        self.head_size = config.model.head_size
        part = (tp.index, tp.size)
        # With fewer key-value heads than tensor ranks, neighbours hold the same one and serve other queries.
        n_parts = min(tp.size, config.model.kv_heads)
        split = {0: (tp.index * n_parts // tp.size, n_parts)}
        shape = (config.model.kv_heads * self.head_size, hidden)
        std = hidden**-0.5
        self.query = make_weight(config, f"{name}.query", (hidden, hidden), std=std, split={0: part})
        self.key, self.value = (
            make_weight(config, f"{name}.{kind}", shape, std=std, split=split, copies="kv", is_partial=True)
            for kind in ("key", "value")
        )
        std = residual_std(config, hidden)
        self.output = make_weight(config, f"{name}.output", (hidden, hidden), std=std, split={1: part})

    def forward(self, x: Tensor, batch: Batch, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Transform the residual stream, shape (rows, sequence, hidden)."""
        x = self.enter(x)
        query = rotate(self._heads(F.linear(x, self.query)), angles)
        key = rotate(self._heads(F.linear(x, self.key)), angles)
        value = self._heads(F.linear(x, self.value))
        # Keys are turned before they travel: each rank knows the positions of its own tokens only.
        key, value = gather_from(torch.stack((key, value)), self.mesh["cp"], 3).unbind()
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=batch.mask, enable_gqa=True)
        return self.leave(F.linear(mixed.transpose(1, 2).flatten(2), self.output))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_size).transpose(1, 2)

"""The network as pipeline stages: blocks, with the embedding before the first and the loss after the last."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch import Tensor, nn

from minitrain.attention import Attention
from minitrain.config import Config
from minitrain.data import Batch
from minitrain.layers import Norm, SwiGLU, TensorParallel, dropout, rotary_angles
from minitrain.loss import cross_entropy
from minitrain.mesh import Axis, Mesh
from minitrain.moe import MixtureOfExperts
from minitrain.parameters import Weight, make_weight
from minitrain.recompute import recompute


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and added to the residual stream."""

    def __init__(self, config: Config, mesh: Mesh, layer: int) -> None:
        super().__init__()
        name = f"blocks.{layer}"
        self.rate = config.model.dropout
        self.dropout_key = f"{config.run.seed}/{name}"
        self.attention_norm = Norm(config, f"{name}.attention_norm")
        self.attention = Attention(config, mesh, f"{name}.attention")
        self.ffn_norm = Norm(config, f"{name}.ffn_norm")
        self.ffn: MixtureOfExperts | SwiGLU
        if config.model.has_experts(layer):
            self.ffn = MixtureOfExperts(config, mesh, f"{name}.experts")
        else:
            self.ffn = SwiGLU(config, mesh, f"{name}.ffn")

    def forward(self, hidden: Tensor, batch: Batch, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the residual stream after this block, and its balance loss (0 where it has no experts)."""
        attended = self.attention(self.attention_norm(hidden), batch, angles)
        hidden = hidden + self._drop(attended, batch, "attention")
        normed = self.ffn_norm(hidden)
        if isinstance(self.ffn, MixtureOfExperts):
            added, balance = self.ffn(normed, batch)
        else:
            added, balance = self.ffn(normed), hidden.new_zeros(())
        return hidden + self._drop(added, batch, "ffn"), balance

    def _drop(self, x: Tensor, batch: Batch, use: str) -> Tensor:
        if not (self.training and self.rate):
            return x
        return dropout(x, self.rate, batch, f"{self.dropout_key}/{use}")


class VocabularyMatrix(TensorParallel):
    """Rows of the vocabulary, shared by tensor ranks as evenly as they can be: the embedding, or the head."""

    def __init__(self, config: Config, mesh: Mesh, name: str, *, is_tied: bool) -> None:
        super().__init__(config, mesh)
        model, tp = config.model, mesh["tp"]
        shape, split = (model.vocabulary, model.hidden), {0: (tp.index, tp.size)}
        std = model.hidden**-0.5  # as a head, it gives logits of size 1
        copies: Axis | None = "embedding" if is_tied else None
        self.weight = make_weight(
            config, name, shape, std=std, split=split, copies=copies, is_partial=is_tied
        )

    @property
    def start(self) -> int:
        """Number of the first token whose row is here."""
        return self.weight.placement.slices[0][0]

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the rows of `tokens` as the residual stream, shape (rows, sequence, hidden)."""
        local = tokens - self.start
        is_here = (local >= 0) & (local < len(self.weight))
        rows = F.embedding(local * is_here, self.weight) * is_here[..., None]
        return self.leave(rows)

    def loss(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the summed loss of the batch's counted tokens."""
        logits = F.linear(self.enter(hidden), self.weight)
        return (cross_entropy(logits, batch.labels, self.start, self.mesh["tp"]) * batch.weights).sum()


class Stage(nn.Module):
    """Consecutive blocks that live on one rank; the first stage embeds, the last one ends in the loss.

    Parameters
    ----------
    index : int
        Place among all ``pp x vpp`` stages.
    """

    def __init__(self, config: Config, mesh: Mesh, index: int) -> None:
        super().__init__()
        self.config, self.index = config, index
        n_stages = config.parallel.n_stages
        self.is_first, self.is_last = index == 0, index == n_stages - 1
        n_blocks = config.model.layers // n_stages
        is_tied = config.model.tied_embeddings
        self.embedding: VocabularyMatrix | None = None
        self.head: VocabularyMatrix | None = None
        if self.is_first:
            self.embedding = VocabularyMatrix(config, mesh, "embedding", is_tied=is_tied)
        self.blocks = nn.ModuleList(
            Block(config, mesh, layer) for layer in range(index * n_blocks, (index + 1) * n_blocks)
        )
        if self.is_last:
            self.norm = Norm(config, "norm")
            if is_tied:
                # On another rank than the embedding it is a copy, kept equal by summing both gradients.
                self.head = self.embedding or VocabularyMatrix(config, mesh, "embedding", is_tied=True)
            else:
                self.head = VocabularyMatrix(config, mesh, "head", is_tied=False)

    def forward(self, hidden: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor]:
        """Run the stage.

        Parameters
        ----------
        hidden : Tensor or None, shape (rows, sequence here, hidden size)
            Output of the stage before; None for the first one.

        Returns
        -------
        output : Tensor
            The residual stream, or the summed loss of the last stage.
        balance : Tensor
            Balance loss of the stage's experts, summed over blocks and rows.
        """
        if self.embedding is not None:
            hidden = self.embedding.embed(batch.tokens)
        assert hidden is not None
        angles = rotary_angles(self.config, batch.positions)
        balance = hidden.new_zeros(())
        for blocks in self._chunks():

            def run(hidden: Tensor, blocks: Sequence[nn.Module] = blocks) -> tuple[Tensor, Tensor]:
                total = hidden.new_zeros(())
                for block in blocks:
                    hidden, added = block(hidden, batch, angles)
                    total = total + added
                return hidden, total

            is_recomputed = self.config.parallel.recompute_layers > 0 and torch.is_grad_enabled()
            hidden, added = recompute(run, hidden) if is_recomputed else run(hidden)
            balance = balance + added
        if self.head is not None:
            hidden = self.head.loss(self.norm(hidden), batch)
        return hidden, balance

    def _chunks(self) -> list[Sequence[nn.Module]]:
        """Split the blocks into recomputed chunks; the last one holds the rest."""
        blocks = list(self.blocks)
        size = self.config.parallel.recompute_layers or len(blocks)
        return [blocks[start : start + size] for start in range(0, len(blocks), size)]

    def weights(self) -> list[Weight]:
        """Return every weight of the stage once, in the order of the forward pass."""
        return [weight for weight in self.parameters() if isinstance(weight, Weight)]

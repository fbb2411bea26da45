"""Mixture of experts: routing, the balance loss, capacity, and the way to experts on other ranks and back."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch import Tensor

from minitrain.collectives import all_gather, all_to_all, exchange, sum_
from minitrain.config import Config
from minitrain.data import Batch
from minitrain.layers import TensorParallel, residual_std, swiglu
from minitrain.mesh import Mesh
from minitrain.parameters import make_weight


class MixtureOfExperts(TensorParallel):
    """SwiGLU experts, each token sent to its top k.

    Balance and capacity are counted in each row of the batch, so that neither micro-batches nor layouts
    change them.
    """

    def __init__(self, config: Config, mesh: Mesh, name: str) -> None:
        super().__init__(config, mesh)
        model = config.model
        self.n_experts, self.top_k = model.experts, model.top_k
        self.capacity = math.ceil(model.capacity_factor * model.top_k * config.data.sequence / model.experts)
        hidden, ffn, tp, ep = model.hidden, model.ffn, mesh["tp"], mesh["ep"]
        std, shape = hidden**-0.5, (model.experts, hidden)
        self.router = make_weight(
            config, f"{name}.router", shape, std=std, copies="tp", is_partial=self.is_sequence_split
        )
        wide, split = (model.experts, ffn, hidden), {0: (ep.index, ep.size), 1: (tp.index, tp.size)}
        self.gate = make_weight(config, f"{name}.gate", wide, std=std, split=split, is_expert=True)
        self.up = make_weight(config, f"{name}.up", wide, std=std, split=split, is_expert=True)
        narrow, split = (model.experts, hidden, ffn), {0: (ep.index, ep.size), 2: (tp.index, tp.size)}
        std = residual_std(config, ffn)
        self.down = make_weight(config, f"{name}.down", narrow, std=std, split=split, is_expert=True)

    def forward(self, x: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Transform the residual stream, shape (rows, sequence, hidden), and return the balance loss too."""
        gates, chosen, balance = self._route(x, batch.row_length)
        # From here on tensor ranks share the work, on the whole of the local sequence.
        x, gates = self.enter(x), self.enter(gates)
        if self.is_sequence_split:
            chosen = all_gather(chosen, self.mesh["tp"], 1)
        kept = torch.ones_like(chosen, dtype=torch.bool)
        if self.capacity:
            kept = self._within_capacity(chosen, batch)
        mixed = self._dispatch(x.flatten(0, 1), gates.flatten(0, 1), chosen.flatten(0, 1), kept.flatten(0, 1))
        return self.leave(mixed.view_as(x)), balance

    def _route(self, x: Tensor, row_length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Choose experts for the tokens of the residual stream that stand here.

        Returns
        -------
        gates, chosen : Tensor, shape (rows, sequence, k)
            Weight and number of each chosen expert; the weights of a token sum to 1.
        balance : Tensor
            Local part of E x sum over experts of (share of choices x mean probability), summed over rows.
            It is 1 a row when all experts get the same.
        """
        with torch.autocast("cpu", enabled=False):
            probabilities = F.linear(x, self.router).softmax(-1)
        gates, chosen = probabilities.topk(self.top_k)
        gates = gates / gates.sum(-1, keepdim=True)
        counts = F.one_hot(chosen, self.n_experts).sum((1, 2)).to(probabilities.dtype)
        # The choices of the whole row count; the probabilities of other ranks are added when gradients are.
        sum_(counts, self.mesh["cp"])
        if self.is_sequence_split:
            sum_(counts, self.mesh["tp"])
        shares = counts / (self.top_k * row_length)
        return gates, chosen, self.n_experts * (shares * probabilities.sum(1)).sum() / row_length

    def _within_capacity(self, chosen: Tensor, batch: Batch) -> Tensor:
        """Tell which choices are kept: an expert takes the first ones of each row, shape as `chosen`."""
        everywhere = all_gather(chosen, self.mesh["cp"], 1)
        in_order = torch.empty_like(everywhere)
        in_order[:, batch.gathered_places] = everywhere
        choices = F.one_hot(in_order.flatten(1), self.n_experts)
        rank_in_expert = ((choices.cumsum(1) - 1) * choices).sum(-1).view_as(in_order)
        return (rank_in_expert < self.capacity)[:, batch.places]

    def _dispatch(self, x: Tensor, gates: Tensor, chosen: Tensor, kept: Tensor) -> Tensor:
        """Send tokens to their experts, shapes (tokens, hidden) and (tokens, k), and add up the results."""
        ep = self.mesh["ep"]
        token, choice = kept.nonzero(as_tuple=True)
        expert = chosen[token, choice]
        order = expert.argsort(stable=True)
        token, choice = token[order], choice[order]
        counts = expert.bincount(minlength=self.n_experts)
        # Row i of the received counts: how many tokens the i-th rank sends to each expert that lives here.
        ones = [1] * ep.size
        received = all_to_all(counts.view(ep.size, -1), ones, ones, ep)
        send, receive = counts.view(ep.size, -1).sum(1).tolist(), received.sum(1).tolist()
        arrived = exchange(x[token], send, receive, ep)
        returned = exchange(self._apply_experts(arrived, received), receive, send, ep)
        weighted = returned * gates[token, choice][:, None]
        return torch.zeros_like(x, dtype=weighted.dtype).index_add(0, token, weighted)

    def _apply_experts(self, arrived: Tensor, received: Tensor) -> Tensor:
        """Run each local expert on its tokens, which come sorted by sender and then by expert."""
        n_local = received.shape[1]
        expert = torch.arange(n_local).repeat(len(received)).repeat_interleave(received.flatten())
        order = expert.argsort(stable=True)
        pieces = arrived[order].split(received.sum(0).tolist())
        # Experts without a token run too: their gradients are zero, not missing, as on every other rank.
        grouped = torch.cat(
            [swiglu(*of_one) for of_one in zip(pieces, self.gate, self.up, self.down, strict=True)]
        )
        return torch.empty_like(grouped).index_copy(0, order, grouped)

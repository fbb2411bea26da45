"""Rows of tokens from the corpus, in a resumable order, cut to what one rank works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from minitrain.config import Config, DataConfig
from minitrain.corpus import END_OF_DOCUMENT, Corpus, open_corpus
from minitrain.errors import DataError
from minitrain.mesh import Mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A micro-batch as one rank sees it: some rows, and of each row the places of its context rank.

    Attributes
    ----------
    samples : list of int
        Number of each row in the whole run; -1 for a row that only fills up an uneven batch.
    tokens, labels, positions : Tensor of int64, shape (rows, sequence here)
        Positions count from the start of the document.
    weights : Tensor, shape (rows, sequence here)
        1 where the label counts, else 0.
    mask : Tensor of bool, shape (rows, 1, sequence here, row length)
        Which gathered places a query attends to: earlier ones of its document.
    places : Tensor of int64, shape (sequence here,)
        Where the local tokens stand in their row.
    resident_places : Tensor of int64
        The same for the residual stream, of which tensor ranks may hold a part each.
    gathered_places : Tensor of int64, shape (row length,)
        Where tokens stand that were gathered from all context ranks.
    """

    samples: list[int]
    tokens: Tensor
    labels: Tensor
    positions: Tensor
    weights: Tensor
    mask: Tensor
    places: Tensor
    resident_places: Tensor
    gathered_places: Tensor

    @property
    def row_length(self) -> int:
        """Tokens in a whole row."""
        return len(self.gathered_places)


class Rows:
    """The corpus as rows of equal length.

    Packed, rows are cut from all documents joined together; otherwise each document is a row, cut or filled
    up.

    Attributes
    ----------
    tokens : Tensor of int64, shape (n_rows, sequence + 1)
        One more than a row, for its last label.
    documents : Tensor of int64, shape (n_rows, sequence + 1)
        Number of the document that a token belongs to; -1 for filling.
    """

    def __init__(self, corpus: Corpus, data: DataConfig) -> None:
        length = data.sequence + 1
        lengths = corpus.starts.diff()
        if data.packing:
            n_rows = (len(corpus.tokens) - 1) // data.sequence
            index = torch.arange(n_rows)[:, None] * data.sequence + torch.arange(length)
            of_token = torch.arange(len(lengths)).repeat_interleave(lengths)
            self.tokens, self.documents = corpus.tokens[index], of_token[index]
        else:
            inside = torch.arange(length) < lengths[:, None]
            index = (corpus.starts[:-1, None] + torch.arange(length)) * inside
            self.tokens = torch.where(inside, corpus.tokens[index], END_OF_DOCUMENT)
            self.documents = torch.where(inside, torch.arange(len(lengths))[:, None], -1)

    def __len__(self) -> int:
        return len(self.tokens)


class Loader:
    """Deals rows to steps.

    The state is the number of rows dealt so far: epoch, order and place follow from it. So a run goes on
    exactly where it stopped, with any number of ranks and any size of batch.
    """

    def __init__(self, config: Config, mesh: Mesh, *, is_eval: bool) -> None:
        self.config, self.mesh, self.is_eval = config, mesh, is_eval
        self.rows = Rows(open_corpus(config, is_eval=is_eval), config.data)
        if len(self.rows) == 0:
            kind = "eval_documents" if is_eval else "documents"
            raise DataError(
                f"data.{kind} hold less than one row of data.sequence={config.data.sequence} tokens"
            )

    def batches(self, first: int) -> list[Batch]:
        """Return this rank's micro-batches of the step that starts with sample number `first`.

        In evaluation, samples after the last row are filled up with rows that count for nothing: all ranks
        keep the same shapes, and take part in every communication.
        """
        data, group = self.config.data, self.mesh["dp"]
        n_local = data.batch // group.size
        start = first + group.index * n_local
        return [
            self._batch(range(sample, sample + data.micro_batch))
            for sample in range(start, start + n_local, data.micro_batch)
        ]

    def row_of(self, sample: int) -> int:
        """Return which row the n-th sample of the run is."""
        epoch, place = divmod(sample, len(self.rows))
        if self.is_eval or not self.config.data.shuffle:
            return place
        return _order(self.config.data.seed, epoch, len(self.rows))[place]

    def _batch(self, samples: Sequence[int]) -> Batch:
        is_real = torch.tensor([not self.is_eval or sample < len(self.rows) for sample in samples])
        index = torch.tensor([self.row_of(sample) for sample in samples])
        tokens, documents = self.rows.tokens[index], self.rows.documents[index]
        labels, tokens = tokens[:, 1:], tokens[:, :-1]
        # What follows the end of a document is not for the model to know.
        is_counted = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0) & is_real[:, None]
        documents = documents[:, :-1]
        places = _context_places(self.config)
        own, gathered = places[self.mesh["cp"].index], torch.cat(places)
        mask = (own[:, None] >= gathered) & (documents[:, own, None] == documents[:, None, gathered])
        tp = self.mesh["tp"]
        is_split = self.config.parallel.sequence_parallel
        return Batch(
            samples=[sample if real else -1 for sample, real in zip(samples, is_real.tolist(), strict=True)],
            tokens=tokens[:, own],
            labels=labels[:, own],
            positions=_positions(documents)[:, own],
            weights=is_counted[:, own].to(torch.float32),
            mask=mask[:, None],
            places=own,
            resident_places=own.chunk(tp.size)[tp.index] if is_split else own,
            gathered_places=gathered,
        )


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, n_rows: int) -> list[int]:
    """Return the order of rows in an epoch."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order: list[int] = torch.randperm(n_rows, generator=generator).tolist()
    return order


def _positions(documents: Tensor) -> Tensor:
    """Return how far each token is from the first one of its document in the row, shape as `documents`."""
    places = torch.arange(documents.shape[1]).expand_as(documents)
    is_start = torch.ones_like(documents, dtype=torch.bool)
    is_start[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return places - torch.where(is_start, places, 0).cummax(1).values


def _context_places(config: Config) -> list[Tensor]:
    """Return the places of a row that each context rank works on: an early piece and its late mirror."""
    cp = config.parallel.cp
    pieces = torch.arange(config.data.sequence).chunk(2 * cp)
    return [torch.cat((pieces[rank], pieces[-1 - rank])) for rank in range(cp)]

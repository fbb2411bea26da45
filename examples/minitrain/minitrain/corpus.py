"""The data set: a synthetic language with something to learn, generated once and kept in a file."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from minitrain.config import Config

END_OF_DOCUMENT = 0


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents, one after the other.

    Attributes
    ----------
    tokens : Tensor of int64, shape (n_tokens,)
        Each document ends in `END_OF_DOCUMENT`.
    starts : Tensor of int64, shape (n_documents + 1,)
        Where each document starts; the last entry is the number of tokens.
    """

    tokens: Tensor
    starts: Tensor


def generate(n_documents: int, mean_length: int, n_topics: int, vocabulary: int, seed: int) -> Corpus:
    """Write documents in one of several made-up languages.

    The first token tells the language. Each language has its own successor of every token, which comes in 7
    of 8 places; elsewhere stands any token, small numbers more often. So bigrams lower the loss a little,
    and attending to the first token lowers it much further. Lengths are even between half and one and a
    half times the mean.
    """
    generator = torch.Generator().manual_seed(seed)
    n_words = vocabulary - 1  # all but the end of a document
    lengths = torch.randint(mean_length // 2, mean_length * 3 // 2 + 1, (n_documents,), generator=generator)
    longest = int(lengths.max())
    successors = torch.stack([torch.randperm(n_words, generator=generator) for _ in range(n_topics)])
    topics = torch.randint(n_topics, (n_documents,), generator=generator)
    is_regular = torch.rand(n_documents, longest, generator=generator) < 7 / 8
    others = (torch.rand(n_documents, longest, generator=generator).square() * n_words).long()
    words = torch.empty(n_documents, longest, dtype=torch.int64)
    words[:, 0] = topics % n_words
    for place in range(1, longest):
        regular = successors[topics, words[:, place - 1]]
        words[:, place] = torch.where(is_regular[:, place], regular, others[:, place])
    places = torch.arange(longest)
    ends = lengths[:, None] - 1
    documents = torch.where(places == ends, END_OF_DOCUMENT, words + 1)
    starts = torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)))
    return Corpus(documents[places <= ends], starts)


def open_corpus(config: Config, *, is_eval: bool) -> Corpus:
    """Read the corpus of a configuration, generating its file first if there is none.

    The documents for training and for evaluation are drawn together, so that they share their languages.
    """
    data = config.data
    n_documents = data.documents + data.eval_documents
    sizes = (n_documents, data.mean_length, data.topics, config.model.vocabulary, data.seed)
    digest = hashlib.sha256(repr(sizes).encode()).hexdigest()[:12]
    path = data.dir / f"corpus-{digest}.pt"
    if not path.exists():
        made = generate(*sizes)
        path.parent.mkdir(parents=True, exist_ok=True)
        # In one move: another run may look for the same file.
        partial = path.with_suffix(f".{os.getpid()}")
        torch.save((made.tokens, made.starts), partial)
        partial.replace(path)
    corpus = Corpus(*torch.load(path, weights_only=True))
    border = int(corpus.starts[data.documents])
    if is_eval:
        return Corpus(corpus.tokens[border:], corpus.starts[data.documents :] - border)
    return Corpus(corpus.tokens[:border], corpus.starts[: data.documents + 1])

"""Rows, labels, masks and their order: what a sample number stands for, whoever asks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import torch
from declare import IDENTICAL, case
from oracles import assert_identical_training

from minitrain.corpus import END_OF_DOCUMENT, generate, open_corpus
from minitrain.data import Batch, Loader, Rows
from minitrain.errors import DataError
from minitrain.mesh import Group
from minitrain.recipes import recipe

if TYPE_CHECKING:
    from pathlib import Path

    from runs import Train

    from minitrain.config import Config
    from minitrain.mesh import Axis


class FakeMesh(dict["Axis", Group]):
    """Groups without processes: a loader only asks for places."""

    def __init__(self, config: Config, **index: int) -> None:
        sizes = {"dp": config.parallel.dp, "cp": config.parallel.cp, "tp": config.parallel.tp}
        super().__init__(
            {axis: Group(tuple(range(size)), index.get(axis, 0), None) for axis, size in sizes.items()}
        )


def loader(tmp_path: Path, *assignments: str, is_eval: bool = False, **index: int) -> Loader:
    config = recipe("tiny", [f"data.dir={tmp_path}", *assignments])
    return Loader(config, FakeMesh(config, **index), is_eval=is_eval)  # type: ignore[arg-type]


def test_documents_end_once_and_keep_to_their_language() -> None:
    corpus = generate(200, 40, 2, 50, seed=3)
    ends = corpus.starts[1:] - 1
    assert torch.equal((corpus.tokens == END_OF_DOCUMENT).nonzero()[:, 0], ends)
    assert set(corpus.tokens[corpus.starts[:-1]].tolist()) == {1, 2}
    lengths = corpus.starts.diff()
    assert lengths.min() >= 20
    assert lengths.max() <= 60
    # The regular successor of a token is the commonest one, in its language.
    follows: dict[tuple[int, int], list[int]] = {}
    for start, end in zip(corpus.starts[:-1].tolist(), ends.tolist(), strict=True):
        words = corpus.tokens[start:end].tolist()
        for word, successor in pairwise(words):
            follows.setdefault((words[0], word), []).append(successor)
    regular = sum(max(found.count(word) for word in set(found)) for found in follows.values())
    assert 0.85 < regular / sum(len(found) for found in follows.values()) < 0.95


def test_corpus_file_is_made_once_and_evaluation_has_documents_of_its_own(tmp_path: Path) -> None:
    config = recipe("tiny", [f"data.dir={tmp_path}"])
    training, held_out = open_corpus(config, is_eval=False), open_corpus(config, is_eval=True)
    (file,) = tmp_path.iterdir()
    changed_at = file.stat().st_mtime_ns
    assert torch.equal(open_corpus(config, is_eval=False).tokens, training.tokens)
    assert file.stat().st_mtime_ns == changed_at
    assert len(training.starts) - 1 == config.data.documents
    assert len(held_out.starts) - 1 == config.data.eval_documents
    assert held_out.starts[0] == 0
    assert held_out.starts[-1] == len(held_out.tokens)


def test_packed_rows_join_all_documents_and_lose_only_the_tail(tmp_path: Path) -> None:
    config = recipe("tiny", [f"data.dir={tmp_path}"])
    corpus = open_corpus(config, is_eval=False)
    rows = Rows(corpus, config.data)
    stream = rows.tokens[:, :-1].flatten()
    assert torch.equal(stream, corpus.tokens[: len(stream)])
    assert 0 < len(corpus.tokens) - len(stream) <= config.data.sequence
    # The last label of a row is the first token of the next one.
    assert torch.equal(rows.tokens[:-1, -1], rows.tokens[1:, 0])


def test_unpacked_row_is_a_document_cut_or_filled_up(tmp_path: Path) -> None:
    config = recipe("tiny", [f"data.dir={tmp_path}", "data.packing=false"])
    corpus = open_corpus(config, is_eval=False)
    rows = Rows(corpus, config.data)
    assert len(rows) == config.data.documents
    for row in range(20):
        document = corpus.tokens[corpus.starts[row] : corpus.starts[row + 1]][: config.data.sequence + 1]
        assert torch.equal(rows.tokens[row, : len(document)], document)
        assert (rows.documents[row, len(document) :] == -1).all()
        assert (rows.documents[row, : len(document)] == row).all()


@pytest.mark.parametrize("packing", ["true", "false"])
def test_labels_positions_and_mask_stay_inside_documents(packing: str, tmp_path: Path) -> None:
    found = loader(tmp_path, f"data.packing={packing}", "data.mean_length=9")
    batch = found.batches(0)[0]
    for row, sample in enumerate(batch.samples):
        documents = found.rows.documents[found.row_of(sample)].tolist()
        for place in range(batch.row_length):
            is_counted = documents[place + 1] == documents[place] != -1
            assert batch.weights[row, place] == is_counted
            first = documents.index(documents[place])
            assert batch.positions[row, place] == place - first
            attended = batch.mask[row, 0, place].nonzero()[:, 0].tolist()
            assert attended == list(range(first, place + 1))


@pytest.mark.parametrize("size", [2, 4])
def test_context_ranks_share_each_row_and_its_causal_work(size: int, tmp_path: Path) -> None:
    whole = loader(tmp_path).batches(8)[0]
    parts = [loader(tmp_path, f"parallel.cp={size}", cp=rank).batches(8)[0] for rank in range(size)]
    places = torch.cat([part.places for part in parts])
    assert torch.equal(places.sort().values, torch.arange(whole.row_length))
    assert torch.equal(places, parts[0].gathered_places)
    for part in parts:
        for name in ("tokens", "labels", "positions", "weights"):
            assert torch.equal(getattr(part, name), getattr(whole, name)[:, part.places])
        assert torch.equal(part.mask, whole.mask[:, :, part.places][..., places])
    work = [int(sum(part.places + 1)) for part in parts]
    assert len(set(work)) == 1


def test_data_ranks_and_micro_batches_deal_the_same_samples(tmp_path: Path) -> None:
    def tokens(batches: list[Batch]) -> torch.Tensor:
        return torch.cat([batch.tokens for batch in batches])

    whole = loader(tmp_path, "data.micro_batch=8").batches(16)
    parts = [
        loader(tmp_path, "parallel.dp=4", "data.micro_batch=1", dp=rank).batches(16) for rank in range(4)
    ]
    assert [len(part) for part in parts] == [2, 2, 2, 2]
    assert torch.equal(torch.cat([tokens(part) for part in parts]), tokens(whole))
    assert [sample for part in parts for batch in part for sample in batch.samples] == list(range(16, 24))


def test_every_epoch_deals_every_row_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    found = loader(tmp_path)
    n_rows = len(found.rows)
    epochs = [[found.row_of(epoch * n_rows + place) for place in range(n_rows)] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(n_rows)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    in_order = loader(tmp_path, "data.shuffle=false")
    assert [in_order.row_of(n_rows + place) for place in range(5)] == list(range(5))
    other = loader(tmp_path, "data.seed=2")
    assert [other.row_of(place) for place in range(n_rows)] != epochs[0]


def test_batch_that_spans_two_epochs_has_rows_of_both(tmp_path: Path) -> None:
    found = loader(tmp_path, "data.documents=24", "data.micro_batch=8")
    n_rows = len(found.rows)
    (batch,) = found.batches(n_rows - 3)
    expected = [found.row_of(sample) for sample in range(n_rows - 3, n_rows + 5)]
    assert torch.equal(batch.tokens, found.rows.tokens[expected, :-1])


def test_uneven_evaluation_batch_is_filled_with_rows_that_count_for_nothing(tmp_path: Path) -> None:
    found = loader(tmp_path, "data.eval_documents=3", is_eval=True)
    n_rows = len(found.rows)
    assert n_rows < 8
    samples = [sample for batch in found.batches(0) for sample in batch.samples]
    assert samples == [*range(n_rows), *[-1] * (8 - n_rows)]
    weights = torch.cat([batch.weights for batch in found.batches(0)])
    assert (weights[:n_rows].sum(1) > 0).all()
    assert weights[n_rows:].sum() == 0


def test_corpus_of_less_than_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.documents hold less than one row of data\.sequence=512"):
        loader(tmp_path, "data.documents=2", "data.sequence=512")


@pytest.mark.parametrize(
    "last_epoch",
    [
        # 24 documents are 20 rows: five epochs, and steps of 8 rows that span two of them.
        case(
            "wraps",
            1,
            "tiny",
            "data.documents=24 run.steps=12 run.eval_every=0",
            {"loss": "exact", "epoch": "exact"},
            4,
            smoke=True,
        ),
        case(
            "wraps-dp3-unpacked",
            3,
            "tiny",
            "data.documents=10 data.packing=false data.batch=6 data.micro_batch=2 parallel.dp=3 run.steps=20 "
            "run.eval_every=0",
            {"loss": "exact", "epoch": "exact"},
            11,
        ),
    ],
)
def test_run_goes_on_into_later_epochs_and_starts_again_alike(last_epoch: int, train: Train) -> None:
    run = train(folder="first")
    assert run.steps("epoch") == sorted(run.steps("epoch"))
    assert run.steps("epoch")[-1] == last_epoch
    assert run.losses == train(folder="second").losses


@pytest.mark.recipe(
    "tiny", "run.steps=1", "optim.decay=constant", "run.eval_every=0", world=1, checks={"loss": "invariant"}
)
@pytest.mark.parametrize(
    "change", ["data.shuffle=false", "data.seed=7", "data.packing=false", "data.topics=1", "run.seed=5"]
)
def test_each_data_setting_changes_what_is_trained(change: str, train: Train) -> None:
    assert train(folder="first").losses[0] != train(change, folder="second").losses[0]


@pytest.mark.recipe(
    "small", "run.steps=10", "data.batch=6", "data.micro_batch=2", "parallel.dp=3", world=3, checks=IDENTICAL
)
def test_repeated_run_gives_the_same_bits(train: Train) -> None:
    assert_identical_training(train(folder="first"), train(folder="second"))

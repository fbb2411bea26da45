"""Ranks of torchrun, workers of DataLoader and ranks that torch spawns: real ones, over gloo."""

from __future__ import annotations

from pathlib import Path

import pytest
import recorded_runs

from fastci_ml.records.evidence_kinds import Gap

pytest.importorskip("torch")

SUBJECT = Path(__file__).parent / "children_subject"
RANKS: dict[str, tuple[set[str], set[Gap]]] = {
    "two_ranks": ({"by_rank", "by_rank_of"}, set()),
    # torchrun ends its ranks by SIGTERM, which they answer while they wait: the settings ask for it.
    "hung_ranks_are_ended": ({"by_rank"}, set()),
    "data_loader": ({"Rows.__len__", "Rows.__getitem__", "by_worker"}, set()),
    "data_loader_that_spawns": ({"Rows.__len__", "Rows.__getitem__", "by_worker"}, set()),
    "spawned_ranks": ({"by_rank_of"}, set()),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = recorded_runs.make_subject(tmp_path_factory.mktemp("ranks") / "repo", SUBJECT)
    found = recorded_runs.record(root, "-q", "checks_ranks.py")
    assert found.status == 0, found.output
    return found


@pytest.mark.parametrize("name", RANKS)
def test_what_a_rank_ran_is_its_test_s(run, name):
    node_id = f"checks_ranks.py::check_{name}"
    ran, gaps = RANKS[name]
    assert {unit.name for unit in run.records[node_id].units if unit.path == "work.py"} == ran
    assert run.gaps(node_id) == gaps


def test_every_check_was_looked_at(run):
    checks = {node_id.partition("::check_")[2] for node_id in run.records}
    assert checks == {*RANKS, "rank_that_is_killed"}


def test_killed_rank_makes_its_test_incomplete(run):
    assert run.gaps("checks_ranks.py::check_rank_that_is_killed") == {Gap.NO_END_MARK}


def test_rank_and_world_size_are_known(run):
    shown = run.records["checks_ranks.py::check_two_ranks"].facts.processes
    assert [text for text in shown if "rank" in text and "ranks.py" in text] == [
        f"{text.partition(',')[0]}, rank {rank} of 2" for rank, text in enumerate(shown[-2:])
    ]
    facts = [child.process for child in run.children if child.process and child.process.rank is not None]
    assert {(one.rank, one.world_size) for one in facts} == {(0, 2), (1, 2)}


def test_killed_rank_left_a_bundle_without_an_end(run):
    unended = [child for child in run.children if child.gaps]
    # The other rank raises, or torchrun ends it by SIGTERM before it does.
    assert len(unended) in (1, 2)
    assert {gap for child in unended for gap, _ in child.gaps} == {Gap.NO_END_MARK}

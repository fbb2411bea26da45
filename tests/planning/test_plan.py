"""Plans for real changes in real repositories, with and without a model, a history, a base."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from projects import LANE, NODE_IDS, add_runs, write_files

from fastci_ml.errors import GitError
from fastci_ml.features.log import build_log
from fastci_ml.features.matrix import build_matrix
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.training import train
from fastci_ml.planning.change import read_change
from fastci_ml.planning.plan import make_plan
from fastci_ml.planning.prioritize import Objective
from fastci_ml.records.plan_reader import loads_plan
from fastci_ml.records.plans import Decision, Plan
from fastci_ml.sources.git.repository import Repository
from fastci_ml.sources.history.store import HistoryStore

Project = tuple[Path, str, str]  # root, base, head


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of 48 runs and the bundle trained on it."""
    folder = tmp_path_factory.mktemp("trained")
    store = HistoryStore(folder / "history")
    add_runs(store, 0, 48)
    log = build_log(store)
    train(log, build_matrix(log), created_at=datetime(2026, 2, 1, tzinfo=UTC)).save(folder / "model")
    return folder


@pytest.fixture
def project(make_repo: Callable[..., object]) -> Project:
    """A repository and the two revisions of a change to pkg/adam.py."""
    repo = make_repo()
    write_files(repo.root)
    base = repo.commit("start")
    repo.write("pkg/adam.py", "VALUE = 1\n")
    return repo.root, base, repo.commit("change adam")


def plan_of(project: Project, store: HistoryStore, bundle: ModelBundle | None, **options: object) -> Plan:
    root, base, head = project
    with Repository(root) as repository:
        change = read_change(repository, base, head)
    return make_plan(change, lane=LANE, bundle=bundle, store=store, **options)


def test_the_changed_files_tests_come_first_with_reasons(project: Project, trained: Path) -> None:
    store = HistoryStore(trained / "history")
    plan = plan_of(project, store, ModelBundle.load(trained / "model"), objective=Objective.FAILURES)
    assert {test.id for test in plan.tests} == set(NODE_IDS)
    assert [test.order for test in plan.tests] == list(range(1, len(NODE_IDS) + 1))
    assert all(test.decision is Decision.RUN and test.reasons for test in plan.tests)
    assert all("test_adam.py" in test.id for test in plan.tests[:6])
    assert (plan.base, plan.head) == project[1:]
    assert loads_plan(plan.dumps()) == plan


def test_the_same_input_gives_the_same_bytes(project: Project, trained: Path) -> None:
    store = HistoryStore(trained / "history")
    plans = {plan_of(project, store, ModelBundle.load(trained / "model")).dumps() for _ in range(2)}
    assert len(plans) == 1


def test_the_order_of_the_collected_ids_does_not_matter(project: Project, trained: Path) -> None:
    store = HistoryStore(trained / "history")
    plans = {
        plan_of(project, store, ModelBundle.load(trained / "model"), collected=collected).dumps()
        for collected in (["new.py::a", "new.py::b", NODE_IDS[0]], [NODE_IDS[0], "new.py::b", "new.py::a"])
    }
    assert len(plans) == 1


def test_a_collected_test_without_history_is_in_the_plan_as_new(project: Project, trained: Path) -> None:
    store = HistoryStore(trained / "history")
    collected = ["tests/test_new.py::t", *NODE_IDS]
    plan = plan_of(project, store, ModelBundle.load(trained / "model"), collected=collected)
    by_id = {test.id: test for test in plan.tests}
    assert set(by_id) == set(collected)
    assert by_id["tests/test_new.py::t"].reasons[0].code == "new_test"


def test_a_known_test_is_gone_only_where_its_file_was_collected_without_it(
    project: Project, trained: Path
) -> None:
    """tests/test_adam.py has lost its first test; tests/test_model.py may have failed to import."""
    store = HistoryStore(trained / "history")
    collected = [node_id for node_id in NODE_IDS[1:] if "test_model" not in node_id]
    plan = plan_of(project, store, None, collected=collected)
    by_id = {test.id: test for test in plan.tests}
    assert set(by_id) == set(NODE_IDS[1:])
    assert any("1 known tests are gone" in note and NODE_IDS[0] in note for note in plan.notes)
    kept = [by_id[node_id].reasons[-1].code for node_id in NODE_IDS if "test_model" in node_id]
    assert kept == ["not_collected"] * 6


def test_a_failed_collection_in_the_history_is_no_test(project: Project, tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history")
    add_runs(store, 0, 2, (*NODE_IDS, "tests/test_adam.py", "suite/of-another-kind"))
    plan = plan_of(project, store, None)
    assert {test.id for test in plan.tests} == {*NODE_IDS, "suite/of-another-kind"}


def test_history_newer_than_the_model_is_folded_in(project: Project, trained: Path, tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history")
    add_runs(store, 0, 48)
    old = plan_of(project, store, ModelBundle.load(trained / "model"))
    add_runs(store, 48, 1, (*NODE_IDS, "tests/test_adam.py::test_late"))
    new = plan_of(project, store, ModelBundle.load(trained / "model"))
    assert {test.id for test in new.tests} - {test.id for test in old.tests} == {
        "tests/test_adam.py::test_late"
    }
    assert new.dumps() != old.dumps()


def test_a_test_whose_file_is_gone_is_not_planned(make_repo: Callable[..., object], trained: Path) -> None:
    repo = make_repo()
    write_files(repo.root)
    base = repo.commit("start")
    (repo.root / "tests/test_model.py").unlink()
    head = repo.commit("drop the tests of the model")
    plan = plan_of((repo.root, base, head), HistoryStore(trained / "history"), None)
    assert {test.id for test in plan.tests} == {node for node in NODE_IDS if "test_model" not in node}


def test_without_a_model_a_simple_policy_is_named(project: Project, trained: Path) -> None:
    store = HistoryStore(trained / "history")
    for objective, name in (
        (Objective.COST, "recently-failed/duration"),
        (Objective.FAILURES, "recently-failed"),
    ):
        plan = plan_of(project, store, None, objective=objective)
        assert plan.model == {"kind": "policy", "name": name, "version": None}
        assert name in plan.notes[-1]
        assert all(test.risk is None and test.reasons for test in plan.tests)


def test_without_a_history_the_collected_tests_are_planned_by_id(project: Project, tmp_path: Path) -> None:
    plan = plan_of(project, HistoryStore(tmp_path / "none"), None, collected=["b.py::t", "a.py::t"])
    assert [test.id for test in plan.tests] == ["a.py::t", "b.py::t"]
    assert plan.model["kind"] == "none"
    assert "no model and no history" in plan.notes[-1]


def test_without_anything_the_plan_is_empty_and_says_so(project: Project, tmp_path: Path) -> None:
    plan = plan_of(project, HistoryStore(tmp_path / "none"), None)
    assert plan.tests == ()
    assert plan.summary["n_run"] == 0


def test_another_lane_knows_nothing(project: Project, trained: Path) -> None:
    with Repository(project[0]) as repository:
        change = read_change(repository, *project[1:])
    plan = make_plan(change, lane="other", bundle=None, store=HistoryStore(trained / "history"))
    assert plan.tests == ()


def test_a_base_that_is_not_there_costs_the_change_not_the_plan(project: Project, trained: Path) -> None:
    root, _, head = project
    bundle = ModelBundle.load(trained / "model")
    plan = plan_of((root, "0" * 40, head), HistoryStore(trained / "history"), bundle)
    assert len(plan.tests) == len(NODE_IDS)
    assert any("the change is unknown" in note for note in plan.notes)
    assert (plan.base, plan.head) == ("", head)


def test_a_head_that_is_not_there_is_an_error(project: Project, trained: Path) -> None:
    with pytest.raises(GitError, match="no-such-branch"):
        plan_of((project[0], project[1], "no-such-branch"), HistoryStore(trained / "history"), None)


def test_an_empty_base_is_an_unknown_change(project: Project, tmp_path: Path) -> None:
    root, _, head = project
    with Repository(root) as repository:
        change = read_change(repository, "", head)
    assert not change.is_known
    assert "no base is named" in change.notes[0]


def test_a_history_of_other_lanes_is_told(project: Project, tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history")
    add_runs(store, 0, 2)
    root, base, head = project
    with Repository(root) as repository:
        plan = make_plan(read_change(repository, base, head), lane="other", bundle=None, store=store)
    assert plan.tests == ()
    assert f"no test is known on lane other; the history has {LANE}" in plan.notes

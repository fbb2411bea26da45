"""Which tests a plan names, and by what."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.planning.change import Change
from fastci_ml.planning.planned_ids import PlannedIds
from fastci_ml.records.changes import ChangeSet
from fastci_ml.records.ids import CommitSha, NodeId
from fastci_ml.records.unstable_ids import Instability

ADDRESS, POSITION, TURNOVER = Instability.ADDRESS, Instability.POSITION, Instability.TURNOVER
OBJECT = "a.py::f[<C object at 0x7f00c0ffe{}0>]"


def ids(
    known: Sequence[str] = (),
    collected: Sequence[str] = (),
    unstable: dict[str, Instability] | None = None,
    *,
    paths: Sequence[str] = ("a.py", "b.py"),
    root: str = "",
    project: str = "",
) -> PlannedIds:
    nothing = ChangeSet(base=CommitSha(""), head=CommitSha(""), head_tree="", files=())
    change = Change(change_set=nothing, paths=frozenset(paths), root=root)
    functions = {NodeId(name): kind for name, kind in (unstable or {}).items()}
    return PlannedIds(known, collected, functions, change, project)


def test_tests_under_addresses_stand_as_their_function():
    found = ids([], [OBJECT.format(1), OBJECT.format(2), "a.py::f[None]"])
    assert found.node_ids == ["a.py::f", "a.py::f[None]"]
    assert found.n_collected == {"a.py::f": 2, "a.py::f[None]": 1}
    assert found.functions == found.addressed == found.unstable == {"a.py::f": ADDRESS}


def test_numbered_tests_stand_for_themselves_where_they_were_collected():
    unstable = {"a.py::f": POSITION, "b.py::g": POSITION}
    found = ids(["a.py::f", "b.py::g"], ["a.py::f[x0]", "a.py::f[x1]"], unstable)
    assert found.node_ids == ["a.py::f[x0]", "a.py::f[x1]", "b.py::g"]
    assert found.functions == {"b.py::g": POSITION}
    assert found.unstable == unstable
    assert found.notes == []


def test_function_that_was_not_collected_stands_for_all_its_tests():
    found = ids(["a.py::f", "a.py::t"], unstable={"a.py::f": TURNOVER})
    assert found.node_ids == ["a.py::f", "a.py::t"]
    assert found.functions == {"a.py::f": TURNOVER}


def test_function_whose_file_was_collected_without_it_is_gone():
    found = ids(["a.py::f", "b.py::g"], ["a.py::t"], {"a.py::f": ADDRESS, "b.py::g": ADDRESS})
    assert found.node_ids == ["a.py::t", "b.py::g"]
    assert found.notes == ["1 known tests are gone, as their files were collected without them: a.py::f"]


def test_known_tests_of_another_project_are_left_to_it():
    known = ["a/t.py::x", "b/t.py::x", "ab/t.py::x", "t.py::x"]
    assert ids(known, paths=["t.py"], root="a", project="a").node_ids == ["a/t.py::x"]
    assert ids(known, paths=["a/t.py", "b/t.py", "t.py"], project="b").node_ids == ["b/t.py::x"]
    # The top holds all of them, as its pytest collects them.
    assert ids(known, paths=[node.partition("::")[0] for node in known]).node_ids == sorted(known)
    # What exists outside of the settings' folder is not known, so nothing is taken for gone.
    assert ids(known, paths=["t.py"], root="a", project="b").node_ids == ["b/t.py::x"]


@pytest.mark.parametrize(
    ("paths", "root", "hint"),
    [
        (["lib/t/a.py", "x.py"], "", "; try --project lib"),
        (["lib/t/a.py"], "services", "; try --project services/lib"),
        (["lib/t/a.py", "app/t/a.py"], "", ""),
        (["x.py"], "", ""),
    ],
)
def test_listing_of_another_folder_is_told(paths, root, hint):
    (note,) = ids([], ["t/a.py::x", "t/b.py::y"], paths=paths, root=root).notes
    assert note == f"no file of the collected tests is at the head, such as t/a.py{hint}"
    assert ids([], ["t/a.py::x", "new.py::y"], paths=["t/a.py"]).notes == []


names = st.sampled_from(["f[x0]", "f[x1]", "f", "g[1]", "h", OBJECT.format(1)[6:], OBJECT.format(2)[6:]])
node_ids = st.builds("{}.py::{}".format, st.sampled_from("ab"), names)
kinds = st.dictionaries(
    st.sampled_from(["a.py::f", "b.py::f", "a.py::g"]), st.sampled_from(list(Instability))
)


@given(st.lists(node_ids, unique=True), st.lists(node_ids), kinds)
def test_every_collected_test_is_spoken_for_by_one_entry(known, collected, unstable):
    found = ids(known, collected, unstable)
    assert found.node_ids == sorted(set(found.node_ids))
    assert sum(found.n_collected.values()) == len(set(collected))
    assert set(found.functions) <= set(found.node_ids)
    for node_id in collected:
        function = node_id.partition("[")[0]
        assert node_id in found.node_ids or function in found.functions


@given(st.lists(node_ids, unique=True).flatmap(lambda c: st.tuples(st.just(c), st.permutations(c))), kinds)
def test_order_of_the_listing_does_not_matter(both, unstable):
    one, other = (ids(["a.py::f", "b.py::z"], collected, unstable) for collected in both)
    assert (one.node_ids, one.functions, one.notes) == (other.node_ids, other.functions, other.notes)

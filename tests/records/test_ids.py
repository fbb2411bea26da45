from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.records.ids import (
    NodeParts,
    function_id,
    read_collected,
    split_node_id,
    with_project,
    without_project,
)

# Text in which the separators are likely: where ids go wrong in the field.
any_text = st.text(max_size=30) | st.text(alphabet="a:[]/.", max_size=30)


@given(any_text)
def test_split_then_join_gives_the_same_id(node_id):
    assert split_node_id(node_id).join() == node_id


@given(any_text)
def test_function_id_is_a_prefix_and_has_nothing_more_to_drop(node_id):
    stem = function_id(node_id)
    assert node_id.startswith(stem)
    assert function_id(stem) == stem


@pytest.mark.parametrize(
    ("node_id", "path", "names", "params"),
    [
        ("t/a.py::test_x[v1.0::q]", "t/a.py", ("test_x",), "[v1.0::q]"),
        ("t/a.py::A::B::test_y", "t/a.py", ("A", "B", "test_y"), ""),
        ("t/a.py::A::test_x[p::q]", "t/a.py", ("A", "test_x"), "[p::q]"),
        ("t/a.py::test_x[x[1]]", "t/a.py", ("test_x",), "[x[1]]"),
        ("t/a.py::test_x[]", "t/a.py", ("test_x",), "[]"),
        ("t/a[1].py::test_x", "t/a[1].py", ("test_x",), ""),
        (r"t/a.py::test_x[\xe9]", "t/a.py", ("test_x",), r"[\xe9]"),
        ("t/a.py", "t/a.py", (), ""),
        ("", "", (), ""),
    ],
)
def test_split_separates_before_the_first_bracket_after_the_path_only(node_id, path, names, params):
    assert split_node_id(node_id) == NodeParts(path=path, names=names, params=params)


def test_function_id_joins_parameters_of_one_function_and_keeps_classes_apart():
    assert function_id("a.py::A::test_x[1]") == function_id("a.py::A::test_x[2]") == "a.py::A::test_x"
    assert function_id("a.py::B::test_x[1]") == "a.py::B::test_x"


def test_listing_gives_its_ids_and_nothing_of_its_errors_and_warnings():
    listing = (
        "\ufefft/a.py::test_x[v::1]\r\nt/a.py::test_y[\x0b]\r\n\r\n===== ERRORS =====\r\nE   import a::b\r\n"
        "===== warnings summary =====\r\nt/a.py::test_x\r\n  /x/y.py:3: DeprecationWarning: std::vector\r\n"
        "ERROR t/b.py::x - a::b\r\n2 tests collected, 1 error in 0.1s\r\n"
    )
    assert read_collected(listing) == ["t/a.py::test_x[v::1]", "t/a.py::test_y[\x0b]"]


projects = st.lists(st.text(alphabet="ab .[", min_size=1, max_size=2), min_size=1, max_size=3).filter(
    lambda folders: not {".", ".."} & set(folders)
)


@given(any_text.filter(lambda text: not text.startswith("../")), projects)
def test_id_of_a_project_comes_back_from_the_top(node_id, folders):
    project = "/".join(folders)
    moved = with_project(node_id, project)
    assert node_id.startswith("/") or moved == f"{project}/{node_id}"
    assert without_project(moved, project) == node_id


# pytest writes no path with an empty folder in it.
@given(any_text.filter(lambda text: "//" not in text and not text.startswith("../")), projects)
def test_id_from_the_top_comes_back_from_a_project(node_id, folders):
    project = "/".join(folders)
    assert with_project(without_project(node_id, project), project) == node_id


def test_ids_of_two_projects_never_meet():
    assert with_project("tests/test_a.py::x", "a") != with_project("tests/test_a.py::x", "b")
    assert with_project("../b/tests/test_a.py::x", "a") == with_project("tests/test_a.py::x", "b")
    assert without_project("b/tests/test_a.py::x", "a") == "../b/tests/test_a.py::x"
    assert without_project("ab/test_a.py::x", "a") == "../ab/test_a.py::x"

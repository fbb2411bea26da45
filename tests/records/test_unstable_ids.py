"""Case 25: ids that change between runs are told from ids that only look so."""

from __future__ import annotations

import random
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.records.ids import NodeId, function_id
from fastci_ml.records.unstable_ids import (
    HistoryKeys,
    Instability,
    describe_unstable,
    has_address,
    split_params,
)
from fastci_ml.records.unstable_search import find_positional, find_unstable, find_volatile

any_text = st.text(max_size=30) | st.text(alphabet="a:[]/.-0", max_size=30)


def nobody_knows(*_: object) -> None:
    return None


def positional(*params: str, confirm=nobody_knows) -> bool:
    return bool(find_positional([f"t.py::f[{text}]" for text in params], confirm))


def history(*runs: list[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Ids of a function in each run, as `find_unstable` takes them."""
    ids = sorted({f"t.py::f[{params}]" for run in runs for params in run})
    rows = [(place, ids.index(f"t.py::f[{params}]")) for place, run in enumerate(runs) for params in run]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return ids, columns[:, 0], columns[:, 1]


@given(any_text)
def test_function_and_parameters_are_the_whole_id(node_id):
    function, params = split_params(node_id)
    assert function + params == node_id
    assert function == function_id(node_id)


@given(any_text)
def test_id_without_parameters_keeps_itself_as_its_key(node_id):
    if not split_params(node_id)[1]:
        assert HistoryKeys({NodeId(node_id): Instability.POSITION}).key(node_id) == node_id


# case 25: addresses. The case names objects and lambdas; here are more that hold one.
@pytest.mark.parametrize(
    "params",
    [
        "[<lib.Config object at 0x7f3a5c0d2e10>]",
        "[<function <lambda> at 0x7f00c0ffee10>-1]",
        "[functools.partial(<function f at 0x55d1a2b3c4d0>)]",
        "[<bound method C.m of <C object at 0x10a2b3c40>>]",  # macOS
        "[<C object at 0x000002A1B2C3D4E0>]",  # Windows
        "[a-0x7f3a5c0d2e18]",
        "[0x55d1a2b3c4d0]",
        "[gpu::<C at 0x7f3a5c0d2e10>]",
    ],
)
def test_address_is_seen_in_any_id(params):
    assert has_address(params)
    assert HistoryKeys({}).key(f"t.py::f{params}") == "t.py::f"
    assert HistoryKeys({}).kind(f"t.py::f{params}") is Instability.ADDRESS


@pytest.mark.parametrize(
    "params",
    [
        "[0xdeadbeef]",
        "[0x10]",
        "[0x100000000]",
        "[0xffffffffffff]",
        "[0x7fffffffffff]",
        "[0xdeadbeefcafe]",
        "[0xcbf29ce484222325]",
        "[look at 0x10]",
        "[at0x7f3a5c0d2e10]",
        "[0x7f3a5c0d2e1g]",
        "",
        "[]",
        "[flat 0x]",
    ],
)
def test_number_that_is_no_address_names_a_test(params):
    assert not has_address(params)
    assert HistoryKeys({}).key(f"t.py::f{params}") == f"t.py::f{params}"


def test_other_ids_of_a_function_with_addresses_keep_theirs():
    keys = HistoryKeys({NodeId("t.py::f"): Instability.ADDRESS})
    assert keys.key("t.py::f[None]") == "t.py::f[None]"


# case 25: places in a list. Beside the `f0`, `f3` and `<lambda>` of the case: numbered equal ids, equal ids
# that end in a digit, several arguments, stacked parametrize.
@pytest.mark.parametrize(
    "params",
    [
        ("f0", "1", "2", "f3"),
        ("<lambda>0", "<lambda>1"),
        ("1-<lambda>0", "1-<lambda>1", "1-x"),
        ("a0", "a1", "b"),
        ("1.5_0", "1.5_1"),
        ("x0-y0", "x1-y1"),
        ("x0-cpu", "x0-gpu", "x1-cpu", "x1-gpu"),
        ("0", "f1", "f0"),
    ],
)
def test_numbers_of_pytest_are_positions(params):
    assert positional(*params)


@pytest.mark.parametrize(
    "params",
    [
        ("v1", "v2"),
        ("fp16", "bf16", "fp32"),
        ("int8", "int4"),
        ("gpt2", "gpt3"),
        ("v0", "v2"),
        ("p0-a", "p8-a", "p64-a"),
        ("sm80", "sm90"),
        ("resnet18", "resnet50"),
        ("p00", "p01"),
        ("0", "1", "2"),
        ("a", "b"),
        ("<lambda>",),
        ("f0",),
        # The rest of the id tells the tests apart, so that no number stands for two of them.
        ("small-config0", "large-config1"),
        ("1-2", "1-3"),
    ],
)
def test_names_that_people_write_are_no_positions(params):
    assert not positional(*params)


def test_file_of_the_test_has_the_last_word():
    assert not positional("layer0", "layer1", confirm=lambda *_: False)
    assert positional("layer0", "layer1", confirm=lambda *_: True)
    assert positional("None", "f1", "f2", confirm=lambda *_: True)
    assert not positional("None", "f1", "f2")
    asked = []
    positional("f0", "1", "f2", confirm=lambda *question: asked.append(question))
    assert asked == [("t.py::f", "f", ("f0", "f2"))]


def fresh(kind: str, run: int) -> str:
    number = random.Random(f"{kind}{run}")
    return {
        "uuid": str(uuid.UUID(int=number.getrandbits(128))),
        "hash": f"sha-{number.getrandbits(64):x}",
        "time": f"2026-01-{run + 1:02d}T03:04:05",
        "path": f"/tmp/pytest-of-me/pytest-{run}/f0/data.json",
        "pid": f"worker-{1000 + 7 * run}",
        "words": "-".join(number.choices(["red", "blue", "old", "new", "tree", "fish", "sun"], k=6)),
    }[kind]


# case 25: what no look gives away, seen by how the ids come and go.
@pytest.mark.parametrize("kind", ["uuid", "hash", "time", "path", "pid", "words"])
def test_ids_that_never_come_back_are_volatile(kind):
    runs = [[f"{fresh(kind, run)}", f"big-{fresh(kind, 100 + run)}"] for run in range(5)]
    assert find_unstable(*history(*runs)) == {"t.py::f": Instability.TURNOVER}
    # One value that stays does not make the others stable.
    assert find_unstable(*history(*([*run, "None"] for run in runs))) == {"t.py::f": Instability.TURNOVER}


@pytest.mark.parametrize(
    "runs",
    [
        [["cafe01"], ["cafe01"], ["cafe01"], ["cafe01"]],  # a hash that stays is a name
        [["a"], ["b"], ["c"]],  # too few runs to tell
        [["a", "b"]] * 3 + [["c", "d"]] * 3,  # renamed once
        [["a"], ["a"], ["a"], [f"new {chr(65 + i)}" for i in range(26)]],  # grown
        [["a"], ["b"], ["a"], ["b"], ["a"], ["b"], ["a"], ["b"]],  # run in turns
        [["a"], [], [], [], []],  # runs no more
    ],
)
def test_ids_that_come_back_are_names(runs):
    assert find_unstable(*history(*runs)) == {}


def test_ids_that_were_given_names_are_believed_soon():
    changing = [[fresh("uuid", run)] for run in range(30)]
    assert find_unstable(*history(*changing, *[["small", "large"]] * 7)) == {}
    numbered = [["f0", "f1"]] * 30
    assert find_unstable(*history(*numbered, *[["small", "large"]] * 3)) == {}
    # One run that was cut short changes nothing.
    assert find_unstable(*history(*numbered, ["f0"])) == {"t.py::f": Instability.POSITION}


def slow_volatile(runs, ids, functions):
    """From the words of the docstring, a function at a time."""
    found = []
    for function in range(max(functions, default=-1) + 1):
        seen, ratios = set(), []
        for run in sorted(set(runs)):
            of_run = [i for r, i in zip(runs, ids, strict=True) if r == run and functions[i] == function]
            if of_run:
                ratios.append(sum(i not in seen for i in of_run) / len(of_run))
                seen |= set(of_run)
        later = ratios[1:][-10:]
        found.append(len(later) >= 3 and sum(later) / len(later) >= 0.5)
    return found


@given(
    st.lists(st.integers(-1, 2), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 11)), max_size=60),
)
def test_volatile_functions_are_those_of_a_slow_obvious_count(functions, rows):
    rows = sorted((run, node % len(functions)) for run, node in rows)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2)
    found = find_volatile(columns[:, 0], columns[:, 1], np.array(functions))
    assert found.tolist() == slow_volatile(*(list(c) for c in columns.T), functions)


@given(
    st.permutations([f"t.py::f[{p}]" for p in ("f0", "f1", "x")] + ["t.py::g[1]", "t.py::g[2]", "u.py::h"])
)
def test_order_of_the_ids_does_not_matter(node_ids):
    runs = np.zeros(len(node_ids), dtype=np.int64)
    found = find_unstable(node_ids, runs, np.arange(len(node_ids)))
    assert found == {"t.py::f": Instability.POSITION}


def test_ids_without_brackets_are_never_looked_at():
    ids = ["a.py::f0", "a.py::f1", "com.x.FooTest", "a.py::at 0x7f3a5c0d2e10", "suite [f0]"]
    rows = np.arange(len(ids))
    assert find_unstable(ids, rows, rows) == {}
    assert [HistoryKeys({}).key(node_id) for node_id in ids] == ids


def test_description_counts_shows_and_says_what_to_do():
    kinds = (Instability.ADDRESS, Instability.POSITION, Instability.POSITION, Instability.TURNOVER)
    unstable = {NodeId(f"t.py::{name}"): kind for name, kind in zip("dcba", kinds, strict=True)}
    line = describe_unstable(unstable)
    assert line.startswith(
        "4 test functions have parameter ids that change between runs (1 address, 2 position,"
    )
    assert "t.py::a, t.py::b, t.py::c, ..." in line
    assert "ids=[" in line
    assert line == describe_unstable(dict(reversed(unstable.items())))
    assert describe_unstable({}) == ""

"""Changes of real files: none that changes the syntax tree goes without a changed or moved block."""

from __future__ import annotations

import ast
import copy
import functools
import gc
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.sources.blocks.block import Block
from fastci_ml.sources.blocks.order import moved_blocks
from fastci_ml.sources.blocks.reader import read_blocks

# Small modules of all styles: classes, tables, generators, conditions on what is there.
MODULES = (
    "bisect", "copy", "genericpath", "linecache", "netrc", "queue", "reprlib", "sched", "shelve", "stat",
)  # fmt: skip


@functools.cache
def parsed(name: str) -> ast.Module:
    return ast.parse(Path(sysconfig.get_path("stdlib"), f"{name}.py").read_bytes())


def blocks_of(tree: ast.Module) -> tuple[Block, ...]:
    found = read_blocks(ast.unparse(ast.fix_missing_locations(tree)).encode())
    assert found.is_parsed
    return found.blocks


def changed(before: tuple[Block, ...], after: tuple[Block, ...]) -> set[str]:
    old = {block.name: block.fingerprint for block in before}
    new = {block.name: block.fingerprint for block in after}
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def bare(tree: ast.AST) -> str:
    """A tree as text, without docstrings; read again, for what is written the same is the same."""
    tree = ast.parse(ast.unparse(tree))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                del body[0]
    return ast.dump(tree)


def _bodies(tree: ast.AST) -> Iterator[list[Any]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body:
                yield body


def _mutate(tree: ast.Module, draw: Any) -> None:
    """One small change: a statement gone, twice or elsewhere; another name, operator, literal or call."""
    kind = draw(st.sampled_from(["delete", "double", "swap", "name", "literal", "operator", "call"]))
    if kind in ("delete", "double", "swap"):
        bodies = [body for body in _bodies(tree) if len(body) > 1]
        body = bodies[draw(st.integers(0, len(bodies) - 1))]
        place = draw(st.integers(1, len(body) - 1))
        if isinstance(body[place], ast.Pass):
            return  # beside others it does nothing
        if kind == "delete":
            del body[place]
        elif kind == "double":
            body.insert(place, body[place])
        else:
            body[place - 1 : place + 1] = [body[place], body[place - 1]]
        return
    kinds = {"name": ast.Name, "literal": ast.Constant, "operator": ast.Compare | ast.BinOp, "call": ast.Call}
    inside = {
        id(item) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for item in ast.walk(node)
    }
    nodes: list[Any] = [
        node for node in ast.walk(tree) if isinstance(node, kinds[kind]) and id(node) not in inside
    ]
    if not nodes:
        return
    node = nodes[draw(st.integers(0, len(nodes) - 1))]
    if kind == "name":
        node.id += "_"
    elif kind == "literal":
        node.value = draw(st.sampled_from([7, "text", None, True, 0.5, b"text"]))
    elif kind == "call":
        node.args = [*node.args[:-1]] if node.args else [ast.Constant(1)]
    elif isinstance(node, ast.Compare):
        node.ops[0] = ast.NotEq()
    else:
        node.op = ast.BitXor()


def _is_python(tree: ast.Module) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(ast.unparse(ast.fix_missing_locations(tree)), "changed.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True


def _moves_definitions_only(before: ast.Module, after: ast.Module) -> bool:
    """Whether functions or classes were moved over one another or over plain statements, and no more."""
    return sorted(map(ast.dump, before.body)) == sorted(map(ast.dump, after.body)) or any(
        sorted(map(ast.dump, one.body)) == sorted(map(ast.dump, other.body))
        and ast.dump(one) != ast.dump(other)
        for one, other in zip(ast.walk(before), ast.walk(after), strict=False)
        if isinstance(one, ast.ClassDef) and isinstance(other, ast.ClassDef)
    )


@pytest.mark.parametrize("name", MODULES)
@settings(max_examples=6)
@given(data=st.data())
def test_no_change_of_a_tree_goes_unseen(name: str, data: st.DataObject) -> None:
    before = parsed(name)
    after = copy.deepcopy(before)
    _mutate(after, data.draw)
    if not _is_python(after):
        return
    old, new = blocks_of(before), blocks_of(after)
    seen = changed(old, new) | moved_blocks(old, new)
    if bare(before) == bare(after):
        assert seen == set()
    elif not _moves_definitions_only(before, after):
        assert seen


def test_statements_that_moved_are_the_fewest() -> None:
    def moved(before: str, after: str) -> set[str]:
        return set(moved_blocks(read_blocks(before.encode()).blocks, read_blocks(after.encode()).blocks))

    assert moved("import a, b, c, d", "import d, a, b, c") == {"d"}
    assert moved("A = 1\nB = 2\n", "B = 2\nA = 1\n") in ({"A"}, {"B"})
    assert moved("import a, b", "import x, a, y, b, z") == set()
    assert moved("import a, b, c", "import a, c") == set()
    assert moved("def f(): 1\ndef g(): 2\nimport a", "import a\ndef g(): 2\ndef f(): 1") == set()
    assert moved("class A:\n x = 1\n y = 2", "class A:\n y = 2\n x = 1") in ({"A.x"}, {"A.y"})
    assert moved("", "import a") == moved("import a", "") == set()


@given(st.permutations(list("abcdefgh")))
def test_what_did_not_move_is_in_order(names: list[str]) -> None:
    before = read_blocks(b"import a, b, c, d, e, f, g, h").blocks
    after = read_blocks(f"import {', '.join(names)}".encode()).blocks
    moved = moved_blocks(before, after)
    rest = [name for name in names if name not in moved]
    assert rest == sorted(rest)
    # No fewer would do: the obvious way tries them all.
    assert len(rest) == max(len(run) for run in _subsequences(names) if list(run) == sorted(run))


def _subsequences(names: list[str]) -> Iterator[tuple[str, ...]]:
    for mask in range(1 << len(names)):
        yield tuple(name for place, name in enumerate(names) if mask >> place & 1)


@pytest.mark.parametrize("source", [b"x = 1\n", b"x = (\n", b"\0"])
def test_the_collector_is_left_as_it_was(source: bytes) -> None:
    assert gc.isenabled()
    read_blocks(source)
    assert gc.isenabled()
    gc.disable()
    try:
        read_blocks(source)
        assert not gc.isenabled()
    finally:
        gc.enable()

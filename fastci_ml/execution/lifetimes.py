"""How long each costly fixture lives in the usual order of the tests: what a new order must not tear apart.

Standard library and pytest only. Which fixtures a test needs stands in attributes of pytest that are not
public; where they are not as expected, the tests of that file are kept together, so that an unforeseen
pytest costs freedom of order, never fixture set-ups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import pytest

Span = tuple[int, int]

_NO_PARAM = object()


@dataclass(frozen=True, slots=True)
class _Need:
    """A fixture value that a test uses: whose it is, the node it dies with, and its parameter."""

    owner: object
    node: pytest.Collector
    param: object


@dataclass(slots=True)
class _Life:
    """One set-up of a fixture: from the place of its first user to that of its last."""

    need: _Need
    stay: int
    first: int
    last: int


def find_spans(items: Sequence[pytest.Item]) -> tuple[list[int], list[Span]]:
    """Find the fixture lifetimes that span more than one test of a sequence.

    Parameters
    ----------
    items : sequence of pytest.Item
        In the usual order, which pytest has arranged so that parametrised fixtures are set up seldom.

    Returns
    -------
    bound : list of int
        Places in `items` of the tests that use a fixture of class, module or package scope, or a
        parametrised one of the session; the others may stand anywhere. Ascending.
    spans : list of (int, int)
        Half-open ranges of places *in `bound`*: one for each set-up with at least two tests between its
        first user and its last. An order of the bound tests that keeps every span together needs no more
        set-ups than the usual order does. Distinct, ascending.
    """
    needs = [_read_needs(item) for item in items]
    unread = {_file_of(item) for item, wanted in zip(items, needs, strict=True) if wanted is None}
    complete: list[list[_Need]] = []
    for item, wanted in zip(items, needs, strict=True):
        file = _file_of(item)
        together = [_Need(file, file, _NO_PARAM)] if file in unread else []
        complete.append([*(wanted or ()), *together])
    bound = [place for place, wanted in enumerate(complete) if wanted]
    spans = _spans([items[place] for place in bound], [complete[place] for place in bound])
    return bound, sorted(spans)


def _spans(items: Sequence[pytest.Item], needs: Sequence[Sequence[_Need]]) -> set[Span]:
    """Play the set-ups and teardowns that pytest would make of `items` in this order."""
    stays: dict[object, list[int]] = {}  # node -> first and last place of the stay in it that goes on
    alive: dict[int, _Life] = {}  # a fixture definition has one value at a time, so its id is the key
    ended: list[_Life] = []
    for place, (item, wanted) in enumerate(zip(items, needs, strict=True)):
        for node in _parents(item):
            stay = stays.get(node)
            if stay is None or stay[1] != place - 1:
                stays[node] = [place, place]
            else:
                stay[1] = place
        for need in wanted:
            begun = stays[need.node][0]
            life = alive.get(id(need.owner))
            if life and life.stay == begun and _is_same(life.need, need):
                life.last = place
                continue
            if life:
                ended.append(life)
            alive[id(need.owner)] = _Life(need, begun, place, place)
    return {(life.first, life.last + 1) for life in (*ended, *alive.values()) if life.last > life.first}


def _is_same(one: _Need, other: _Need) -> bool:
    """Whether pytest would reuse the value; parameters are compared as pytest compares them."""
    if one.node is not other.node:
        return False
    try:
        return bool(one.param == other.param)
    except (ValueError, RuntimeError, TypeError):
        # Arrays and the like have no single truth value; pytest falls back to identity too.
        return one.param is other.param


def _read_needs(item: pytest.Item) -> list[_Need] | None:
    """Costly fixtures of one test; None where they cannot be known."""
    info = getattr(item, "_fixtureinfo", None)
    if info is None:
        return None
    params = getattr(getattr(item, "callspec", None), "params", {})
    needs = []
    try:
        if _asks_later(getattr(item, "function", None)):
            return None
        for definition in _definitions(info):
            if _asks_later(definition.func):
                return None
            node = _scope_node(item, definition)
            has_param = definition.argname in params
            if node is not None and (has_param or node is not item.session):
                param = params[definition.argname] if has_param else _NO_PARAM
                needs.append(_Need(definition, node, param))
    except AttributeError:
        return None
    return needs


def _definitions(info: Any) -> Iterator[Any]:
    """Definitions that run for a test: the nearest of each name, and those that it overrides and asks for."""
    for name in info.names_closure:
        for definition in reversed(info.name2fixturedefs.get(name, ())):
            yield definition
            if name not in definition.argnames:
                break


def _scope_node(item: pytest.Item, definition: Any) -> pytest.Collector | None:
    """Node that the fixture's value dies with; None where it dies with the test."""
    scope = definition.scope
    if scope == "session":
        return item.session
    if scope == "package":
        packages = (node for node in _parents(item) if isinstance(node, pytest.Package))
        return next((node for node in packages if node.nodeid == definition.baseid), item.session)
    if scope == "module":
        return item.getparent(pytest.Module)
    # A class fixture used outside of a class dies with the test.
    return item.getparent(pytest.Class) if scope == "class" else None


def _asks_later(function: object) -> bool:
    """Whether a function names `getfixturevalue`: what it will ask for is known only when it runs."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return isinstance(code, CodeType) and _names(code, "getfixturevalue")


def _names(code: CodeType, name: str) -> bool:
    return name in code.co_names or any(
        _names(const, name) for const in code.co_consts if isinstance(const, CodeType)
    )


def _parents(item: pytest.Item) -> Iterator[pytest.Collector]:
    node: Any = item.parent
    while node is not None:
        yield node
        node = node.parent


def _file_of(item: pytest.Item) -> pytest.Collector:
    return next((node for node in _parents(item) if isinstance(node, pytest.File)), item.session)

"""What keeps a result for later callers: caches, writes to globals, attributes that are filled once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

MUTATORS = frozenset(
    {
        "add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop",
        "popitem", "popleft", "put", "remove", "set", "setdefault", "update", "__setitem__",
    }
)  # fmt: skip
# Root of what is written to through the class of an object.
CLASS_ROOT = "cls"
_DECORATOR_PARTS = ("lazy", "once")


def is_cache_name(name: str) -> bool:
    """Whether something is called as what keeps results is.

    Examples
    --------
    >>> [is_cache_name(name) for name in ("lru_cache", "_CACHE", "memoize", "memory_format", "step")]
    [True, True, True, False, False]
    """
    lower = name.lower()
    return "cache" in lower or ("memo" in lower and "memor" not in lower)


def is_memo_decorator(name: str) -> bool:
    """Whether a decorator of this name may answer without calling the function."""
    return is_cache_name(name) or any(part in name.lower() for part in _DECORATOR_PARTS)


def written_root(node: Any) -> tuple[str, bool]:
    """Plain name at the root of ``a.b[c].d``, and whether something on the way is called a cache.

    Examples
    --------
    >>> [written_root(ast.parse(text, mode="eval").body) for text in ("a._cache[0].b", "type(x).y", "f().z")]
    [('a', True), ('cls', False), ('', False)]
    """
    cls = node.__class__
    is_of_class = is_cache = False
    while cls is ast.Attribute or cls is ast.Subscript:
        if cls is ast.Attribute:
            is_of_class = is_of_class or node.attr == "__class__"
            is_cache = is_cache or is_cache_name(node.attr)
        node = node.value
        cls = node.__class__
    if is_of_class or (cls is ast.Call and getattr(node.func, "id", "") == "type"):
        return CLASS_ROOT, is_cache
    return (node.id if cls is ast.Name else ""), is_cache


def fills_missing(node: Any) -> bool:
    """Whether an ``if`` or ``try`` fills an attribute, or an item of one, only where it is missing.

    Examples
    --------
    >>> fills_missing(ast.parse("if self._x is None: self._x = make()").body[0])
    True
    >>> fills_missing(ast.parse("if self.n > 3: self.n = 0").body[0])
    False
    """
    if isinstance(node, ast.If):
        filled = set(_filled(node.body))
        return bool(filled) and not filled.isdisjoint(_missing(node.test))
    for handler in node.handlers:
        filled = set(_filled(handler.body))
        if filled and any(
            getattr(item, "attr", None) in filled for part in node.body for item in ast.walk(part)
        ):
            return True
    return False


def _missing(test: ast.expr) -> Iterator[str]:
    """Attributes that a condition asks the absence of."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _missing(part)
    elif isinstance(test, ast.Compare):
        if isinstance(test.ops[0], ast.Is):
            yield getattr(test.left, "attr", "")
        elif isinstance(test.ops[0], ast.NotIn):
            yield getattr(test.comparators[0], "attr", "")
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        asked = test.operand
        if isinstance(asked, ast.Call) and len(asked.args) == 2:
            # not hasattr(x, "name")
            yield str(getattr(asked.args[1], "value", ""))
        else:
            yield getattr(asked, "attr", "")


def _filled(body: list[ast.stmt]) -> Iterator[str]:
    """Attributes that statements assign to, or to items of which they assign."""
    for statement in body:
        for target in getattr(statement, "targets", None) or (getattr(statement, "target", None),):
            place = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(place, ast.Attribute):
                yield place.attr

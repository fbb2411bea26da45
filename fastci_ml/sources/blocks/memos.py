"""What keeps a result for later callers: caches, writes to globals, attributes that are filled once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

# Methods that put something into what they are called on.
MUTATORS = frozenset(
    {
        "__setitem__", "add", "append", "appendleft", "extend", "insert", "put", "set", "setdefault",
        "update",
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


def fills_missing(node: Any) -> set[str]:
    """What an ``if`` or ``try`` fills, or items of which, only where it is missing: ``.x`` is an attribute.

    Examples
    --------
    >>> fills_missing(ast.parse("if self._x is None: self._x = make()").body[0])
    {'._x'}
    >>> fills_missing(ast.parse("if self.n > 3: self.n = 0").body[0])
    set()
    """
    if isinstance(node, ast.If):
        filled = set(_filled(node.body))
        return filled.intersection(_missing(node.test)) if filled else filled
    filled = {name for handler in node.handlers for name in _filled(handler.body)}
    if not filled:
        return filled
    return filled.intersection(_name(item) for part in node.body for item in ast.walk(part))


def _name(node: Any) -> str:
    """Name of a variable, ``.x`` for an attribute; empty for anything else."""
    return f".{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _missing(test: ast.expr) -> Iterator[str]:
    """Names that a condition asks the absence of."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _missing(part)
    elif isinstance(test, ast.Compare):
        if isinstance(test.ops[0], ast.Is):
            yield _name(test.left)
        elif isinstance(test.ops[0], ast.NotIn):
            yield _name(test.comparators[0])
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        asked = test.operand
        if isinstance(asked, ast.Call) and len(asked.args) == 2:
            # not hasattr(x, "name")
            yield f".{getattr(asked.args[1], 'value', '')}"
        else:
            yield _name(asked)


def _filled(body: list[ast.stmt]) -> Iterator[str]:
    """Names that statements assign to, or to items of which they assign."""
    for statement in body:
        for target in getattr(statement, "targets", None) or (getattr(statement, "target", None),):
            name = _name(target.value if isinstance(target, ast.Subscript) else target)
            if name:
                yield name

"""Whether a statement of a module or class body is run for the names that it binds, or for its effect."""

from __future__ import annotations

import ast

from fastci_ml.sources.blocks.definitions import last_name

# Calls that only look, by their last name: what a condition of a module asks.
_PURE_CALLS = frozenset(
    {
        "Version", "all", "any", "bool", "callable", "cpu_count", "device_count", "dict", "dir", "endswith",
        "exists", "find_spec", "float", "frozenset", "get", "get_device_capability", "get_device_name",
        "getattr", "getenv", "globals", "hasattr", "int", "is_available", "is_bf16_supported", "is_dir",
        "is_file", "isdir", "isfile", "isinstance", "issubclass", "keys", "len", "list", "locals", "lower",
        "machine", "max", "min", "parse", "python_implementation", "python_version", "range", "set",
        "sorted", "split", "startswith", "str", "strip", "suppress", "system", "tuple", "type", "upper",
        "vars", "version",
    }
)  # fmt: skip
# How a word of the name of a call begins that leaves its result, or something else, elsewhere as well.
_EFFECT_WORDS = (
    "add", "append", "configure", "connect", "disable", "enable", "extend", "hook", "insert", "install",
    "monkeypatch", "patch", "register", "seed", "setdefault", "setup", "subscribe", "unregister",
)  # fmt: skip


def is_effect(node: ast.stmt) -> bool:
    """Whether a simple statement, or a loop, does more than to bind plain names.

    An assigned call counts as binding, unless its name says otherwise: loggers, constants, type variables
    are made by calls.

    Examples
    --------
    >>> [is_effect(ast.parse(text).body[0]) for text in ("a = b()", "a[0] = 1", "b()", "a = register(b)")]
    [False, True, True, True]
    """
    if isinstance(node, ast.Assign):
        return not all(is_plain(target) for target in node.targets) or _has_effect(node.value)
    if isinstance(node, ast.AnnAssign):
        return not is_plain(node.target) or (node.value is not None and _has_effect(node.value))
    if isinstance(node, ast.AugAssign):
        # What is added to in place may be known by other names, except for this one.
        return not (isinstance(node.target, ast.Name) and node.target.id == "__all__")
    if isinstance(node, ast.Delete):
        return not all(is_plain(target) for target in node.targets)
    if isinstance(node, ast.For):
        return not _only_binds(node)
    # By name: 3.11 has no such statement.
    return not isinstance(node, ast.Global | ast.Pass) and type(node).__name__ != "TypeAlias"


def is_plain(target: ast.expr) -> bool:
    """Whether a target is plain names."""
    if isinstance(target, ast.Tuple | ast.List):
        return all(is_plain(item) for item in target.elts)
    if isinstance(target, ast.Starred):
        return is_plain(target.value)
    return isinstance(target, ast.Name)


def _has_effect(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant | ast.Name | ast.Attribute):
        return False
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            words = last_name(node).lower().strip("_").split("_")
            if words[0] == "set" and len(words) > 1:
                return True
            if any(word.startswith(_EFFECT_WORDS) for word in words):
                return True
        elif isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
            return True
    return False


def _only_binds(loop: ast.For) -> bool:
    for node in ast.walk(loop):
        if isinstance(node, ast.Call | ast.Await | ast.AugAssign | ast.With | ast.Raise | ast.ClassDef):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            return False
    return True


def is_pure_test(node: ast.AST) -> bool:
    """Whether a condition, or a context, only looks."""
    return not any(
        isinstance(item, ast.Await | ast.Yield | ast.NamedExpr)
        or (isinstance(item, ast.Call) and last_name(item) not in _PURE_CALLS)
        for item in ast.walk(node)
    )


def may_raise(node: ast.stmt) -> bool:
    """Whether a statement could leave the ``try`` that it stands in: all but definitions and plain values."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return bool(node.decorator_list or node.args.defaults or any(node.args.kw_defaults))
    if isinstance(node, ast.Assign):
        return not _is_value(node.value) or not all(isinstance(item, ast.Name) for item in node.targets)
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return not isinstance(node, ast.Pass)


def _is_value(node: ast.expr) -> bool:
    """Whether an expression is made of literals alone, of which none is computed from others."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant) and isinstance(
            node.operand.value, int | float | complex
        )
    if isinstance(node, ast.Tuple | ast.List):
        return all(_is_value(item) for item in node.elts)
    if isinstance(node, ast.Dict):
        return all(isinstance(key, ast.Constant) for key in node.keys) and all(map(_is_value, node.values))
    return isinstance(node, ast.Constant)

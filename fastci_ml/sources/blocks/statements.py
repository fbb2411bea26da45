"""What a statement of a module or class body is run for: for the names that it binds, or for its effect."""

from __future__ import annotations

import ast
from typing import Any

# By the last name of what is called or used: what they do to a function or class stays with it. Whatever
# is not here is taken to register something.
PURE_DECORATORS = frozenset(
    {
        # language and standard library
        "abstractmethod", "asynccontextmanager", "cache", "cached_property", "classmethod",
        "contextmanager",
        "coroutine", "dataclass", "dataclass_transform", "deleter", "deprecated", "final", "getter",
        "lru_cache",
        "no_type_check", "overload", "override", "property", "recursive_repr", "runtime_checkable",
        "setter",
        "singledispatch", "singledispatchmethod", "staticmethod", "total_ordering", "unique", "wraps",
        # tests: collected by their names, which readers of the function see
        "composite", "example", "expectedFailure", "filterwarnings", "fixture", "given", "parametrize",
        "patch",
        "object", "dict", "seed", "settings", "skip", "skipIf", "skipUnless", "skipif", "usefixtures",
        "xfail",
        "slow", "timeout", "flaky", "asyncio",
        # numbers
        "attrs", "autocast", "compile", "compiler_disable", "custom_bwd", "custom_fwd", "define", "disable",
        "enable_grad", "frozen", "inference_mode", "jit", "njit", "no_grad", "once_differentiable",
        "script",
        "set_grad_enabled", "unused", "vmap", "autotune", "heuristics",
    }
)  # fmt: skip

# Calls in a condition that only look.
PURE_CALLS = frozenset(
    {
        "Version", "all", "any", "bool", "callable", "cpu_count", "device_count", "dict", "dir", "endswith",
        "exists", "find_spec", "float", "frozenset", "get", "get_device_capability", "get_device_name",
        "getattr",
        "getenv", "globals", "hasattr", "int", "is_available", "is_bf16_supported", "is_dir", "is_file",
        "isdir",
        "isfile", "isinstance", "issubclass", "keys", "len", "list", "locals", "lower", "machine", "max",
        "min",
        "parse", "python_implementation", "python_version", "range", "set", "sorted", "split", "startswith",
        "str", "strip", "system", "tuple", "type", "upper", "vars", "version",
    }
)  # fmt: skip

# An assigned value that is computed by such a call registers it somewhere as well.
EFFECT_PARTS = (
    "register", "install", "patch", "hook", "append", "setdefault", "extend", "insert", "subscribe",
    "connect",
    "enable", "disable", "configure", "setup", "set_",
)  # fmt: skip

# Called by machinery under these names, so that no code names them.
_HOOK_NAMES = frozenset(
    {
        "setUpModule", "tearDownModule", "setup_module", "teardown_module", "setup_function",
        "teardown_function",
        "setup_class", "teardown_class", "setup_method", "teardown_method", "setUp", "tearDown",
        "setUpClass",
        "tearDownClass", "asyncSetUp", "asyncTearDown", "load_tests", "setup", "teardown",
    }
)  # fmt: skip


def last_name(node: Any) -> str:
    """Last name of what an expression names or calls; empty for anything else."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def is_autouse(decorator: ast.expr) -> bool:
    """Whether a decorator makes a fixture that nobody needs to name."""
    return isinstance(decorator, ast.Call) and any(
        word.arg == "autouse" and not (isinstance(word.value, ast.Constant) and not word.value.value)
        for word in decorator.keywords
    )


def is_registering(decorator: ast.expr) -> bool:
    """Whether taking a decorator away could be felt where the function is not even named."""
    return last_name(decorator) not in PURE_DECORATORS or is_autouse(decorator)


def is_implicit(name: str, decorators: list[ast.expr]) -> bool:
    """Whether machinery calls a function by this name, so that no code needs to name it."""
    is_special = name.startswith("__") and name.endswith("__")
    return (
        is_special
        or name in _HOOK_NAMES
        or name.startswith("pytest_")
        or any(is_autouse(decorator) for decorator in decorators)
    )


def is_effect(node: ast.stmt) -> bool:
    """Whether a simple statement, or a loop, does more than to bind plain names."""
    if isinstance(node, ast.Assign):
        return not all(_is_plain(target) for target in node.targets) or _has_effect(node.value)
    if isinstance(node, ast.AnnAssign):
        return not _is_plain(node.target) or (node.value is not None and _has_effect(node.value))
    if isinstance(node, ast.AugAssign):
        # What is added to in place may be known by other names, except for this one.
        return not (isinstance(node.target, ast.Name) and node.target.id == "__all__")
    if isinstance(node, ast.Delete):
        return not all(_is_plain(target) for target in node.targets)
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass | ast.Global):
        return False
    if isinstance(node, ast.For) and _calls_nothing(node):
        return False
    return type(node).__name__ != "TypeAlias"


def _is_plain(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(_is_plain(item) for item in target.elts)
    if isinstance(target, ast.Starred):
        return _is_plain(target.value)
    return isinstance(target, ast.Name)


def _has_effect(value: ast.expr) -> bool:
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            name = last_name(node).lower()
            if any(part in name for part in EFFECT_PARTS):
                return True
        elif isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
            return True
    return False


def _calls_nothing(loop: ast.For) -> bool:
    for node in ast.walk(loop):
        if isinstance(node, ast.Call | ast.Await | ast.AugAssign | ast.With | ast.Raise):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            return False
    return True


def is_pure_test(test: ast.AST) -> bool:
    """Whether a condition only looks."""
    return not any(
        isinstance(node, ast.Await | ast.Yield | ast.NamedExpr)
        or (isinstance(node, ast.Call) and last_name(node) not in PURE_CALLS)
        for node in ast.walk(test)
    )


def may_raise(node: ast.stmt) -> bool:
    """Whether a statement of a ``try`` could leave it: all but definitions and plain values."""
    if isinstance(node, ast.Pass):
        return False
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return bool(node.decorator_list or node.args.defaults)
    if isinstance(node, ast.Assign):
        return not isinstance(node.value, ast.Constant) or not all(_is_plain(item) for item in node.targets)
    return not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


_MAX_TEXT = 60


def describe(node: ast.AST) -> str:
    """Short text of a statement for its effect: the same on every interpreter, whatever the formatting.

    Examples
    --------
    >>> describe(ast.parse("registry.register( 'x',  make(1)[0], **more )").body[0])
    "registry.register('x', make(1)[0], **more)"
    """
    text = _text(node, 0)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _text(node: Any, depth: int) -> str:  # noqa: C901  one line for each kind of node
    if depth > 6:
        return "..."
    deeper = depth + 1
    match node:
        case ast.Expr():
            return _text(node.value, depth)
        case ast.Name():
            return str(node.id)
        case ast.Attribute():
            return f"{_text(node.value, deeper)}.{node.attr}"
        case ast.Constant(value=str() | bytes() as value):
            return ascii(value[:_MAX_TEXT])
        case ast.Constant(value=bool() | float() | None as value):
            return repr(value)
        case ast.Constant(value=int() as value):
            return f"{value}" if abs(value) < 1 << 64 else "..."
        case ast.Call():
            parts = [_text(item, deeper) for item in node.args[:4]]
            parts += [
                f"{word.arg}={_text(word.value, deeper)}" if word.arg else f"**{_text(word.value, deeper)}"
                for word in node.keywords[:4]
            ]
            return f"{_text(node.func, deeper)}({', '.join(parts)})"
        case ast.Subscript():
            return f"{_text(node.value, deeper)}[{_text(node.slice, deeper)}]"
        case ast.Starred():
            return f"*{_text(node.value, deeper)}"
        case ast.Assign():
            return " = ".join(_text(item, deeper) for item in (*node.targets, node.value))
        case ast.AnnAssign():
            return f"{_text(node.target, deeper)} = {_text(node.value, deeper)}"
        case ast.AugAssign():
            return f"{_text(node.target, deeper)} {type(node.op).__name__}= {_text(node.value, deeper)}"
        case ast.For() | ast.AsyncFor():
            return f"for {_text(node.target, deeper)} in {_text(node.iter, deeper)}"
        case ast.While() | ast.If():
            return f"{type(node).__name__.lower()} {_text(node.test, deeper)}"
        case ast.With() | ast.AsyncWith():
            return f"with {', '.join(_text(item.context_expr, deeper) for item in node.items)}"
        case ast.Match():
            return f"match {_text(node.subject, deeper)}"
        case ast.Tuple() | ast.List():
            return f"({', '.join(_text(item, deeper) for item in node.elts[:8])})"
        case ast.Assert():
            return f"assert {_text(node.test, deeper)}"
        case ast.Raise():
            return f"raise {_text(node.exc, deeper)}"
        case ast.Delete():
            return f"del {', '.join(_text(item, deeper) for item in node.targets)}"
        case None:
            return ""
    return "..."

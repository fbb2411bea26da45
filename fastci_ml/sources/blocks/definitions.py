"""What is special about a function or class: who calls it, who learns of it, how its fields are read."""

from __future__ import annotations

import ast
from typing import Any

# By the last name of the decorator: what they do stays with the function or class. Whatever is not here is
# taken to register what it is given.
_PURE_DECORATORS = frozenset(
    {
        # language and standard library
        "abstractmethod", "asynccontextmanager", "cache", "cached_property", "classmethod", "contextmanager",
        "coroutine", "dataclass", "dataclass_transform", "deleter", "deprecated", "final", "getter",
        "lru_cache", "no_type_check", "overload", "override", "property", "recursive_repr",
        "runtime_checkable", "setter", "singledispatch", "singledispatchmethod", "staticmethod",
        "total_ordering", "unique", "wraps",
        # tests: whoever collects them names them
        "composite", "example", "expectedFailure", "fixture", "given", "patch", "seed", "settings", "skip",
        "skipIf", "skipUnless",
        # numbers
        "attrs", "autocast", "autotune", "compile", "custom_bwd", "custom_fwd", "define", "enable_grad",
        "frozen", "heuristics", "inference_mode", "jit", "njit", "no_grad", "once_differentiable", "script",
        "set_grad_enabled", "unused", "vmap",
    }
)  # fmt: skip
# Anything reached through these is pure as well: pytest.mark.gpu, mock.patch.object.
_PURE_OWNERS = frozenset({"mark", "patch"})
# Called by machinery under these names.
_HOOKS = frozenset(
    {
        "asyncSetUp", "asyncTearDown", "load_tests", "runTest", "setUp", "setUpClass", "setUpModule", "setup",
        "setup_class", "setup_function", "setup_method", "setup_module", "tearDown", "tearDownClass",
        "tearDownModule", "teardown", "teardown_class", "teardown_function", "teardown_method",
        "teardown_module",
    }
)  # fmt: skip
# Bases that take no note of their subclasses. Others may: by a metaclass or `__init_subclass__`.
_PLAIN_BASES = frozenset(
    {
        "ABC", "BaseModel", "Dataset", "Enum", "Flag", "Function", "Generic", "IntEnum", "IntFlag",
        "IterableDataset", "Module", "NamedTuple", "Optimizer", "Protocol", "StrEnum", "TestCase", "Thread",
        "TypedDict", "bytes", "dict", "float", "int", "list", "object", "set", "str", "tuple", "type",
    }
)  # fmt: skip
_ERROR_ENDINGS = ("Error", "Exception", "Warning")
# Decorators and bases whose machinery reads all fields of a class.
_FIELD_MAKERS = frozenset(
    {
        "BaseModel", "BaseSettings", "Enum", "Flag", "IntEnum", "IntFlag", "NamedTuple", "StrEnum", "Struct",
        "TypedDict", "attrs", "dataclass", "define", "frozen", "s",
    }
)  # fmt: skip


def dotted(node: Any) -> list[str]:
    """Names of ``a.b(...)[...].c``, last first; empty where there is no such path.

    Examples
    --------
    >>> dotted(ast.parse("pytest.mark.parametrize('x', [1])", mode="eval").body)
    ['parametrize', 'mark', 'pytest']
    """
    names = []
    while True:
        if isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        else:
            return [*names, node.id] if isinstance(node, ast.Name) else names


def last_name(node: Any) -> str:
    """Last name of what an expression names or calls; empty for anything else."""
    names = dotted(node)
    return names[0] if names else ""


def is_autouse(decorator: ast.expr) -> bool:
    """Whether a decorator makes a fixture that nobody needs to name."""
    return isinstance(decorator, ast.Call) and any(
        word.arg == "autouse" and not (isinstance(word.value, ast.Constant) and not word.value.value)
        for word in decorator.keywords
    )


def is_registering(decorator: ast.expr) -> bool:
    """Whether taking a decorator away may be felt where nothing names what it decorates."""
    names = dotted(decorator)
    if not names or is_autouse(decorator):
        return True
    return names[0] not in _PURE_DECORATORS and _PURE_OWNERS.isdisjoint(names[1:])


def is_implicit_function(node: Any) -> bool:
    """Whether machinery calls a function, by its name or unasked."""
    name: str = node.name
    return (
        (name[:2] == "__" and name[-2:] == "__")
        or name in _HOOKS
        or name.startswith("pytest_")
        or any(is_autouse(decorator) for decorator in node.decorator_list)
    )


def is_implicit_class(node: ast.ClassDef) -> bool:
    """Whether machinery may learn of a class when it is made: a metaclass, or a base that may note it."""
    bases = [last_name(base) for base in node.bases]
    return bool(node.keywords) or any(
        base not in _PLAIN_BASES and not base.endswith(_ERROR_ENDINGS) for base in bases
    )


def has_machine_read_fields(node: ast.ClassDef) -> bool:
    """Whether the fields of a class are read without being named: dataclasses, models, enums."""
    makers = [last_name(item) for item in (*node.decorator_list, *node.bases)]
    return bool(node.keywords) or not _FIELD_MAKERS.isdisjoint(makers)


def asks_for_fixtures(node: Any) -> bool:
    """Whether the parameters of a function are names of fixtures."""
    return node.name.startswith("test") or any("fixture" in last_name(item) for item in node.decorator_list)

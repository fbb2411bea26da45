"""One pass over syntax trees: a canonical stream of words to hash, and the names that the code uses.

The stream is what two trees are compared by. Each node gives a mark that no identifier can begin with, the
lengths of its lists and which of its optional parts are there, so that it could be read back without a
doubt; it holds no positions, no contexts (load, store: the place says it) and nothing that only some
interpreters have.
"""

from __future__ import annotations

import ast
from typing import Any

from fastci_ml.sources.blocks.memos import MUTATORS, fills_missing, written_root
from fastci_ml.sources.blocks.scope import Scope
from fastci_ml.sources.blocks.words import imported_words, string_words

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_GETTERS = frozenset({"getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller"})
# Code that this project's subject keeps in strings (kernels, templates) is long, and names nothing of Python.
_MAX_STRING = 20_000
_SKIPPED = frozenset({"ctx", "kind", "type_comment", "type_ignores"})


def _fields(cls: type[ast.AST]) -> tuple[tuple[str, str], ...]:
    # By name: the place of a field moves when an interpreter adds one.
    return tuple((name, f"={name}") for name in sorted(cls._fields) if name not in _SKIPPED)


_NODES = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
_FIELDS = {cls: _fields(cls) for cls in _NODES}
_MARKS = {cls: f"<{cls.__name__}" for cls in _NODES}


def scan(scope: Scope, stack: list[Any]) -> None:  # noqa: C901  one loop: calls would double its time
    """Take in the nodes of `stack`, last first, with all below them.

    No call goes as deep as the tree: a sum of thousands of terms is one. Nested functions and classes are
    not entered but kept in ``scope.nested``.
    """
    emit, pop, push, extend = scope.out.append, stack.pop, stack.append, stack.extend
    loads, stores, words = scope.loads.append, scope.stores.append, scope.words.append
    name_cls, attribute_cls, constant_cls = ast.Name, ast.Attribute, ast.Constant
    call_cls, load_cls = ast.Call, ast.Load
    while stack:
        node = pop()
        cls = node.__class__
        if cls is name_cls:
            name = node.id
            emit(name)
            if node.ctx.__class__ is load_cls:
                loads(name)
            else:
                stores(name)
        elif cls is attribute_cls:
            name = node.attr
            emit(".")
            emit(name)
            words(name)
            value = node.value
            push(value)
            if name in MUTATORS or node.ctx.__class__ is not load_cls:
                scope.written.append(written_root(value))
        elif cls is constant_cls:
            value = node.value
            kind = value.__class__
            if kind is str:
                # Its length says where it ends, whatever it holds.
                emit(f"'{len(value)}")
                emit(value)
                if len(value) < _MAX_STRING:
                    scope.words += string_words(value)
            elif kind is int:
                # Not as a decimal: int refuses numbers of more than 4300 digits.
                emit(f"#{value:x}")
            else:
                emit(f"#{kind.__name__} {value!r}")
        elif cls is call_cls:
            scope.has_call = True
            args, keywords, func = node.args, node.keywords, node.func
            emit(f"({len(args)},{len(keywords)}")
            extend(args)
            if keywords:
                extend(keywords)
            push(func)
            asked = func.__class__
            if asked is name_cls:
                if func.id in _GETTERS and _is_computed(func.id, node):
                    scope.is_dynamic = True
            elif asked is attribute_cls and func.attr in _GETTERS and _is_computed(func.attr, node):
                scope.is_dynamic = True
        elif node is None:
            emit("~")
        elif cls is str:
            emit(node)
        elif cls in _SPECIAL:
            _SPECIAL[cls](scope, node, stack)
        else:
            _generic(scope, node, stack)


def _generic(scope: Scope, node: Any, stack: list[Any]) -> None:
    emit = scope.out.append
    cls = node.__class__
    emit(_MARKS[cls])
    given = node.__dict__
    for name, mark in _FIELDS[cls]:
        value = given.get(name)
        if value is None:
            continue
        kind = value.__class__
        if kind is list:
            if value:
                emit(f"{mark}{len(value)}")
                stack.extend(value)
        elif kind is str:
            emit(mark)
            emit(value)
        elif kind is int or kind is bool:
            emit(f"{mark}{value}")
        else:
            emit(mark)
            stack.append(value)


def _is_computed(name: str, call: ast.Call) -> bool:
    """Whether a call of `getattr` and the like takes its name from anything but a string."""
    asked = call.args if name == "attrgetter" else call.args[:1] if name == "methodcaller" else call.args[1:2]
    return not asked or any(type(getattr(item, "value", None)) is not str for item in asked)


def _scan_comprehension(scope: Scope, node: Any, stack: list[Any]) -> None:
    # A scope of its own on every interpreter, though 3.12 makes no code object of most.
    inner = Scope(scope.out)
    generators = node.generators
    parts = [node.key, node.value] if node.__class__ is ast.DictComp else [node.elt]
    scope.out.append(f"{_MARKS[node.__class__]}{len(generators)}")
    for generator in generators:
        scope.out.append(f"={len(generator.ifs)}{generator.is_async}")
        parts.append(generator.target)
        parts += generator.ifs
    parts += [generator.iter for generator in generators[1:]]
    scan(inner, parts)
    _join(scope, inner, frozenset(inner.stores))
    scope.walrus += inner.walrus
    # The first iterable is evaluated outside, where a name is not yet that of the target.
    stack.append(generators[0].iter)


def _scan_lambda(scope: Scope, node: Any, stack: list[Any]) -> None:
    inner = Scope(scope.out)
    scope.out.append("<Lambda")
    add_arguments(inner, node.args, stack)
    scan(inner, [node.body])
    _join(scope, inner, frozenset(inner.stores + inner.walrus))


def _join(scope: Scope, inner: Scope, own: frozenset[str]) -> None:
    scope.loads += [name for name in inner.loads if name not in own]
    scope.written += [root for root in inner.written if root[0] not in own]
    scope.words += inner.words
    scope.is_dynamic |= inner.is_dynamic
    scope.has_call |= inner.has_call
    scope.has_code = True


def add_arguments(scope: Scope, args: ast.arguments, outside: list[Any]) -> None:
    """Take in parameters as names bound in `scope`; defaults and annotations go on the stack `outside`."""
    emit = scope.out.append
    emit(
        f"&{len(args.posonlyargs)},{len(args.args)},{len(args.kwonlyargs)},{len(args.defaults)},"
        f"{args.vararg is not None},{args.kwarg is not None}"
    )
    parameters = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    if args.vararg is not None:
        parameters.append(args.vararg)
    if args.kwarg is not None:
        parameters.append(args.kwarg)
    for parameter in parameters:
        emit(parameter.arg)
        scope.stores.append(parameter.arg)
        outside.append(parameter.annotation)
    outside += args.defaults
    outside += args.kw_defaults


def _scan_walrus(scope: Scope, node: Any, stack: list[Any]) -> None:
    scope.out.append(":=")
    scope.out.append(node.target.id)
    scope.walrus.append(node.target.id)
    stack.append(node.value)


def _scan_nested(scope: Scope, node: Any, _: list[Any]) -> None:
    scope.out.append("<class" if node.__class__ is ast.ClassDef else "<def")
    scope.nested.append(node)
    scope.stores.append(node.name)


def _scan_import(scope: Scope, node: Any, _: list[Any]) -> None:
    scope.imports.append(node)
    emit = scope.out.append
    if node.__class__ is ast.ImportFrom:
        emit(f"<from{len(node.names)},{node.level or 0}")
        emit(node.module or "")
    else:
        emit(f"<import{len(node.names)}")
    for alias in node.names:
        emit(alias.name)
        emit(alias.asname or "~")
    words, binds = imported_words(node)
    scope.words += words
    scope.stores += binds


def _scan_global(scope: Scope, node: Any, stack: list[Any]) -> None:
    if node.__class__ is ast.Global:
        scope.outer_names += node.names
    else:
        scope.nonlocals += node.names
    _generic(scope, node, stack)


def _scan_binder(scope: Scope, node: Any, stack: list[Any]) -> None:
    """Nodes that bind a name which is no `Name`: handlers and patterns."""
    name = node.rest if node.__class__ is ast.MatchMapping else node.name
    if name:
        scope.stores.append(name)
    _generic(scope, node, stack)


def _scan_class_pattern(scope: Scope, node: Any, stack: list[Any]) -> None:
    scope.words += node.kwd_attrs
    _generic(scope, node, stack)


def _scan_augmented(scope: Scope, node: Any, stack: list[Any]) -> None:
    if node.target.__class__ is ast.Name:
        scope.loads.append(node.target.id)
    _generic(scope, node, stack)


def _scan_type(scope: Scope, node: Any, stack: list[Any]) -> None:
    name = node.name
    scope.type_names.append(name if name.__class__ is str else name.id)
    _generic(scope, node, stack)


def _scan_subscript(scope: Scope, node: Any, stack: list[Any]) -> None:
    scope.out.append("[")
    stack.append(node.value)
    stack.append(node.slice)
    if node.ctx.__class__ is ast.Store:
        scope.written.append(written_root(node.value))


def _scan_filling(scope: Scope, node: Any, stack: list[Any]) -> None:
    scope.filled |= fills_missing(node)
    _generic(scope, node, stack)


def _scan_joined(scope: Scope, node: Any, stack: list[Any]) -> None:
    """Formatted strings: interpreters cut their constant parts differently."""
    parts: list[Any] = []
    text = ""
    for value in node.values:
        if value.__class__ is ast.Constant:
            text += str(value.value)
            continue
        if text:
            parts.append(ast.Constant(text))
            text = ""
        parts.append(value)
    if text:
        parts.append(ast.Constant(text))
    scope.out.append(f'"{len(parts)}')
    stack += parts


def _scan_formatted(scope: Scope, node: Any, stack: list[Any]) -> None:
    spec = node.format_spec
    has_spec = spec is not None and bool(getattr(spec, "values", True))
    scope.out.append(f"{{{node.conversion},{has_spec}")
    stack.append(node.value)
    if has_spec:
        stack.append(spec)


_TYPE_NAMES = ("TypeAlias", "TypeVar", "ParamSpec", "TypeVarTuple")
_TYPES = [getattr(ast, name) for name in _TYPE_NAMES if hasattr(ast, name)]
_SPECIAL: dict[type, Any] = {
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp), _scan_comprehension),
    **dict.fromkeys((*FUNCTIONS, ast.ClassDef), _scan_nested),
    **dict.fromkeys((ast.Import, ast.ImportFrom), _scan_import),
    **dict.fromkeys((ast.Global, ast.Nonlocal), _scan_global),
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping), _scan_binder),
    **dict.fromkeys((ast.If, ast.Try, ast.TryStar), _scan_filling),
    **dict.fromkeys(_TYPES, _scan_type),
    ast.Lambda: _scan_lambda,
    ast.NamedExpr: _scan_walrus,
    ast.MatchClass: _scan_class_pattern,
    ast.AugAssign: _scan_augmented,
    ast.Subscript: _scan_subscript,
    ast.JoinedStr: _scan_joined,
    ast.FormattedValue: _scan_formatted,
}

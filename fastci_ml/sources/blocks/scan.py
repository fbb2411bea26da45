"""One pass over syntax trees: a canonical stream of words to hash, and the names that the code uses.

The stream is what two trees are compared by. Each node gives a mark that no identifier can begin with, the
lengths of its lists and which of its optional parts are there, so that it could be read back without a
doubt; it holds no positions, no contexts (load, store: the place says it) and nothing that only some
interpreters have.
"""

from __future__ import annotations

import ast
import re
from hashlib import blake2b
from typing import Any

DIGEST_BYTES = 8

# Comprehensions run in a scope of their own; on 3.12 without a code object, which changes no name.
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_GETTERS = frozenset({"getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller"})
MUTATORS = frozenset(
    {
        "add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop",
        "popitem", "popleft", "put", "remove", "setdefault", "update", "__setitem__", "set",
    }
)  # fmt: skip
_SKIPPED = frozenset({"ctx", "kind", "type_comment", "type_ignores", "lineno"})
_WORD = re.compile(r"[^\W\d]\w*")
_EXAMPLE = re.compile(r"^\s*(?:>>>|\.\.\.) (.*)$", re.MULTILINE)


def _fields(cls: type[ast.AST]) -> tuple[tuple[str, str], ...]:
    # The number of a field would move when an interpreter adds one in the middle: its name does not.
    return tuple((name, f"={name}") for name in sorted(cls._fields) if name not in _SKIPPED)


_NODES = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
_FIELDS = {cls: _fields(cls) for cls in _NODES}
_MARKS = {cls: f"<{cls.__name__}" for cls in _FIELDS}


class Scope:
    """What one scope gave so far.

    Attributes
    ----------
    out : list of str
        The stream.
    loads, stores : list of str
        Plain names that it looks up; those that it binds.
    words : list of str
        Names that it uses whatever the scope: attributes, names of imports, dotted strings.
    outer_names : list of str
        Names declared global.
    nonlocals : list of str
        Names declared nonlocal.
    walrus : list of str
        Names bound by ``:=``: a comprehension hands them to the scope around it.
    mutated : list of str
        Plain names at the root of something that is written to or changed in place.
    nested : list of ast.AST
        Functions and classes right inside, last first: they are left to the caller.
    imports : list of ast.AST
        Import statements.
    is_dynamic : bool
        It asked for an attribute by a computed name.
    has_call : bool
        It holds a call.
    """

    __slots__ = (
        "has_call", "imports", "is_dynamic", "loads", "mutated", "nested", "nonlocals", "out", "outer_names",
        "stores", "walrus", "words",
    )  # fmt: skip

    def __init__(self, out: list[str]) -> None:
        self.out = out
        self.loads: list[str] = []
        self.stores: list[str] = []
        self.words: list[str] = []
        self.outer_names: list[str] = []
        self.nonlocals: list[str] = []
        self.walrus: list[str] = []
        self.mutated: list[str] = []
        self.nested: list[Any] = []
        self.imports: list[Any] = []
        self.is_dynamic = False
        self.has_call = False


def digest(words: list[str]) -> str:
    """16 hexadecimal digits of a stream."""
    text = "\n".join(words).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=DIGEST_BYTES).hexdigest()


def example_words(doc: str) -> list[str]:
    """Names in the examples of a docstring."""
    if ">>>" not in doc:
        return []
    return [word for line in _EXAMPLE.findall(doc) for word in _WORD.findall(line)]


def string_words(text: str) -> list[str]:
    """Names that a string may stand for: parts of a dotted path, all names of a piece of code.

    Examples
    --------
    >>> string_words("pkg.mod:Name"), string_words("a sentence"), string_words("import os; os.getcwd()")
    (['pkg', 'mod', 'Name'], [], ['import', 'os', 'os', 'getcwd'])
    """
    if text.isidentifier():
        return [text]
    if text.replace(".", "_").replace(":", "_").isidentifier() or "import " in text:
        return _WORD.findall(text)
    return []


def _root(node: Any) -> str:
    """Plain name at the root of ``a.b[c].d``; empty without one."""
    cls = node.__class__
    while cls is ast.Attribute or cls is ast.Subscript:
        node = node.value
        cls = node.__class__
    return node.id if cls is ast.Name else ""


def scan(scope: Scope, stack: list[Any]) -> None:  # noqa: C901  one loop: calls would double its time
    """Take in the nodes of `stack`, last first, with all below them.

    Nested functions and classes are not entered but kept in ``scope.nested``.
    """
    emit, pop, push, extend = scope.out.append, stack.pop, stack.append, stack.extend
    loads, stores, words = scope.loads.append, scope.stores.append, scope.words.append
    name_cls, attribute_cls, constant_cls, call_cls, load_cls = (
        ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.Load
    )  # fmt: skip
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
            if node.ctx.__class__ is not load_cls or name in MUTATORS:
                scope.mutated.append(_root(value))
        elif cls is constant_cls:
            value = node.value
            kind = value.__class__
            if kind is str:
                # Its length says where it ends, whatever it holds.
                emit(f"'{len(value)}")
                emit(value)
                if len(value) < 200 or "import " in value:
                    scope.words.extend(string_words(value))
            elif kind is int:
                # Not str(): it refuses numbers of more than 4300 digits.
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
            if (func.__class__ is name_cls and func.id in _GETTERS) or (
                func.__class__ is attribute_cls and func.attr in _GETTERS
            ):
                scope.is_dynamic = scope.is_dynamic or _is_computed(node)
        elif cls is list:
            extend(node)
        elif cls is str:
            emit(node)
        elif node is None:
            emit("~")
        elif cls in _SPECIAL:
            _SPECIAL[cls](scope, node, stack)
        else:
            _generic(scope, node, stack)


def _generic(scope: Scope, node: Any, stack: list[Any]) -> None:
    emit = scope.out.append
    cls = node.__class__
    emit(_MARKS[cls])
    for name, mark in _FIELDS[cls]:
        value = getattr(node, name, None)
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


def _is_computed(call: ast.Call) -> bool:
    """Whether a call of `getattr` and the like takes its name from anything but a string."""
    name = getattr(call.func, "id", None) or getattr(call.func, "attr", "")
    asked = call.args[:1] if name == "methodcaller" else call.args if name == "attrgetter" else call.args[1:2]
    return not asked or not all(
        isinstance(item, ast.Constant) and isinstance(item.value, str) for item in asked
    )


def _scan_comprehension(scope: Scope, node: Any, stack: list[Any]) -> None:
    inner = Scope(scope.out)
    generators = node.generators
    # The first iterable is evaluated outside, where a name is not yet that of the target.
    first = generators[0].iter
    parts = [node.key, node.value] if node.__class__ is ast.DictComp else [node.elt]
    scope.out.append(f"{_MARKS[node.__class__]}{len(generators)}")
    for generator in generators:
        scope.out.append(f"={len(generator.ifs)}{generator.is_async}")
        parts.append(generator.target)
        parts.extend(generator.ifs)
        if generator.iter is not first:
            parts.append(generator.iter)
    scan(inner, parts)
    _join(scope, inner, frozenset(inner.stores))
    scope.walrus.extend(inner.walrus)
    stack.append(first)


def _scan_lambda(scope: Scope, node: Any, stack: list[Any]) -> None:
    inner = Scope(scope.out)
    scope.out.append("<Lambda")
    add_arguments(inner, node.args, stack)
    scan(inner, [node.body])
    _join(scope, inner, frozenset(inner.stores + inner.walrus))


def _join(scope: Scope, inner: Scope, own: frozenset[str]) -> None:
    scope.loads.extend(name for name in inner.loads if name not in own)
    scope.words.extend(inner.words)
    scope.mutated.extend(name for name in inner.mutated if name not in own)
    scope.is_dynamic |= inner.is_dynamic
    scope.has_call |= inner.has_call


def add_arguments(scope: Scope, args: ast.arguments, outside: list[Any]) -> None:
    """Take in parameters: names as bound in `scope`; defaults and annotations go on the stack `outside`."""
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
    outside.extend(args.defaults)
    outside.extend(args.kw_defaults)


def _scan_walrus(scope: Scope, node: Any, stack: list[Any]) -> None:
    scope.out.append(":=")
    scope.out.append(node.target.id)
    scope.walrus.append(node.target.id)
    stack.append(node.value)


def _scan_nested(scope: Scope, node: Any, _: list[Any]) -> None:
    scope.out.append("<def" if node.__class__ is not ast.ClassDef else "<class")
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
    words, stores = imported_names(node)
    scope.words.extend(words)
    scope.stores.extend(stores)


def imported_names(node: ast.Import | ast.ImportFrom) -> tuple[list[str], list[str]]:
    """Names that an import statement uses, and those that it binds."""
    words: list[str] = []
    stores: list[str] = []
    if isinstance(node, ast.ImportFrom):
        if node.module:
            words.extend(node.module.split("."))
        for alias in node.names:
            words.append(alias.name)
            stores.append(alias.asname or alias.name)
    else:
        for alias in node.names:
            parts = alias.name.split(".")
            words.extend(parts)
            stores.append(alias.asname or parts[0])
    return words, stores


def _scan_global(scope: Scope, node: Any, stack: list[Any]) -> None:
    scope.outer_names.extend(node.names)
    _generic(scope, node, stack)


def _scan_nonlocal(scope: Scope, node: Any, stack: list[Any]) -> None:
    scope.nonlocals.extend(node.names)
    _generic(scope, node, stack)


def _scan_binder(scope: Scope, node: Any, stack: list[Any]) -> None:
    """Nodes that bind a name which is no `Name`: handlers and patterns."""
    name = node.rest if node.__class__ is ast.MatchMapping else node.name
    if name:
        scope.stores.append(name)
    _generic(scope, node, stack)


def _scan_subscript(scope: Scope, node: Any, stack: list[Any]) -> None:
    scope.out.append("[")
    stack.append(node.value)
    stack.append(node.slice)
    if node.ctx.__class__ is not ast.Load:
        scope.mutated.append(_root(node.value))


def _scan_joined(scope: Scope, node: Any, stack: list[Any]) -> None:
    """Formatted strings: interpreters cut their constant parts differently."""
    parts: list[Any] = []
    for value in node.values:
        if value.__class__ is ast.Constant:
            if not value.value:
                continue
            if parts and parts[-1].__class__ is ast.Constant:
                parts[-1] = ast.Constant(str(parts[-1].value) + str(value.value))
                continue
        parts.append(value)
    scope.out.append(f'"{len(parts)}')
    stack.extend(parts)


def _scan_formatted(scope: Scope, node: Any, stack: list[Any]) -> None:
    spec = node.format_spec
    has_spec = spec is not None and bool(getattr(spec, "values", True))
    scope.out.append(f"{{{node.conversion},{has_spec}")
    stack.append(node.value)
    if has_spec:
        stack.append(spec)


_SPECIAL: dict[type, Any] = {
    **dict.fromkeys(COMPREHENSIONS, _scan_comprehension),
    **dict.fromkeys((*FUNCTIONS, ast.ClassDef), _scan_nested),
    **dict.fromkeys((ast.Import, ast.ImportFrom), _scan_import),
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping), _scan_binder),
    ast.Lambda: _scan_lambda,
    ast.NamedExpr: _scan_walrus,
    ast.Global: _scan_global,
    ast.Nonlocal: _scan_nonlocal,
    ast.Subscript: _scan_subscript,
    ast.JoinedStr: _scan_joined,
    ast.FormattedValue: _scan_formatted,
}

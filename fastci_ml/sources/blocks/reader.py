"""Reading a file into its blocks."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from fastci_ml.records.evidence import BlockKind
from fastci_ml.sources.blocks.block import FILE_BLOCK, Block, ImportSeen
from fastci_ml.sources.blocks.module_blocks import ModuleBlocks
from fastci_ml.sources.blocks.scan import (
    DIGEST_BYTES,
    FUNCTIONS,
    Scope,
    add_arguments,
    digest,
    example_words,
    imported_names,
    scan,
)
from fastci_ml.sources.blocks.statements import (
    describe,
    is_effect,
    is_implicit,
    is_pure_test,
    is_registering,
    last_name,
    may_raise,
)

_NO_NAMES: frozenset[str] = frozenset()
_DYNAMIC_NAMES = frozenset({"globals", "vars", "dir", "eval", "exec", "__import__", "importlib", "pkgutil"})
_DYNAMIC_WORDS = frozenset(
    {
        "__dict__", "__getattribute__", "__subclasses__", "__annotations__", "__dataclass_fields__",
        "__members__", "asdict", "astuple", "dataclass_fields", "fields", "get_type_hints", "getmembers",
        "import_module", "importlib", "model_dump", "model_fields", "modules", "pkgutil", "resolve_name",
        "signature", "walk_packages", "iter_modules", "entry_points",
    }
)  # fmt: skip
_DOC_WORDS = frozenset({"__doc__", "getdoc", "doctest"})
_MEMO_PARTS = ("cache", "memo", "lazy", "once")
# Classes whose attributes are read by machinery and not by name.
_FIELD_MAKERS = frozenset(
    {
        "dataclass", "define", "attrs", "frozen", "s", "BaseModel", "BaseSettings", "NamedTuple", "TypedDict",
        "Struct", "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag",
    }
)  # fmt: skip
_SPLIT = (ast.If, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.Match)


def read_blocks(source: bytes) -> ModuleBlocks:
    """Blocks of one Python file.

    Parameters
    ----------
    source : bytes
        Content of the file.

    Returns
    -------
    ModuleBlocks
        One block for the whole file where this interpreter cannot parse it: never an error.
    """
    try:
        with warnings.catch_warnings():
            # Odd escapes and the like are the file's own affair.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        return _Builder().build(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError, UnicodeError):
        # The parser's own limits included; MemoryError is what it says of nesting that is too deep.
        return _whole_file(source)


def _whole_file(source: bytes) -> ModuleBlocks:
    block = Block(
        name=FILE_BLOCK,
        kind=BlockKind.FILE,
        first_line=1,
        last_line=source.count(b"\n") + 1,
        fingerprint=blake2b(source, digest_size=DIGEST_BYTES).hexdigest(),
        is_dynamic=True,
    )
    return ModuleBlocks(blocks=(block,), is_parsed=False)


class _Place:
    """Where statements of a module or class body stand."""

    __slots__ = ("context", "owner", "prefix", "reads")

    def __init__(self, prefix: str, owner: str, context: list[str], reads: frozenset[str]) -> None:
        self.prefix = prefix
        self.owner = owner
        self.context = context
        self.reads = reads

    def below(self, mark: str, scope: Scope) -> _Place:
        """Place inside a compound statement: its head is part of every block in it."""
        context = [*self.context, mark, digest(scope.out)]
        return _Place(self.prefix, self.owner, context, self.reads | frozenset(scope.loads + scope.words))


class _Builder:
    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.imports: list[ImportSeen] = []
        self.n_named: dict[str, int] = {}
        self.module_names: frozenset[str] = _NO_NAMES
        # Digest of the effect before: the order of effects, and what is computed after one, are its doing.
        self.last_effect = ""

    def build(self, tree: ast.Module) -> ModuleBlocks:
        doc, body = _split_doc(tree.body)
        self.module_names = frozenset(_bound_names(tree.body))
        self.statements(body, _Place("", "", [], _NO_NAMES))
        return ModuleBlocks(
            blocks=tuple(self.blocks), imports=tuple(self.imports), doc_fingerprint=_doc_digest(doc)
        )

    # Module and class bodies

    def statements(self, body: Iterable[ast.stmt], place: _Place) -> None:
        for node in body:
            if isinstance(node, FUNCTIONS):
                self.definition(node, place)
            elif isinstance(node, ast.ClassDef):
                self.class_(node, place)
            elif isinstance(node, _SPLIT):
                self.compound(node, place)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self.import_(node, place)
            elif not isinstance(node, ast.Pass):
                self.statement(node, place)

    def definition(self, node: Any, place: _Place) -> None:
        self.function(node, place.prefix, place.owner, _NO_NAMES, _NO_NAMES, place)
        self.decorators(node, place)

    def class_(self, node: ast.ClassDef, place: _Place) -> None:
        scope, doc, body = self.class_head(node, Scope([*place.context]))
        name = self.unique(place.prefix + node.name)
        self.add_class(node, name, place.owner, scope, doc, place.reads)
        inside = _Place(f"{name}.", name, place.context, place.reads)
        self.statements(body, inside)
        self.decorators(node, place)

    def decorators(self, node: Any, place: _Place) -> None:
        """A block of its own for decorators that may register what they are given."""
        decorators = [item for item in node.decorator_list if is_registering(item)]
        if not decorators:
            return
        scope = Scope([*place.context, node.name])
        scan(scope, [*decorators])
        text = f"@{describe(decorators[0])} {node.name}"
        last_line = max(item.end_lineno or item.lineno for item in decorators)
        self.effect(scope, text, place, decorators[0].lineno, last_line)

    def compound(self, node: Any, place: _Place) -> None:
        """Split a statement that holds others; its head is part of the fingerprint of each."""
        for head, inside, body in self.parts(node, place):
            if head is not None:
                scope = Scope([*place.context])
                scan(scope, [head])
                self.effect(scope, describe(node), place, node.lineno, head.end_lineno or node.lineno)
            self.statements(body, inside)

    def parts(self, node: Any, place: _Place) -> Iterable[tuple[Any, _Place, list[ast.stmt]]]:
        if isinstance(node, ast.If):
            scope = self.head([node.test])
            head = None if is_pure_test(node.test) else node.test
            yield head, place.below("if", scope), node.body
            yield None, place.below("else", scope), node.orelse
        elif isinstance(node, ast.Match):
            asked: list[Any] = [node.subject]
            for case in node.cases:
                asked += [case.pattern] if case.guard is None else [case.pattern, case.guard]
            scope = self.head(asked)
            heads: list[Any] = [None if is_pure_test(node.subject) else node.subject]
            for number, case in enumerate(node.cases):
                yield (heads.pop() if heads else None), place.below(f"case{number}", scope), case.body
        elif isinstance(node, ast.With | ast.AsyncWith):
            asked = [item.context_expr for item in node.items]
            asked += [item.optional_vars for item in node.items if item.optional_vars is not None]
            # A context may swallow what its body raises, and so end it anywhere.
            scope = self.head([*asked, *self.risky(node.body)])
            names = self.head([item.optional_vars for item in node.items if item.optional_vars is not None])
            yield self.with_head(node, names), place.below("with", scope), node.body
        else:
            asked = [handler.type for handler in node.handlers if handler.type is not None]
            # Whatever may raise here decides over all that follows and over the handlers.
            scope = self.head([*asked, *self.risky(node.body)])
            mark = "try" if isinstance(node, ast.Try) else "try*"
            yield None, place.below(mark, scope), node.body
            for number, handler in enumerate(node.handlers):
                yield None, place.below(f"except{number} {handler.name}", scope), handler.body
            yield None, place.below("orelse", scope), node.orelse
            yield None, place.below("finally", scope), node.finalbody

    def with_head(self, node: Any, names: Scope) -> Any:
        asked = [item.context_expr for item in node.items]
        if all(is_pure_test(item) or last_name(item) == "suppress" for item in asked) and not names.stores:
            return None
        return ast.Tuple(
            asked + [item.optional_vars for item in node.items if item.optional_vars], ast.Load()
        )

    def head(self, nodes: list[Any]) -> Scope:
        scope = Scope([])
        scan(scope, nodes)
        for nested in scope.nested:
            inner = Scope(scope.out)
            scan(inner, [*nested.decorator_list])
        return scope

    def risky(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [node for node in body if may_raise(node)]

    def import_(self, node: ast.Import | ast.ImportFrom, place: _Place) -> None:
        """One block a name, so that a name more touches no other."""
        self.seen_import(node)
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                one: ast.Import | ast.ImportFrom = ast.ImportFrom(node.module, [alias], node.level)
            else:
                one = ast.Import([alias])
            scope = Scope([*place.context, self.last_effect])
            scan(scope, [one])
            words, stores = imported_names(one)
            binds = tuple(stores)
            name = stores[0]
            if alias.name == "*" and isinstance(one, ast.ImportFrom):
                module = "." * one.level + (one.module or "")
                binds, name = (module, "*"), f"{module}.*"
            self.add(
                scope,
                name=self.unique(place.prefix + name),
                kind=BlockKind.BINDING,
                first_line=node.lineno,
                last_line=node.end_lineno or node.lineno,
                owner=place.owner,
                binds=binds,
                reads=frozenset(words) | place.reads,
            )

    def statement(self, node: ast.stmt, place: _Place) -> None:
        scope = Scope([*place.context])
        scan(scope, [node])
        outer = frozenset(scope.outer_names)
        self.nested(scope, place.prefix, place.owner, _NO_NAMES, outer)
        for item in scope.imports:
            self.seen_import(item)
        last_line = node.end_lineno or node.lineno
        if is_effect(node):
            self.effect(scope, describe(node), place, node.lineno, last_line)
            return
        binds = tuple(dict.fromkeys([*_targets(node), *scope.stores, *scope.walrus]))
        if scope.has_call:
            scope.out.append(self.last_effect)
        name = ",".join(binds) or f"<{describe(node)}>"
        self.add(
            scope,
            name=self.unique(place.prefix + name),
            kind=BlockKind.BINDING,
            first_line=node.lineno,
            last_line=last_line,
            owner=place.owner,
            binds=binds,
            reads=frozenset(scope.loads + scope.words) | place.reads,
        )

    def effect(self, scope: Scope, text: str, place: _Place, first_line: int, last_line: int) -> None:
        own = digest(scope.out)
        scope.out.append(self.last_effect)
        self.last_effect = own
        self.add(
            scope,
            name=self.unique(f"{place.prefix}<effect {text}>"),
            kind=BlockKind.EFFECT,
            first_line=first_line,
            last_line=last_line,
            owner=place.owner,
            binds=tuple(dict.fromkeys(scope.stores + scope.walrus)),
            reads=frozenset(scope.loads + scope.words) | place.reads,
        )

    # Functions, and classes in them

    def function(
        self,
        node: Any,
        prefix: str,
        owner: str,
        outer_locals: frozenset[str],
        outer_names: frozenset[str],
        place: _Place | None = None,
    ) -> Scope:
        """Add a function's block and those in it; what comes back is what it uses of the scope around it."""
        out = [*place.context] if place is not None else []
        header, scope = Scope(out), Scope(out)
        parameters_of_type = getattr(node, "type_params", ())
        out += [type(node).__name__, node.name, f"{len(node.decorator_list)},{len(parameters_of_type)}"]
        outside: list[Any] = [*node.decorator_list, node.returns, *parameters_of_type]
        add_arguments(scope, node.args, outside)
        parameters = [*scope.stores]
        scan(header, outside)
        doc, body = _split_doc(node.body)
        out.append(f"{len(body)}")
        scan(scope, [*body])
        declared = frozenset(scope.outer_names)
        own = frozenset(scope.stores) | frozenset(scope.walrus)
        own = own - declared - frozenset(scope.nonlocals)
        # A name that is global by declaration is no part of this function's own name.
        base = node.name if node.name in outer_names else prefix + node.name
        name = self.unique(base)
        index = len(self.blocks)
        first_line = node.decorator_list[0].lineno if node.decorator_list else node.lineno
        mutated = frozenset(scope.mutated) & self.module_names - own
        stored = declared & frozenset(scope.stores)
        is_memo = bool(mutated or stored) or any(_is_memo(item) for item in node.decorator_list)
        self.nested(scope, f"{name}.<locals>.", name, outer_locals | own, declared)
        free = frozenset(item for item in scope.loads if item not in own) | declared
        reads = (free - outer_locals) | frozenset(scope.words) | frozenset(example_words(doc))
        reads |= (frozenset(header.loads) - outer_locals) | frozenset(header.words)
        if _asks_for_fixtures(node):
            reads |= frozenset(parameters)
        scope.is_dynamic |= header.is_dynamic
        block = self.add(
            scope,
            index=index,
            name=name,
            kind=BlockKind.FUNCTION,
            first_line=first_line,
            last_line=node.end_lineno or node.lineno,
            owner=owner,
            doc_fingerprint=_doc_digest(doc),
            reads=reads | (place.reads if place is not None else _NO_NAMES),
            is_memo=is_memo,
            is_implicit=is_implicit(node.name, node.decorator_list),
        )
        for item in (*scope.imports, *header.imports):
            self.seen_import(item)
        used = Scope([block.fingerprint])
        used.loads = [*free, *header.loads]
        used.words = [*scope.words, *header.words]
        used.is_dynamic = scope.is_dynamic
        return used

    def nested(
        self,
        scope: Scope,
        prefix: str,
        owner: str,
        outer_locals: frozenset[str],
        outer_names: frozenset[str],
    ) -> None:
        """Functions and classes that a scan left aside, in file order; they are part of `scope`."""
        for node in sorted(scope.nested, key=_position):
            if isinstance(node, ast.ClassDef):
                used = self.local_class(node, prefix, owner, outer_locals, outer_names)
            else:
                used = self.function(node, prefix, owner, outer_locals, outer_names)
            scope.out.extend(used.out)
            scope.loads.extend(used.loads)
            scope.words.extend(used.words)
            scope.is_dynamic |= used.is_dynamic

    def local_class(
        self,
        node: ast.ClassDef,
        prefix: str,
        owner: str,
        outer_locals: frozenset[str],
        outer_names: frozenset[str],
    ) -> Scope:
        """Class in a function: a block for its head; its body is the function's doing."""
        scope, doc, body = self.class_head(node, Scope([]))
        name = self.unique(node.name if node.name in outer_names else prefix + node.name)
        head = self.add_class(node, name, owner, scope, doc, _NO_NAMES, outer_locals)
        inner = Scope([head.fingerprint, f"{len(body)}"])
        scan(inner, [*body])
        for item in inner.imports:
            self.seen_import(item)
        # Names of the class body are not seen by its methods, but may hide global ones from the body itself:
        # they stay uses, which at worst names a reader too many.
        self.nested(inner, f"{name}.", name, outer_locals, frozenset(inner.outer_names))
        inner.loads.extend(scope.loads)
        inner.words.extend(scope.words)
        inner.is_dynamic |= scope.is_dynamic
        return inner

    def class_head(self, node: ast.ClassDef, scope: Scope) -> tuple[Scope, str, list[ast.stmt]]:
        doc, body = _split_doc(node.body)
        scope.out += [
            "ClassDef",
            node.name,
            f"{len(node.decorator_list)},{len(node.bases)},{len(node.keywords)}",
        ]
        scan(scope, [*node.decorator_list, *node.bases, *node.keywords, *getattr(node, "type_params", ())])
        return scope, doc, body

    def add_class(
        self,
        node: ast.ClassDef,
        name: str,
        owner: str,
        scope: Scope,
        doc: str,
        reads: frozenset[str],
        outer_locals: frozenset[str] = _NO_NAMES,
    ) -> Block:
        makers = [last_name(item) for item in (*node.decorator_list, *node.bases)]
        scope.is_dynamic |= bool(node.keywords) or not _FIELD_MAKERS.isdisjoint(makers)
        used = (
            (frozenset(scope.loads) - outer_locals) | frozenset(scope.words) | frozenset(example_words(doc))
        )
        return self.add(
            scope,
            name=name,
            kind=BlockKind.CLASS,
            first_line=node.decorator_list[0].lineno if node.decorator_list else node.lineno,
            last_line=node.end_lineno or node.lineno,
            owner=owner,
            doc_fingerprint=_doc_digest(doc),
            reads=used | reads,
        )

    # Shared ends

    def add(self, scope: Scope, *, reads: frozenset[str], index: int | None = None, **facts: Any) -> Block:
        is_dynamic = (
            scope.is_dynamic
            or not _DYNAMIC_NAMES.isdisjoint(scope.loads)
            or not _DYNAMIC_WORDS.isdisjoint(scope.words)
        )
        block = Block(
            fingerprint=digest(scope.out),
            reads=reads,
            is_dynamic=is_dynamic,
            reads_doc=not _DOC_WORDS.isdisjoint(reads),
            **facts,
        )
        # A function stands before what is in it, though its fingerprint needs theirs.
        self.blocks.insert(len(self.blocks) if index is None else index, block)
        return block

    def unique(self, name: str) -> str:
        n_before = self.n_named.get(name, 0)
        self.n_named[name] = n_before + 1
        return f"{name}#{n_before + 1}" if n_before else name

    def seen_import(self, node: Any) -> None:
        if isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            seen = [ImportSeen(module=node.module or "", level=node.level, names=names, line=node.lineno)]
        else:
            seen = [ImportSeen(module=item.name, level=0, names=(), line=node.lineno) for item in node.names]
        self.imports.extend(seen)


def _position(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _split_doc(body: list[ast.stmt]) -> tuple[str, list[ast.stmt]]:
    """True docstring and the rest of a body."""
    if body and isinstance(body[0], ast.Expr):
        value = body[0].value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value, body[1:]
    return "", body


def _doc_digest(doc: str) -> str:
    return digest([doc]) if doc else ""


def _is_memo(decorator: ast.expr) -> bool:
    name = last_name(decorator).lower()
    return any(part in name for part in _MEMO_PARTS)


def _asks_for_fixtures(node: Any) -> bool:
    """Whether parameters are names of fixtures."""
    return node.name.startswith("test") or any("fixture" in last_name(item) for item in node.decorator_list)


def _targets(node: Any) -> list[str]:
    """Plain names that a statement assigns to, in the order of the text."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [
        item.id
        for target in targets
        if target is not None
        for item in ast.walk(target)
        if isinstance(item, ast.Name) and not isinstance(item.ctx, ast.Load)
    ]


def _bound_names(body: Iterable[ast.stmt]) -> Iterable[str]:
    """Names of variables and classes of a module: what functions of it may change in place."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from _targets(node)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for part in ("body", "orelse", "finalbody"):
                yield from _bound_names(getattr(node, part, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _bound_names(handler.body)

"""Blocks of module and class bodies: definitions, and every other statement by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from fastci_ml.records.evidence_kinds import BlockKind
from fastci_ml.sources.blocks.definitions import is_registering, last_name
from fastci_ml.sources.blocks.describe import describe
from fastci_ml.sources.blocks.effects import is_effect, is_pure_test, may_raise
from fastci_ml.sources.blocks.functions import Surroundings, add_class_head, add_function, add_nested
from fastci_ml.sources.blocks.ledger import Ledger
from fastci_ml.sources.blocks.memos import is_memo_decorator
from fastci_ml.sources.blocks.scan import FUNCTIONS, scan
from fastci_ml.sources.blocks.scope import Scope, digest

# Loops are not split: what one turn does decides over the next.
_SPLIT = (ast.If, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.Match)


class BodyReader:
    """Reads the statements of one file into a ledger, in order."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # Digest of the effect before. It is part of the next effect, import or computed value: their order
        # is what the module does.
        self._last_effect = ""

    def read(self, body: Iterable[ast.stmt], place: Surroundings) -> None:
        """Add the blocks of a body."""
        for node in body:
            if isinstance(node, FUNCTIONS):
                add_function(self._ledger, node, place)
                self._add_decorators(node, place)
            elif isinstance(node, ast.ClassDef):
                self._read_class(node, place)
            elif isinstance(node, _SPLIT):
                self._split(node, place)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._add_import(node, place)
            elif not isinstance(node, ast.Pass):
                self._add_statement(node, place)

    def _read_class(self, node: ast.ClassDef, place: Surroundings) -> None:
        head, _, body = add_class_head(self._ledger, node, place)
        declared = [name for item in body if isinstance(item, ast.Global) for name in item.names]
        inside = Surroundings(
            f"{head.name}.",
            head.name,
            outer_names=frozenset(declared),
            context=place.context,
            reads=place.reads,
        )
        self.read(body, inside)
        self._add_decorators(node, place)

    def _add_decorators(self, node: Any, place: Surroundings) -> None:
        """A block of its own for decorators that may register what they are given."""
        decorators = [item for item in node.decorator_list if is_registering(item)]
        if decorators:
            scope = Scope([*place.context, node.name])
            scan(scope, [*decorators])
            name = f"@{describe(decorators[0])} {node.name}"
            last_line = decorators[-1].end_lineno or decorators[-1].lineno
            self._add_effect(scope, name, place, decorators[0].lineno, last_line)

    # Statements that hold others: each of these is a block, and the head is part of them all.

    def _split(self, node: Any, place: Surroundings) -> None:
        if isinstance(node, ast.If):
            self._split_if(node, place)
        elif isinstance(node, ast.Match):
            asked: list[Any] = [node.subject]
            for case in node.cases:
                asked += [case.pattern] if case.guard is None else [case.pattern, case.guard]
            scope = _head(asked)
            self._add_head(scope, node, asked, place)
            for number, case in enumerate(node.cases):
                self.read(case.body, _below(place, f"case{number}", scope))
        elif isinstance(node, ast.With | ast.AsyncWith):
            contexts = [item.context_expr for item in node.items]
            targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
            scope = _head([*contexts, *targets])
            self._add_head(scope, node, [*contexts, *targets], place)
            # A context may swallow what its body raises, and so end it anywhere.
            self.read(node.body, _below(place, "with", _head([*contexts, *targets, *_risks(node.body)])))
        else:
            self._split_try(node, place)

    def _split_if(self, node: ast.If, place: Surroundings) -> None:
        # No recursion for `elif`: chains of hundreds exist.
        while True:
            scope = _head([node.test])
            self._add_head(scope, node, [node.test], place)
            self.read(node.body, _below(place, "if", scope))
            place = _below(place, "else", scope)
            rest = node.orelse
            if len(rest) != 1 or not isinstance(rest[0], ast.If):
                self.read(rest, place)
                return
            node = rest[0]

    def _split_try(self, node: Any, place: Surroundings) -> None:
        caught = [handler.type for handler in node.handlers if handler.type is not None]
        # Whatever may raise decides over all that follows and over the handlers.
        scope = _head([*caught, *_risks(node.body)])
        self.read(node.body, _below(place, type(node).__name__, scope))
        for number, handler in enumerate(node.handlers):
            if handler.type is not None:
                self._add_head(_head([handler.type]), handler, [handler.type], place)
            self.read(handler.body, _below(place, f"except{number} {handler.name}", scope))
        self.read(node.orelse, _below(place, "orelse", scope))
        self.read(node.finalbody, _below(place, "finally", scope))

    def _add_head(self, scope: Scope, node: Any, parts: list[Any], place: Surroundings) -> None:
        """A block for a head that does something by itself, binds names, or holds code of its own."""
        first_line = min(part.lineno for part in parts)
        last_line = max(part.end_lineno for part in parts)
        own = Scope([*place.context, *scope.out])
        own.loads, own.words, own.stores, own.walrus = scope.loads, scope.words, scope.stores, scope.walrus
        own.is_dynamic, own.type_names = scope.is_dynamic, scope.type_names
        if scope.stores or not all(is_pure_test(part) for part in parts):
            self._add_effect(own, describe(node), place, first_line, last_line)
        elif scope.has_code:
            self._add(own, f"<{describe(node)}>", BlockKind.BINDING, place, first_line, last_line)

    # Single statements

    def _add_import(self, node: ast.Import | ast.ImportFrom, place: Surroundings) -> None:
        """One block a name, so that a name more touches no other."""
        self._ledger.add_import(node)
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                one: ast.Import | ast.ImportFrom = ast.ImportFrom(node.module, [alias], node.level)
            else:
                one = ast.Import([alias])
            scope = Scope([*place.context, self._last_effect])
            scan(scope, [one])
            # What stands in the text is noted above, once.
            scope.imports.clear()
            binds = tuple(scope.stores)
            name = binds[0]
            if alias.name == "*" and isinstance(one, ast.ImportFrom):
                module = "." * one.level + (one.module or "")
                binds, name = (module, "*"), f"{module}.*"
            last_line = node.end_lineno or node.lineno
            kind = BlockKind.BINDING
            if getattr(node, "module", "") == "__future__":
                # It changes what all the code of the file means.
                kind, name = BlockKind.EFFECT, f"<effect from __future__ import {alias.name}>"
            self._add(scope, name, kind, place, node.lineno, last_line, binds)

    def _add_statement(self, node: ast.stmt, place: Surroundings) -> None:
        scope = Scope([*place.context])
        scan(scope, [node])
        declared = place.outer_names.union(scope.outer_names)
        inside = Surroundings(place.prefix, place.owner, outer_names=declared)
        index = len(self._ledger.blocks)
        add_nested(self._ledger, scope, inside)
        last_line = node.end_lineno or node.lineno
        if is_effect(node):
            self._add_effect(scope, describe(node), place, node.lineno, last_line, index)
            return
        if scope.has_call:
            scope.out.append(self._last_effect)
        binds = tuple(dict.fromkeys([*_targets(node), *scope.stores, *scope.walrus]))
        name = ",".join(binds) or f"<{describe(node)}>"
        self._add(scope, name, BlockKind.BINDING, place, node.lineno, last_line, binds, index, _is_memo(node))

    def _add_effect(
        self,
        scope: Scope,
        text: str,
        place: Surroundings,
        first_line: int,
        last_line: int,
        index: int | None = None,
    ) -> None:
        own = digest(scope.out)
        scope.out.append(self._last_effect)
        self._last_effect = own
        binds = tuple(dict.fromkeys(scope.stores + scope.walrus))
        self._add(scope, f"<effect {text}>", BlockKind.EFFECT, place, first_line, last_line, binds, index)

    def _add(
        self,
        scope: Scope,
        name: str,
        kind: BlockKind,
        place: Surroundings,
        first_line: int,
        last_line: int,
        binds: tuple[str, ...] = (),
        index: int | None = None,
        is_memo: bool = False,
    ) -> None:
        self._ledger.add(
            scope,
            index=index,
            loads=frozenset(scope.loads),
            words=place.reads.union(scope.words),
            name=self._ledger.unique(place.name(name)),
            kind=kind,
            first_line=first_line,
            last_line=last_line,
            owner=place.owner,
            binds=binds,
            is_memo=is_memo,
        )


def _below(place: Surroundings, mark: str, head: Scope) -> Surroundings:
    """Where the statements stand that a compound one holds."""
    return Surroundings(
        place.prefix,
        place.owner,
        outer_names=place.outer_names,
        context=[digest([*place.context, mark, *head.out])],
        reads=place.reads.union(head.loads, head.words),
    )


def _head(nodes: list[Any]) -> Scope:
    scope = Scope([f"{len(nodes)}"])
    scan(scope, [*nodes])
    while scope.nested:
        # Definitions among what may raise: what they do when they are made.
        node = scope.nested.pop()
        parts = [*node.decorator_list]
        if isinstance(node, ast.ClassDef):
            parts += [*node.bases, *node.keywords, *_risks(node.body)]
        else:
            parts += [*node.args.defaults, *node.args.kw_defaults]
        scope.out.append(f"{node.name} {len(parts)}")
        scan(scope, parts)
    return scope


def _risks(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    return (node for node in body if may_raise(node))


def _targets(node: Any) -> list[str]:
    """Plain names that a statement assigns to, in the order of the text."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if len(targets) == 1 and isinstance(targets[0], ast.Name):
        return [targets[0].id]
    items = [item for target in targets if target is not None for item in ast.walk(target)]
    names = [item for item in items if isinstance(item, ast.Name) and not isinstance(item.ctx, ast.Load)]
    return [item.id for item in sorted(names, key=lambda item: (item.lineno, item.col_offset))]


def _is_memo(node: Any) -> bool:
    value = getattr(node, "value", None)
    return isinstance(value, ast.Call) and is_memo_decorator(last_name(value.func))


def bound_variables(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names of variables and classes of a module: what functions of it may change in place."""
    todo = [*body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from _targets(node)
        else:
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                if not isinstance(node, FUNCTIONS):
                    todo += getattr(node, part, ())

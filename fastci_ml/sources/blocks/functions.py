"""Blocks of functions, of classes in them, and of all that is nested there."""

from __future__ import annotations

import ast
from typing import Any

from fastci_ml.records.evidence_kinds import BlockKind
from fastci_ml.sources.blocks.block import Block
from fastci_ml.sources.blocks.definitions import (
    asks_for_fixtures,
    has_machine_read_fields,
    is_implicit_class,
    is_implicit_function,
    last_name,
)
from fastci_ml.sources.blocks.ledger import Ledger, doc_digest, split_doc
from fastci_ml.sources.blocks.memos import CLASS_ROOT, is_cache_name, is_memo_decorator
from fastci_ml.sources.blocks.scan import add_arguments, scan
from fastci_ml.sources.blocks.scope import Scope
from fastci_ml.sources.blocks.words import example_words

NO_NAMES: frozenset[str] = frozenset()


class Surroundings:
    """Where a definition stands.

    Attributes
    ----------
    prefix : str
        What comes before its name.
    owner : str
        Name of the block around it.
    hidden : frozenset of str
        Names that functions around it bind: no globals.
    outer_names : frozenset of str
        Names that the scope around it declares global; a definition under such a name has no prefix.
    context : list of str
        What its fingerprint begins with.
    reads : frozenset of str
        Names of that context.
    """

    __slots__ = ("context", "hidden", "outer_names", "owner", "prefix", "reads")

    def __init__(
        self,
        prefix: str,
        owner: str,
        *,
        hidden: frozenset[str] = NO_NAMES,
        outer_names: frozenset[str] = NO_NAMES,
        context: list[str] | None = None,
        reads: frozenset[str] = NO_NAMES,
    ) -> None:
        self.prefix = prefix
        self.owner = owner
        self.hidden = hidden
        self.outer_names = outer_names
        self.context = context or []
        self.reads = reads

    def name(self, own: str) -> str:
        """Qualified name of what stands here."""
        return own if own in self.outer_names else self.prefix + own


def add_function(ledger: Ledger, node: Any, place: Surroundings) -> Scope:
    """Add the blocks of a function and of all in it.

    Returns
    -------
    Scope
        What it uses of the scope around it: its fingerprint as the stream, names, flags.
    """
    out = [*place.context]
    header, body_scope = Scope(out), Scope(out)
    type_params = getattr(node, "type_params", ())
    out += [type(node).__name__, node.name, f"{len(node.decorator_list)},{len(type_params)}"]
    # Evaluated around the function, not in it.
    outside = [*node.decorator_list, node.returns, *type_params]
    add_arguments(body_scope, node.args, outside)
    parameters = frozenset(body_scope.stores) if asks_for_fixtures(node) else NO_NAMES
    scan(header, outside)
    doc, body = split_doc(node.body)
    out.append(f"{len(body)}")
    scan(body_scope, [*body])

    declared = frozenset(body_scope.outer_names)
    stores = frozenset(body_scope.stores)
    own = stores.union(body_scope.walrus) - declared - frozenset(body_scope.nonlocals)
    is_memo = _is_memo(ledger, node, body_scope, own, place.hidden)
    name = ledger.unique(place.name(node.name))
    index = len(ledger.blocks)
    inside = Surroundings(f"{name}.<locals>.", name, hidden=place.hidden | own, outer_names=declared)
    add_nested(ledger, body_scope, inside)

    free = [item for item in body_scope.loads if item not in own]
    body_scope.is_dynamic |= header.is_dynamic
    body_scope.type_names += header.type_names
    block = ledger.add(
        body_scope,
        index=index,
        loads=declared.union(frozenset(free).union(header.loads) - place.hidden),
        words=place.reads.union(parameters, body_scope.words, header.words, example_words(doc)),
        name=name,
        kind=BlockKind.FUNCTION,
        first_line=_first_line(node),
        last_line=node.end_lineno or node.lineno,
        owner=place.owner,
        doc_fingerprint=doc_digest(doc),
        is_memo=is_memo,
        is_implicit=is_implicit_function(node),
    )
    used = Scope([block.fingerprint])
    used.loads = free + header.loads
    # What it declares global is so for the functions around it as well, whatever names they bind.
    used.words = [*body_scope.words, *header.words, *declared]
    used.is_dynamic = body_scope.is_dynamic
    return used


def _is_memo(ledger: Ledger, node: Any, scope: Scope, own: frozenset[str], hidden: frozenset[str]) -> bool:
    """Whether a function keeps what it computed for later callers."""
    if any(is_memo_decorator(last_name(item)) for item in node.decorator_list):
        return True
    if not frozenset(scope.outer_names).isdisjoint(scope.stores):
        return True
    # An argument that is not given is filled as well, but kept by nobody.
    if any(name[0] == "." or name in scope.nonlocals for name in scope.filled):
        return True
    for name, is_cache in scope.written:
        if name == CLASS_ROOT:
            return True
        if not name or name in own:
            continue
        if name in hidden:
            # Of a function around it: many a hook notes what it saw there. A cache asks first.
            if is_cache or name in scope.filled or is_cache_name(name):
                return True
        elif is_cache or name in ledger.module_names:
            return True
    return False


def add_nested(ledger: Ledger, scope: Scope, inside: Surroundings) -> None:
    """Add functions and classes that a scan left aside, in file order, and make them part of `scope`."""
    for node in sorted(scope.nested, key=_position):
        add = _add_local_class if isinstance(node, ast.ClassDef) else add_function
        used = add(ledger, node, inside)
        scope.out += used.out
        scope.loads += used.loads
        scope.words += used.words
        scope.is_dynamic |= used.is_dynamic


def _add_local_class(ledger: Ledger, node: ast.ClassDef, place: Surroundings) -> Scope:
    """Class in a function: a block for its head, while its body is the function's doing."""
    head, head_scope, body = add_class_head(ledger, node, place)
    scope = Scope([head.fingerprint, f"{len(body)}"])
    scan(scope, [*body])
    for item in scope.imports:
        ledger.add_import(item)
    ledger.type_names.update(scope.type_names)
    # Methods do not see names of the class body, while the body itself may mean them or global ones: they
    # stay uses, which at worst names a reader too many.
    inside = Surroundings(
        f"{head.name}.", head.name, hidden=place.hidden, outer_names=frozenset(scope.outer_names)
    )
    add_nested(ledger, scope, inside)
    scope.loads += head_scope.loads
    scope.words += head_scope.words
    scope.is_dynamic |= head_scope.is_dynamic
    return scope


def add_class_head(
    ledger: Ledger, node: ast.ClassDef, place: Surroundings
) -> tuple[Block, Scope, list[ast.stmt]]:
    """Add the block of a class: its name, decorators, bases and keywords. The body is left to the caller."""
    scope = Scope([*place.context])
    doc, body = split_doc(node.body)
    lists = (node.decorator_list, node.bases, node.keywords, getattr(node, "type_params", ()))
    scope.out += ["ClassDef", node.name, ",".join(str(len(items)) for items in lists)]
    scan(scope, [item for items in lists for item in items])
    scope.is_dynamic |= has_machine_read_fields(node)
    block = ledger.add(
        scope,
        loads=frozenset(scope.loads) - place.hidden,
        words=place.reads.union(scope.words, example_words(doc)),
        name=ledger.unique(place.name(node.name)),
        kind=BlockKind.CLASS,
        first_line=_first_line(node),
        last_line=node.end_lineno or node.lineno,
        owner=place.owner,
        doc_fingerprint=doc_digest(doc),
        is_implicit=is_implicit_class(node),
    )
    return block, scope, body


def _first_line(node: Any) -> int:
    # As code objects have it: the line of the first decorator's expression.
    line: int = node.decorator_list[0].lineno if node.decorator_list else node.lineno
    return line


def _position(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset

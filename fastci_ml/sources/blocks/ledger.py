"""Where the blocks of one file are gathered while it is read."""

from __future__ import annotations

import ast
from typing import Any

from fastci_ml.sources.blocks.block import Block, ImportSeen
from fastci_ml.sources.blocks.scope import Scope, digest

# Called or named, they get at attributes by names that stand nowhere.
_DYNAMIC_NAMES = frozenset(
    {
        "__import__", "asdict", "astuple", "dir", "eval", "exec", "fields", "get_type_hints", "getmembers",
        "globals", "import_module", "vars",
    }
)  # fmt: skip
_DYNAMIC_WORDS = frozenset(
    {
        "__annotations__", "__builtins__", "__dataclass_fields__", "__dict__", "__getattribute__",
        "__members__", "__subclasses__", "entry_points", "exec_module", "get_type_hints", "getmembers",
        "import_module", "iter_modules", "model_dump", "model_fields", "resolve_name", "run_module",
        "run_path", "spec_from_file_location", "walk_packages",
    }
)  # fmt: skip
# Attributes that do so only in one module, and are common names elsewhere.
_DYNAMIC_OF = (
    ("sys", "modules"),
    ("dataclasses", "fields"),
    ("dataclasses", "asdict"),
    ("importlib", "reload"),
)
_DOC_WORDS = frozenset({"__doc__", "doctest", "getdoc"})


class Ledger:
    """Blocks and imports of one file so far.

    Attributes
    ----------
    blocks : list of Block
        In file order, a function or class before what is in it.
    imports : list of ImportSeen
        Import statements.
    type_names : set of str
        Type aliases and type parameters.
    module_names : frozenset of str
        Variables and classes that the module binds.
    """

    def __init__(self, module_names: frozenset[str]) -> None:
        self.blocks: list[Block] = []
        self.imports: list[ImportSeen] = []
        self.type_names: set[str] = set()
        self.module_names = module_names
        self._n_named: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """The name, with ``#2`` and so on from its second use."""
        n_named = self._n_named.get(name, 0) + 1
        self._n_named[name] = n_named
        return f"{name}#{n_named}" if n_named > 1 else name

    def add(
        self,
        scope: Scope,
        *,
        loads: frozenset[str],
        words: frozenset[str],
        index: int | None = None,
        **facts: Any,
    ) -> Block:
        """Add a block whose stream is that of `scope`.

        Parameters
        ----------
        scope : Scope
            What was scanned.
        loads, words : frozenset of str
            Names that it looks up outside of itself; those that it uses whatever the scope.
        index : int or None
            Place among the blocks; the end by default. A function stands before what is in it, though its
            fingerprint needs theirs.
        **facts
            The other attributes of `Block`.
        """
        reads = loads | words
        is_dynamic = (
            scope.is_dynamic
            or not _DYNAMIC_NAMES.isdisjoint(loads)
            or not _DYNAMIC_WORDS.isdisjoint(words)
            or any(module in loads and word in words for module, word in _DYNAMIC_OF)
        )
        block = Block(
            fingerprint=digest(scope.out),
            reads=reads,
            is_dynamic=is_dynamic,
            reads_doc=not _DOC_WORDS.isdisjoint(reads),
            **facts,
        )
        if index is None:
            self.blocks.append(block)
        else:
            self.blocks.insert(index, block)
        self.type_names.update(scope.type_names)
        for node in scope.imports:
            self.add_import(node)
        return block

    def add_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Note an import statement."""
        if isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            self.imports.append(
                ImportSeen(module=node.module or "", level=node.level or 0, names=names, line=node.lineno)
            )
            return
        for alias in node.names:
            self.imports.append(ImportSeen(module=alias.name, level=0, names=(), line=node.lineno))


def split_doc(body: list[ast.stmt]) -> tuple[str, list[ast.stmt]]:
    """True docstring of a body, empty without one, and the statements behind it."""
    if body and isinstance(body[0], ast.Expr):
        value = body[0].value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value, body[1:]
    return "", body


def doc_digest(doc: str) -> str:
    """Fingerprint of a docstring; empty without one."""
    return digest([doc]) if doc else ""

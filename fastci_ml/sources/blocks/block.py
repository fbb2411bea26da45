"""The pieces that a Python file is compared by."""

from __future__ import annotations

from dataclasses import dataclass

from fastci_ml.records.evidence_kinds import BlockKind

# Name of the block that stands for a whole file.
FILE_BLOCK = "<file>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One function, class head or statement.

    Attributes
    ----------
    name : str
        Dotted as ``__qualname__`` (``A.step``, ``f.<locals>.g``); for a statement the names that it binds
        (``a,b``), or ``<effect ...>`` with a short text below its owner. An import is a block for each of its
        names; decorators that may register are an effect beside their function or class. What occurs more
        than once in a file is told apart by ``#2``, ``#3``.
    kind : BlockKind
        What it is.
    first_line, last_line : int
        From 1, decorators included.
    fingerprint : str
        16 hexadecimal digits over what the block does: no comments, formatting or true docstrings, but every
        other string constant, decorators, defaults and annotations that run. Nested functions and classes
        are part of it, for they are its doing. So are conditions around a statement of a module or class,
        what may raise in a ``try`` around it, and the effect before an effect, import or computed value:
        order counts there. The same on every supported interpreter.
    doc_fingerprint : str
        Of its true docstring; empty without one.
    owner : str
        Name of the block around it: class or function; empty at module level.
    binds : tuple of str
        Names that a statement binds, for an ``import *`` the module and ``*``.
    reads : frozenset of str
        Names that its code uses: globals, attributes, names of from-imports, and strings that are a dotted
        path (each of its parts): ``getattr``, patch targets, tables of lazy imports.
    is_dynamic : bool
        It computes names: ``getattr`` with a variable, ``globals()``, ``vars()``, ``importlib`` and the like;
        a class whose machinery reads all its fields, as dataclasses do.
    reads_doc : bool
        It looks at ``__doc__``.
    is_memo : bool
        It keeps what it computed for later callers: a decorator that caches, a write to a global or to
        something of the module or the class, an attribute that is filled only where it is missing.
    is_implicit : bool
        Machinery finds it, so that no code need name it: special methods, hooks of pytest and unittest,
        autouse fixtures, classes with a base or metaclass that may note its subclasses. Who notices when one
        is added or taken away is not told by readers.
    """

    name: str
    kind: BlockKind
    first_line: int
    last_line: int
    fingerprint: str
    doc_fingerprint: str = ""
    owner: str = ""
    binds: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    is_dynamic: bool = False
    reads_doc: bool = False
    is_memo: bool = False
    is_implicit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSeen:
    """One import statement, wherever in the file it stands.

    Attributes
    ----------
    module : str
        Dotted, as written; empty in ``from . import a``.
    level : int
        Number of leading dots.
    names : tuple of str
        What ``from`` takes; empty for a plain import.
    line : int
        From 1.
    """

    module: str
    level: int
    names: tuple[str, ...]
    line: int

"""What one scan of code gave, and the digest of its stream."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

DIGEST_BYTES = 8


class Scope:
    """What one scope gave so far.

    Attributes
    ----------
    out : list of str
        The stream.
    loads, stores : list of str
        Plain names that it looks up; those that it binds.
    words : list of str
        Names that it uses whatever the scope: attributes, names of imports, what strings stand for.
    outer_names, nonlocals : list of str
        Names declared global and nonlocal.
    walrus : list of str
        Names bound by ``:=``: a comprehension hands them to the scope around it.
    written : list of (str, bool)
        Roots of what is written to or changed in place; see `written_root`.
    filled : set of str
        What it fills only where it is missing; see `fills_missing`.
    type_names : list of str
        Type aliases and type parameters: their values are code objects of these names.
    nested, imports : list of ast.AST
        Functions and classes right inside, which are left to the caller; import statements.
    is_dynamic : bool
        It asked for an attribute by a computed name.
    has_call, has_code : bool
        It holds a call; it holds a lambda or comprehension.
    """

    __slots__ = (
        "filled", "has_call", "has_code", "imports", "is_dynamic", "loads", "nested", "nonlocals", "out",
        "outer_names", "stores", "type_names", "walrus", "words", "written",
    )  # fmt: skip

    def __init__(self, out: list[str]) -> None:
        self.out = out
        self.loads: list[str] = []
        self.stores: list[str] = []
        self.words: list[str] = []
        self.outer_names: list[str] = []
        self.nonlocals: list[str] = []
        self.walrus: list[str] = []
        self.written: list[tuple[str, bool]] = []
        self.type_names: list[str] = []
        self.filled: set[str] = set()
        self.nested: list[Any] = []
        self.imports: list[Any] = []
        self.is_dynamic = False
        self.has_call = False
        self.has_code = False


def digest(stream: list[str]) -> str:
    """16 hexadecimal digits of a stream."""
    text = "\n".join(stream).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=DIGEST_BYTES).hexdigest()

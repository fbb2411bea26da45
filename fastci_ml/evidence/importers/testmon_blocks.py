"""The blocks that pytest-testmon 2 compares a file by, so that its checksums can be told back into functions.

A block is the body of a function, without those of functions inside, or all that is left of the module. It
is written as a text of the syntax tree, with its place among the blocks in front, and kept as the CRC-32 of
that. So a checksum means something only beside the file that it was made from, read by the same release of
Python.
"""

from __future__ import annotations

import ast
import hashlib
import textwrap
import tokenize
import warnings
import zlib
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from fastci_ml.evidence.bundle.blob_id import blob_id

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestmonBlock:
    """One block.

    Attributes
    ----------
    checksum : int
        As the database has it, from 0.
    name : str
        ``__qualname__`` of the function; empty for what is left of the module.
    first_line : int
        Of the function, its decorators included; 0 for the module.
    """

    # No test, whatever pytest makes of the name.
    __test__ = False

    checksum: int
    name: str
    first_line: int


def file_hashes(content: bytes) -> frozenset[str]:
    """What testmon may have kept as the hash of a file of this content.

    Git's blob id where git could be asked and the file was as committed; else one that testmon makes itself,
    alike but for ends of lines, form feeds, and a length that counts characters.
    """
    text, plain = _decoded(content)
    own = hashlib.sha1(b"blob %d\0%b" % (len(text), plain), usedforsecurity=False).hexdigest()
    return frozenset({blob_id(content), own})


def read_testmon_blocks(content: bytes) -> tuple[TestmonBlock, ...]:
    """Blocks of a file; of both its readings, where they differ.

    Raises
    ------
    SyntaxError, ValueError, RecursionError
        If it cannot be parsed, or is nested too deep.
    """
    text, _ = _decoded(content)
    if text and not text.endswith("\n"):
        text += "\n"
    # Where testmon has read the file itself it takes out indentation: that empties blank lines in strings.
    texts = dict.fromkeys((text, textwrap.dedent(text)))
    return tuple(dict.fromkeys(block for source in texts for block in _Dump().of(source)))


def _decoded(content: bytes) -> tuple[str, bytes]:
    plain = content.replace(b"\f", b" ").replace(b"\r\n", b"\n")
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(plain).readline)
    except SyntaxError:
        encoding = "utf-8"
    return plain.decode(encoding, "replace"), plain


class _Dump:
    def __init__(self) -> None:
        self._blocks: list[TestmonBlock] = []

    def of(self, source: str) -> list[TestmonBlock]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        self._node(tree, "")
        return self._blocks

    def _node(self, node: ast.AST, prefix: str) -> str:
        is_function = isinstance(node, _FUNCTIONS)
        inside = prefix
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            inside = f"{prefix}{node.name}." + ("<locals>." if is_function else "")
        parts = []
        for name, value in ast.iter_fields(node):
            if name == "body" and value and (is_function or isinstance(node, ast.Module)):
                text = ", ".join([self._value(item, inside) for item in value])
                self._add(node, prefix, text)
                parts.append("transformed_into_block")
            else:
                parts.append(self._value(value, inside))
        return f"{type(node).__name__}({', '.join(parts)})"

    def _value(self, value: Any, prefix: str) -> str:
        if isinstance(value, ast.AST):
            return self._node(value, prefix)
        if isinstance(value, list):
            return ", ".join([self._value(item, prefix) for item in value])
        return repr(value)

    def _add(self, node: Any, prefix: str, text: str) -> None:
        checksum = zlib.crc32(f"{len(self._blocks)}:{text}".encode())
        if isinstance(node, ast.Module):
            self._blocks.append(TestmonBlock(checksum=checksum, name="", first_line=0))
        else:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            self._blocks.append(TestmonBlock(checksum=checksum, name=prefix + node.name, first_line=first))

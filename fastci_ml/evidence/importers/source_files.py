"""The Python files of the working tree, and which of their functions a set of lines belongs to.

Sets of lines are whole numbers with a bit for each line, as tools store them: a test of whether a function
was hit is one operation, whatever its length.
"""

from __future__ import annotations

import ast
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastci_ml.errors import ReportError
from fastci_ml.evidence.bundle.blob_id import blob_id
from fastci_ml.records.evidence import FileSeen, UnitSeen
from fastci_ml.records.evidence_kinds import BlockKind
from fastci_ml.sources.blocks.block import Block
from fastci_ml.sources.blocks.module_blocks import ModuleBlocks
from fastci_ml.sources.blocks.reader import read_blocks
from fastci_ml.sources.regular_files import read_regular

_MAX_SOURCE_BYTES = 16 << 20
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.TryStar, ast.Match)
# Where code may go on that was begun long before: loops of threads, generators, what is called later.
_RESUMED = (
    ast.For, ast.AsyncFor, ast.While, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncWith,
    ast.AsyncFunctionDef, ast.GeneratorExp, ast.Lambda,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of a file.

    Attributes
    ----------
    name : str
        As ``__qualname__``.
    units : tuple of UnitSeen
        Its block and those around it; empty where the file has several of one name on one line.
    own_lines : int
        Lines of its body that belong to no function inside.
    sure_lines : int
        Those of them that nothing but a call reaches: not the line of ``def``, where all stands on one.
    entry_lines : int
        Of the sure ones, those of the first statement that does something: each call reaches one of them.
    is_straight : bool
        Whether a run begins at its first line: it has no loop that a thread may be in for long, and is no
        generator or coroutine, which goes on where it was.
    first_line : int
        Of its decorators, where it has some.
    """

    name: str
    units: tuple[UnitSeen, ...]
    own_lines: int
    sure_lines: int
    entry_lines: int
    is_straight: bool
    first_line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A Python file of the working tree.

    Attributes
    ----------
    path : str
        From the root, with ``/``.
    content : bytes
        All of it.
    modified_ns : int
        When it was written.
    blocks : ModuleBlocks
        Its blocks.
    functions : tuple of Function
        In file order.
    code_lines : int
        Lines that code may be on: not blank, no comment.
    module_lines : int
        Those of them outside of every function's body.
    """

    path: str
    content: bytes
    modified_ns: int
    blocks: ModuleBlocks
    functions: tuple[Function, ...]
    code_lines: int
    module_lines: int

    @property
    def version(self) -> tuple[str, str]:
        """Path and blob id."""
        return self.path, blob_id(self.content)


class SourceFiles:
    """Python files below one folder, each read once.

    Parameters
    ----------
    root : Path
        Top of the repository.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        # As given and as resolved: a tool may have gone either way.
        self._tops = tuple(dict.fromkeys(f"{top}{os.sep}" for top in (self.root, root.absolute())))
        self._files: dict[str, SourceFile | str] = {}

    def relative(self, path: str, folder: str = "") -> str | None:
        """Path from the root of a file that a tool named, from `folder` if it is not absolute; else None."""
        full = os.path.normpath(self.root / folder / path)
        for top in self._tops:
            if full.startswith(top):
                return full[len(top) :].replace(os.sep, "/")
        return None

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        try:
            return (self.root / path).is_file()
        except (OSError, ValueError):
            return False

    def get(self, path: str) -> SourceFile | str:
        """A file, or for a person why it cannot be used."""
        known = self._files.get(path)
        if known is None:
            known = self._files[path] = self._read(path)
        return known

    def data(self, path: str) -> FileSeen:
        """A file that is not Python, as it is now."""
        content = self._content(path)
        return FileSeen(path=path, blob=None if isinstance(content, str) else blob_id(content))

    def _content(self, path: str) -> bytes | str:
        file = self.root / path
        try:
            # A link may lead out of the repository: what lies there is none of its files.
            if not file.resolve(strict=True).is_relative_to(self.root):
                return "leads out of the repository"
            return read_regular(file, _MAX_SOURCE_BYTES)
        except FileNotFoundError:
            return "is not there"
        except (OSError, ValueError, RuntimeError) as error:
            return f"cannot be read: {error}"
        except ReportError as error:
            return str(error)

    def _read(self, path: str) -> SourceFile | str:
        content = self._content(path)
        if isinstance(content, str):
            return content
        blocks = read_blocks(content)
        if not blocks.is_parsed:
            return "is no Python that this interpreter reads"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
        finder = _Finder(path, blocks)
        inside = finder.body(tree, "")
        code_lines = _code_lines(content, tree)
        return SourceFile(
            path=path,
            content=content,
            modified_ns=(self.root / path).stat().st_mtime_ns,
            blocks=blocks,
            functions=tuple(finder.functions),
            code_lines=code_lines,
            module_lines=code_lines & ~inside,
        )


class _Finder:
    """Goes through a tree, keeping the name of where it is."""

    def __init__(self, path: str, blocks: ModuleBlocks) -> None:
        self._path = path
        self._blocks = blocks
        self.functions: list[Function] = []

    def body(self, tree: ast.AST, prefix: str) -> int:
        """Take in the functions below a node; all the lines of their bodies."""
        taken = 0
        stack = list(ast.iter_child_nodes(tree))[::-1]
        while stack:
            node = stack.pop()
            if isinstance(node, _FUNCTIONS):
                # Decorators and defaults may hold lambdas, and nothing with a name.
                taken |= self._function(node, prefix)
            elif isinstance(node, ast.ClassDef):
                taken |= self.body(node, f"{prefix}{node.name}.")
            elif not isinstance(node, ast.expr):
                # No definition stands inside an expression.
                stack.extend(list(ast.iter_child_nodes(node))[::-1])
        return taken

    def _function(self, node: Any, prefix: str) -> int:
        name = prefix + node.name
        first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
        place = len(self.functions)
        inside = self.body(node, f"{name}.<locals>.")
        start = _first_line(node.body[0])
        lines = _span(start, node.end_lineno)
        sure = lines & ~inside & ~_span(first, node.lineno)
        self.functions.insert(
            place,
            Function(
                name=name,
                units=self._units(name, first),
                own_lines=lines & ~inside,
                sure_lines=sure,
                entry_lines=_entry(node.body) & sure,
                is_straight=not any(isinstance(item, _RESUMED) for item in _own_nodes(node)),
                first_line=first,
            ),
        )
        return lines

    def _units(self, name: str, first_line: int) -> tuple[UnitSeen, ...]:
        block = self._blocks.at(name, first_line)
        if block is None:
            return ()
        around = (owner for owner in self._blocks.owners(block) if owner.kind is BlockKind.FUNCTION)
        return tuple(self._unit(found) for found in (block, *around))

    def _unit(self, block: Block) -> UnitSeen:
        return UnitSeen(path=self._path, name=block.name, kind=block.kind, fingerprint=block.fingerprint)


def _own_nodes(function: Any) -> list[ast.AST]:
    """Nodes of a function's body, without those of functions and classes inside."""
    found: list[ast.AST] = [function] if isinstance(function, ast.AsyncFunctionDef) else []
    stack = list(function.body)
    while stack:
        node = stack.pop()
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            found.append(node)
            stack.extend(ast.iter_child_nodes(node))
    return found


def _entry(body: list[ast.stmt]) -> int:
    """Lines of the first statement of a body that makes the interpreter do something."""
    for statement in body:
        if isinstance(statement, ast.Global | ast.Nonlocal | ast.Pass):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.AnnAssign) and statement.value is None:
            continue
        first, last = _first_line(statement), statement.end_lineno or statement.lineno
        if isinstance(statement, _COMPOUND):
            inside = statement.cases[0].pattern if isinstance(statement, ast.Match) else statement.body[0]
            last = max(first, min(last, _first_line(inside) - 1))
        elif isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            last = max(first, _first_line(statement.body[0]) - 1)
        return _span(first, last)
    return 0


def _first_line(node: Any) -> int:
    return int(min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", ()))]))


def _span(first: int, last: int) -> int:
    return (1 << (last + 1)) - (1 << first)


def _code_lines(content: bytes, tree: ast.Module) -> int:
    lines = 0
    for number, line in enumerate(content.splitlines(), 1):
        text = line.strip()
        if text and not text.startswith(b"#"):
            lines |= 1 << number
    # Inside of an f-string a line may begin as a comment does, and run.
    for node in ast.walk(tree) if b'"""' in content or b"'''" in content else ():
        if isinstance(node, ast.JoinedStr) and node.end_lineno:
            lines |= _span(node.lineno, node.end_lineno)
    return lines

"""Contexts of coverage.py: which test each of them stands for.

`pytest --cov-context=test` names them ``<node id>|setup``, ``|run`` and ``|teardown``; the setting
``dynamic_context = test_function`` gives dotted names of functions, without parameters. A static context
stands in front of both, with ``|`` between.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fastci_ml.evidence.importers.source_files import SourceFiles
from fastci_ml.records.ids import with_project

_PHASES = ("setup", "run", "teardown")
# Whatever holds no tests of the repository, and may be large.
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages"})


class ContextKind(StrEnum):
    """What a context stands for."""

    TEST = "test"
    OUTSIDE = "outside"
    """No test: what ran before the first one, or in a process that did not know which one it belonged to."""
    UNKNOWN = "unknown"
    """It looks like a test, and cannot be told which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One context.

    Attributes
    ----------
    kind : ContextKind
        What it stands for.
    node_id : str
        The test, from the top of the repository.
    is_call : bool
        Whether it holds the test's own call, and not only what is around it.
    is_function : bool
        Whether the node id is that of a function, whose parameters were not told apart.
    problem : str
        Why it is not known, for a person.
    """

    kind: ContextKind
    node_id: str = ""
    is_call: bool = False
    is_function: bool = False
    problem: str = ""


class ContextReader:
    """Tells what contexts stand for.

    Parameters
    ----------
    files : SourceFiles
        Working tree.
    project : str
        Folder of pytest's root from the top of the repository; empty for the top itself.
    """

    def __init__(self, files: SourceFiles, project: str) -> None:
        self._files = files
        self._project = project
        self._by_stem: Mapping[str, list[str]] | None = None

    def read(self, context: str) -> Context:
        """What one context stands for."""
        name, bar, phase = context.rpartition("|")
        if not bar or phase not in _PHASES:
            name, phase = context, "run"
        path, colons, rest = name.partition("::")
        if colons:
            # Parameters may hold a bar, and so may a path; a static context ends with one.
            while "|" in path and not self._files.exists(with_project(path, self._project)):
                path = path.partition("|")[2]
            node_id = with_project(f"{path}::{rest}", self._project)
            return Context(kind=ContextKind.TEST, node_id=node_id, is_call=phase == "run")
        return self._dotted(context.rpartition("|")[2])

    def _dotted(self, name: str) -> Context:
        parts = name.split(".")
        is_test = len(parts) > 1 and (parts[-1].startswith("test") or parts[-1] == "runTest")
        if not is_test or not all(part.isidentifier() for part in parts):
            # Static contexts are words that a person chose.
            return Context(kind=ContextKind.OUTSIDE)
        found = sorted(self._holding(parts))
        if len(found) == 1:
            path, function = found[0]
            node_id = f"{path}::{function.replace('.', '::')}"
            return Context(kind=ContextKind.TEST, node_id=node_id, is_call=True, is_function=True)
        if not found:
            return Context(kind=ContextKind.UNKNOWN, problem=f"{name}: no file has such a function")
        several = ", ".join(path for path, _ in found[:3])
        return Context(kind=ContextKind.UNKNOWN, problem=f"{name}: may stand in {several}")

    def _holding(self, parts: list[str]) -> Iterable[tuple[str, str]]:
        """Files whose path ends as the name begins, and that have the function which the rest of it names."""
        for n_module in range(1, len(parts)):
            function = ".".join(parts[n_module:])
            module = "/".join(parts[:n_module])
            for path in self._stems().get(parts[n_module - 1], ()):
                if f"/{path}".endswith((f"/{module}.py", f"/{module}/__init__.py")):
                    file = self._files.get(path)
                    if not isinstance(file, str) and any(known.name == function for known in file.functions):
                        yield path, function

    def _stems(self) -> Mapping[str, list[str]]:
        """Python files of the working tree by the last part of their module's name."""
        if self._by_stem is None:
            self._by_stem = {}
            root = self._files.root
            for folder, names, files in os.walk(root):
                names[:] = sorted(name for name in names if name not in _SKIPPED and name[0] != ".")
                for file in sorted(files):
                    if file.endswith(".py"):
                        path = (Path(folder) / file).relative_to(root)
                        stem = path.parent.name if path.stem == "__init__" else path.stem
                        self._by_stem.setdefault(stem, []).append(path.as_posix())
        return self._by_stem

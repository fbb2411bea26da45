"""Which files the import statements of a bundle's files name, whoever of them was the first to import."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fastci_ml.evidence.merge.code_units import SourceFile
from fastci_ml.records.evidence_kinds import BlockKind
from fastci_ml.sources.blocks.block import ImportSeen
from fastci_ml.sources.blocks.imports import resolve_imports


class StaticImports:
    """Import statements, resolved.

    Parameters
    ----------
    exists : callable
        Whether a path is a file of the repository, now or when the tests ran.
    """

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self._all: dict[int, frozenset[str]] = {}

    def of_file(self, file: SourceFile) -> frozenset[str]:
        """Files that any import statement of a file names."""
        found = self._all.get(id(file))
        if found is None:
            found = self._all[id(file)] = self._resolve(
                file, () if file.blocks is None else file.blocks.imports
            )
        return found

    def by_name(self, file: SourceFile) -> dict[str, frozenset[str]]:
        """By a name that an import statement of a file binds, the files that it may stand for."""
        if file.blocks is None:
            return {}
        by_line: dict[int, frozenset[str]] = {}
        found: dict[str, frozenset[str]] = {}
        for seen in file.blocks.imports:
            paths = self._resolve(file, (seen,))
            by_line[seen.line] = by_line.get(seen.line, frozenset()) | paths
            for name in seen.names or (seen.module.partition(".")[0],):
                found[name] = found.get(name, frozenset()) | paths
        for block in file.blocks.blocks:
            # Names that are given by `as`: the statement is known by its line.
            if block.kind is BlockKind.BINDING and block.first_line in by_line:
                for name in block.binds:
                    found[name] = found.get(name, frozenset()) | by_line[block.first_line]
        return found

    def _resolve(self, file: SourceFile, imports: Iterable[ImportSeen]) -> frozenset[str]:
        return resolve_imports(imports, file.seen.path, self._exists) - {file.seen.path}

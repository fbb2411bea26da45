"""Who stands on what was read, or went wrong, while a module was imported: all whose imports lead there."""

from __future__ import annotations

from collections.abc import Iterable

from fastci_ml.evidence.merge.reachable import settle

# Beyond it all marks are one: who reaches any of them is said to reach all.
_MAX_MARKS = 4_096


class ImportReach:
    """Which marked modules the imports of a module lead to.

    Parameters
    ----------
    edges : iterable of (str, str)
        Paths of importing and imported file.
    marked : iterable of str
        Paths of the modules of interest.
    """

    def __init__(self, edges: Iterable[tuple[str, str]], marked: Iterable[str]) -> None:
        self._following: dict[str, set[str]] = {}
        for importer, imported in edges:
            self._following.setdefault(importer, set()).add(imported)
        paths = sorted(set(marked))
        self._groups = [[path] for path in paths] if len(paths) <= _MAX_MARKS else [paths]
        self._marks = {path: 1 << bit for bit, group in enumerate(self._groups) for path in group}
        self._settled: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._marks)

    def from_path(self, path: str) -> int:
        """Bits of the marks that a module, or one that it leads to, has."""
        if path not in self._settled:
            settle(
                path,
                lambda node: self._following.get(node, ()),
                lambda node: self._marks.get(node, 0),
                self._settled,
            )
        return self._settled[path]

    def marked_paths(self, bit: int) -> list[str]:
        """Modules that a bit stands for."""
        return self._groups[bit]

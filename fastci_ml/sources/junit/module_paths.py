"""Which files under a folder a dotted name can mean: `a.b.C` is `a/b.py` with a class, or `a/b/C.py`, ...

A dot may have been a slash, stand in the name of a file or folder, or separate classes; the files that are
there tell which.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


class ModulePaths:
    """Reads dotted names against the files below a root; each folder is listed once.

    Parameters
    ----------
    root : Path
        Where the names start.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listed: dict[str, dict[str, bool]] = {}

    def readings(self, dotted: str) -> list[tuple[str, str]]:
        """Files that a name can mean, each with what is left of the name: its classes.

        Parameters
        ----------
        dotted : str
            From a file that anybody may have written. Only names that a folder lists are followed, so it
            cannot lead out of the root by ``..`` or an absolute path.

        Returns
        -------
        list of (str, str)
            Path from the root with ``/`` and rest with dots, the longest path first.
        """
        found = sorted(self._walk("", dotted.split(".")), key=lambda reading: (-len(reading[0]), reading))
        return list(dict.fromkeys(found))

    def _walk(self, folder: str, segments: list[str]) -> Iterator[tuple[str, str]]:
        names = self._names(folder)
        for n_taken in range(1, len(segments) + 1):
            part, rest = ".".join(segments[:n_taken]), segments[n_taken:]
            if names.get(f"{part}.py") is False:
                yield f"{folder}{part}.py", ".".join(rest)
            is_folder = names.get(part)
            if is_folder is False:
                yield f"{folder}{part}", ".".join(rest)
            elif is_folder and rest:
                yield from self._walk(f"{folder}{part}/", rest)

    def _names(self, folder: str) -> dict[str, bool]:
        """Names in a folder, and whether each is a folder; empty for one that cannot be read."""
        known = self._listed.get(folder)
        if known is None:
            try:
                with os.scandir(self._root / folder) as entries:
                    known = {entry.name: entry.is_dir() for entry in entries}
            except OSError:
                known = {}  # what cannot be read settles no name
            self._listed[folder] = known
        return known

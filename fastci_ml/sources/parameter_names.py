"""Whether somebody wrote parameter ids, or pytest numbered them: what the files of the tests say."""

from __future__ import annotations

import re
from pathlib import Path

from fastci_ml.records.ids import NodeId, split_node_id

# Longer files are generated, and reading them would hold up the plan.
_MOST_BYTES = 4_000_000


class ParameterNames:
    """Looks into test files, each read once; its instances are what `find_positional` asks.

    Parameters
    ----------
    top : Path
        Top of the repository, where ids start.
    """

    def __init__(self, top: Path) -> None:
        self._top = top.resolve()
        self._texts: dict[Path, str | None] = {}

    def __call__(self, function: NodeId, stem: str, ids: tuple[str, ...]) -> bool | None:
        """Whether ids are numbers that pytest put behind a stem; None where the file does not tell.

        Parameters
        ----------
        function : NodeId
            The test.
        stem : str
            What stands before the number: an argument or a fixture, or an id that occurs several times.
        ids : tuple of str
            All with this stem.
        """
        parts = split_node_id(function)
        path = self._top / parts.path
        text = self._text(path)
        if text is None or not re.search(rf"\bdef {re.escape(parts.names[-1])}\b", text):
            return None  # an inherited or generated test: what names its parameters is elsewhere
        if _is_written(text, stem, ids):
            return False
        texts = [text, *(self._text(folder / "conftest.py") for folder in self._folders(path))]
        stems = "|".join(re.escape(name) for name in (stem, stem.removesuffix("_")))
        word = re.compile(rf"(?<!\w)(?:{stems})(?!\w)")
        # A stem that occurs nowhere here names no argument: the ids come written from another module.
        return any(word.search(text) for text in texts if text)

    def _folders(self, path: Path) -> list[Path]:
        return [folder for folder in path.parents if folder == self._top or self._top in folder.parents]

    def _text(self, path: Path) -> str | None:
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def _read(self, path: Path) -> str | None:
        """Text of a file of the repository; None where there is none that can be read."""
        try:
            # Ids come from reports that anybody may have written: none leads out of the repository.
            path = path.resolve()
            if self._top not in path.parents or not path.is_file() or path.stat().st_size > _MOST_BYTES:
                return None
            return path.read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):  # a name that is too long, or holds a null
            return None


def _is_written(text: str, stem: str, ids: tuple[str, ...]) -> bool:
    """Whether an id stands in quotes, or its stem before what a format or a sum puts behind it."""
    quoted = any(f'"{name}"' in text or f"'{name}'" in text for name in ids)
    return quoted or bool(re.search(rf"(?<!\w){re.escape(stem)}(?:\{{|%[dis]|[\"']\s*\+)", text))

"""Finding the sources that ran, and their blocks, each taken apart once in a merge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fastci_ml.errors import ReportError
from fastci_ml.evidence.bundle.blob_id import blob_id
from fastci_ml.evidence.bundle.source_pack import SourcePack, pack_of
from fastci_ml.sources.blocks.module_blocks import ModuleBlocks
from fastci_ml.sources.blocks.reader import read_blocks
from fastci_ml.sources.regular_files import read_regular

# Content of a file by its path and blob id; None where it is not at hand.
SourceReader = Callable[[str, str], bytes | None]

# Parsing takes a hundred times a source's size; no module that people wrote comes near.
_MAX_SOURCE_BYTES = 4 << 20
# Of sources whose blocks are kept for the next bundle; they take some ten times as much.
_MAX_KEPT_BYTES = 24 << 20


class SourcesAtHand:
    """Sources beside the bundles of a session, or in the working tree where that still holds the same.

    Parameters
    ----------
    bundles : Path or list of Path
        Files of bundles.
    root : Path
        Top of the working tree.
    """

    def __init__(self, bundles: Path | list[Path], root: Path) -> None:
        paths = [bundles] if isinstance(bundles, Path) else bundles
        self._packs = [pack for path in paths if (pack := SourcePack(pack_of(path)))]
        self._root = root

    def __call__(self, path: str, blob: str) -> bytes | None:
        """Content of a file; None where it is not at hand, or larger than what is taken apart."""
        content = None
        for pack in self._packs:
            content = pack.get(blob, _MAX_SOURCE_BYTES)
            if content is not None:
                break
        if content is None and is_below_root(path):
            try:
                found = read_regular(self._root / path, _MAX_SOURCE_BYTES)
            except ReportError:
                return None
            content = found if blob_id(found) == blob else None
        return content


def is_below_root(path: str) -> bool:
    """Whether a path of a bundle, which may hold anything, leads to a place below the repository's top.

    Examples
    --------
    >>> [is_below_root(path) for path in ("a/b.py", "/etc/passwd", "../b.py", "a/../../b.py", "")]
    [True, False, False, False, False]
    """
    return bool(path) and not path.startswith("/") and ".." not in path.split("/") and "\0" not in path


class ParsedSources:
    """Blocks of sources by blob id: workers of one session ran the same files."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[ModuleBlocks, int]] = {}
        self._n_bytes = 0

    def blocks(self, path: str, blob: str, sources: SourceReader) -> ModuleBlocks | None:
        """Blocks of a file; None where its content is not at hand."""
        known = self._known.pop(blob, None)
        if known is None:
            content = sources(path, blob)
            if content is None:
                return None
            known = read_blocks(content), len(content)
            self._n_bytes += len(content)
        # The last used comes last, the first goes first.
        self._known[blob] = known
        while self._n_bytes > _MAX_KEPT_BYTES and len(self._known) > 1:
            self._n_bytes -= self._known.pop(next(iter(self._known)))[1]
        return known[0]

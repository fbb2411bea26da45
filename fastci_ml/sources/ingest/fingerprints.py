"""What files hold, told by digest, and whether they still hold it."""

from __future__ import annotations

import os
from hashlib import file_digest
from pathlib import Path

from fastci_ml.errors import ReportError
from fastci_ml.sources.regular_files import open_regular

_State = tuple[int, int, int, int]


class Fingerprints:
    """Digests of files, each computed once."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[str, _State]] = {}

    def digest(self, path: Path) -> str:
        """SHA-256 of the content; ReportError where it cannot be read."""
        if path not in self._known:
            with open_regular(path) as file:
                try:
                    before = _state(os.fstat(file.fileno()))
                    self._known[path] = file_digest(file, "sha256").hexdigest(), before
                except OSError as error:
                    raise ReportError(f"{path}: cannot be read: {error}") from error
        return self._known[path][0]

    def check_unchanged(self, path: Path) -> None:
        """Refuse a file that is not the one whose digest was taken: what was read of it may be a part.

        Raises
        ------
        ReportError
            Names the file.
        """
        try:
            now = _state(path.stat())
        except OSError as error:
            raise ReportError(f"{path}: went away while it was read: {error}") from error
        if now != self._known[path][1]:
            raise ReportError(f"{path}: changed while it was read: is it still being written?")


def _state(found: os.stat_result) -> _State:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

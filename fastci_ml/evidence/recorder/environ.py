"""Environment variables that are read through `os.environ`."""

from __future__ import annotations

import functools
import os

from fastci_ml.evidence.recorder.transparent import transparent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fastci_ml.evidence.recorder.captures import OpenCapture
    from fastci_ml.evidence.recorder.collector import Collector


class EnvironWatch:
    """Books names of variables with one of the watched prefixes, set or not.

    Writing a variable counts as well, and so does copying the environment, which reads all that are set.

    Parameters
    ----------
    collector : Collector
        Where it books.
    prefixes : tuple of str
        How the names of interest begin; without any, nothing is touched.
    """

    def __init__(self, collector: Collector, prefixes: tuple[str, ...]) -> None:
        self._collector = collector
        self._prefixes = prefixes
        # Each mapping, what was found on it and what we put there.
        self._replaced: list[tuple[Any, Any, Any]] = []

    def install(self) -> None:
        """Put functions of ours where `os.environ` turns a name into a key, which every access does."""
        if not self._prefixes:
            return
        for environ in (os.environ, getattr(os, "environb", None)):
            found = getattr(environ, "encodekey", None)
            if environ is not None and found is not None:
                ours = self._watched(found)
                environ.encodekey = ours
                self._replaced.append((environ, found, ours))

    def remove(self) -> None:
        """Put those found back, unless someone else has put others there."""
        for environ, found, ours in self._replaced:
            if environ.encodekey is ours:
                environ.encodekey = found
        self._replaced.clear()

    def begin_again(self) -> None:
        """Nothing is kept."""

    def opening(self) -> None:
        """Nothing is kept back."""

    def closing(self, capture: OpenCapture) -> None:
        """Everything was booked when it happened."""

    def _watched(self, found: Any) -> Any:
        collector = self._collector
        prefixes = self._prefixes

        @functools.wraps(found)
        def encodekey(name: Any) -> Any:
            key = found(name)
            if collector.is_active:
                try:
                    text = os.fsdecode(key)
                    if text.startswith(prefixes):
                        collector.top.environ.add(text)
                except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
                    collector.failed(error)
            return key

        return transparent(encodekey)

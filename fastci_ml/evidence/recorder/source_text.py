"""Who looks at the text of Python files: `inspect.getsource` and what is built on it."""

from __future__ import annotations

import functools
import sys
from os.path import basename, dirname

from fastci_ml.evidence.recorder.askers import is_tool
from fastci_ml.evidence.recorder.transparent import transparent
from fastci_ml.records.evidence_kinds import CaptureKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fastci_ml.evidence.recorder.captures import OpenCapture
    from fastci_ml.evidence.recorder.collector import Collector
    from fastci_ml.evidence.recorder.imports import ImportWatch

_LINECACHE = "linecache"
# Modules that pass a question on, by the name of their file.
_BETWEEN = frozenset({"inspect.py", "linecache.py", "tokenize.py"})
# Those that show lines of what ran to a person. torch.compile is one: it reads code objects, not text.
_SHOWS = frozenset({"bdb.py", "doctest.py", "pdb.py", "traceback.py", "warnings.py"})
_SHOWS_FOLDERS = ("/_pytest", "/_pytest/_code", "/torch/_dynamo", "/torch/_logging")


class SourceTextWatch:
    """Books Python files whose text is asked for.

    `linecache` opens a file for the first who asks and remembers it for the others, so the opening alone
    does not tell.

    Parameters
    ----------
    collector : Collector
        Where it books.
    imports : ImportWatch
        Tells when `linecache` is loaded.
    """

    def __init__(self, collector: Collector, imports: ImportWatch) -> None:
        self._collector = collector
        self._imports = imports
        self._found: Any = None
        self._ours: Any = None

    def install(self) -> None:
        """Begin, as soon as there is something to watch."""
        self._imports.after(_LINECACHE, self._watch)

    def _watch(self) -> None:
        """Put a function of ours in the place of `linecache.getlines`."""
        linecache: Any = sys.modules[_LINECACHE]
        self._found = linecache.getlines
        self._ours = linecache.getlines = self._watched(linecache.getlines)

    def remove(self) -> None:
        """Put the one found back, unless someone else has put a third there."""
        linecache: Any = sys.modules.get(_LINECACHE)
        if linecache is not None and linecache.getlines is self._ours:
            linecache.getlines = self._found

    def begin_again(self) -> None:
        """Nothing is kept."""

    def opening(self) -> None:
        """Nothing is kept back."""

    def closing(self, capture: OpenCapture) -> None:
        """Everything was booked when it happened."""

    def _watched(self, found: Any) -> Any:
        collector = self._collector

        @functools.wraps(found)
        def getlines(*arguments: Any, **keywords: Any) -> Any:
            if collector.is_active:
                collector.guard(self._book, *arguments, *keywords.values())
            return found(*arguments, **keywords)

        return transparent(getlines)

    def _book(self, filename: object, *_: object) -> None:
        relative = self._collector.files.relative
        path = relative(filename) if isinstance(filename, str) else None
        if path is None:
            return
        asker = _asker()
        top = self._collector.top
        # A decorator that takes the text of a function, as torch.jit and Triton do, while its module is being
        # imported: that function makes no call then, which is known of it.
        is_of_itself = top.kind is CaptureKind.IMPORT and top.label == path and relative(asker) is None
        if not is_of_itself and not _shows(asker):
            top.reads.add(str(filename))


def _asker() -> str:
    """File of the code that wants to see the text."""
    # Past this function, the two that called it, and the wrapper.
    frame = sys._getframe(4)  # noqa: SLF001  the documented way to ask who calls
    while frame.f_back is not None and basename(frame.f_code.co_filename) in _BETWEEN:
        frame = frame.f_back
    return frame.f_code.co_filename


def _shows(file: str) -> bool:
    """Whether code of that file wants the text for a traceback or a report."""
    return basename(file) in _SHOWS or dirname(file).endswith(_SHOWS_FOLDERS) or is_tool(file)

"""Who imports whom, while it happens."""

from __future__ import annotations

# `importlib._bootstrap`, and where `importlib.machinery` has its loaders from.
import _frozen_importlib as bootstrap
import builtins
import functools
import sys
from _frozen_importlib_external import SourceFileLoader
from types import ModuleType

from fastci_ml.evidence.recorder.transparent import transparent
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from fastci_ml.evidence.recorder.captures import OpenCapture
    from fastci_ml.evidence.recorder.collector import Collector

_MODULE_CODE = "<module>"
# Libraries whose import takes seconds, by a third longer with the profile hook, and that call nobody else's
# code meanwhile but by the import system.
_LARGE = frozenset({"torch"})
_dict_of = vars(ModuleType)["__dict__"].__get__


class ImportWatch:
    """Makes the execution of each module of the repository a capture, and books who asked for it.

    A statement that imports what is loaded already makes no noise: it stands in the code of whoever ran it.
    Names that are computed do not, so the calls of `importlib.import_module` are booked each time.

    Parameters
    ----------
    collector : Collector
        Where it books.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        # Where functions were replaced, by what, and what was found there; None for what was inherited.
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._after: dict[str, Callable[[], None]] = {}
        # Edges seen in other threads, which may not write.
        self._edges: set[tuple[str, str]] = set()
        # While the import of a large library goes unseen: its name.
        self._unseen = ""

    def after(self, name: str, call: Callable[[], None]) -> None:
        """Call something once a module of that name has been executed; at once if it has been already."""
        if name in sys.modules:
            call()
        else:
            self._after[name] = call

    def install(self) -> None:
        """Stand between the import system and the loaders of source files."""
        self._replace(SourceFileLoader, "exec_module", self._around_execution)
        rewriter = getattr(sys.modules.get("_pytest.assertion.rewrite"), "AssertionRewritingHook", None)
        if rewriter is not None and hasattr(rewriter, "exec_module"):
            self._replace(rewriter, "exec_module", self._around_execution)
        # What `importlib.import_module` calls: whoever holds that function by now goes through here too, and
        # the function itself stays what it was.
        self._replace(bootstrap, "_gcd_import", self._around_import_by_name)
        for module in tuple(sys.modules.values()):
            self._collector.guard(self._book_loaded, module)

    def _book_loaded(self, module: ModuleType) -> None:
        """Every test may stand on it: a plugin by name, or what a program imported before pytest."""
        path = self._path_of(module)
        if path is None:
            return
        full = self._collector.files.absolute(path)
        if path.endswith(".py"):
            # Asked now: at the end of the session it may be another.
            self._collector.files.source_blob(path)
            self._collector.top.imports.add(full)
        else:
            self._collector.top.reads.add(full)

    def remove(self) -> None:
        """Put back what was found, unless someone else has put something there."""
        for place, name, ours, found in reversed(self._replaced):
            if vars(place).get(name) is not ours:
                continue
            if found is None:
                delattr(place, name)
            else:
                setattr(place, name, found)
        self._replaced.clear()

    def begin_again(self) -> None:
        """All that is loaded by now this process stands on, as the one that it is a fork of does."""
        self._edges.clear()

    def opening(self) -> None:
        """Nothing is kept back."""

    def closing(self, capture: OpenCapture) -> None:
        """Modules that were executed past the import system: `runpy`, `exec` of a file, other loaders."""
        while self._edges:
            self._collector.add_edge(*self._edges.pop())
        executed = [code.co_filename for code in capture.codes.values() if code.co_name == _MODULE_CODE]
        relative = self._collector.files.relative
        files = {path: name for name in executed if (path := relative(name)) is not None}
        if capture.kind is CaptureKind.IMPORT:
            files.pop(capture.label, None)
            for path in files:
                self._collector.add_edge(capture.label, path)
        elif files:
            # The program that started pytest is running all the time: it was not executed here.
            for name in _running_modules():
                files.pop(relative(name) or "", None)
            capture.imports.update(files.values())

    def _replace(self, place: Any, name: str, around: Callable[[Any], Any]) -> None:
        ours = around(getattr(place, name))
        self._replaced.append((place, name, ours, vars(place).get(name)))
        setattr(place, name, ours)

    def _around_execution(self, found: Any) -> Any:
        begin, end = self._begin, self._end

        @functools.wraps(found)
        def exec_module(loader: Any, module: ModuleType) -> Any:
            capture = begin(module)
            try:
                return found(loader, module)
            finally:
                end(capture, module)

        return transparent(exec_module)

    def _around_import_by_name(self, found: Any) -> Any:
        begun = self._book_import

        @functools.wraps(found)
        def _gcd_import(*arguments: Any, **keywords: Any) -> Any:
            module = found(*arguments, **keywords)
            begun(module)
            return module

        return transparent(_gcd_import)

    def _begin(self, module: ModuleType) -> OpenCapture | None:
        collector = self._collector
        if not collector.is_active:
            return None
        try:
            path = self._path_of(module)
            if path is None:
                self._look_away(module)
                return None
            self._book(module, path)
            if collector.may_push:
                return collector.push(CaptureKind.IMPORT, path)
        except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
            collector.failed(error)
        return None

    def _end(self, capture: OpenCapture | None, module: ModuleType) -> None:
        collector = self._collector
        # The module may have forked: in the child there is nothing of ours any more.
        if capture is not None and collector.may_push:
            collector.guard(collector.pop, capture)
        elif self._unseen and _namespace(module).get("__name__") == self._unseen:
            self._unseen = ""
            collector.guard(collector.backend.resume)
        if self._after:
            call = self._after.pop(str(_namespace(module).get("__name__")), None)
            if call is not None:
                collector.guard(call)

    def _look_away(self, module: ModuleType) -> None:
        """Let a profile hook rest while a large library is imported, of whose million calls none is ours.

        What of the repository might run then is what the library asks the import system for, or what stands
        in the way of imports and warnings: the one is a gap, and of the other there must be nothing.
        """
        name = _namespace(module).get("__name__")
        collector = self._collector
        if name not in _LARGE or self._unseen or not collector.may_push:
            return
        backend = collector.backend
        if backend.is_costly and not self._is_watched_by_repository() and backend.pause():
            self._unseen = name

    def _is_watched_by_repository(self) -> bool:
        """Whether code of the repository is called on imports or warnings."""
        relative = self._collector.files.relative
        warnings = sys.modules.get("warnings")
        shows = [getattr(warnings, name, None) for name in ("showwarning", "formatwarning", "_showwarnmsg")]
        for found in (*sys.meta_path, *sys.path_hooks, builtins.__import__, *shows):
            for place in (found, type(found)):
                module = sys.modules.get(str(getattr(place, "__module__", "")))
                file = _namespace(module).get("__file__")
                if type(file) is str and relative(file) is not None:
                    return True
        return False

    def _book_import(self, module: ModuleType) -> None:
        collector = self._collector
        if not collector.is_active:
            return
        try:
            path = self._path_of(module)
            if path is not None:
                self._book(module, path)
        except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
            collector.failed(error)

    def _book(self, module: ModuleType, path: str) -> None:
        """Book a module of the repository, and the packages around it, on who imports it."""
        collector = self._collector
        if self._unseen:
            # Asked for by the library, which may have called it: nobody saw that.
            collector.gap(
                Gap.SLOT_LOST, f"{path} was asked for while {self._unseen} was imported unseen"[:200]
            )
        importer = self._importer()
        paths = {path}
        package = str(_namespace(module).get("__name__", "")).rpartition(".")[0]
        while package:
            around = sys.modules.get(package)
            around_path = None if around is None else self._path_of(around)
            if around_path is not None:
                paths.add(around_path)
            package = package.rpartition(".")[0]
        collector.top.imports.update(collector.files.absolute(found) for found in paths)
        if importer is None:
            return
        edges = {(importer, found) for found in paths if found != importer}
        if collector.may_push:
            for edge in edges:
                collector.add_edge(*edge)
        else:
            self._edges.update(edges)

    def _path_of(self, module: ModuleType) -> str | None:
        file = _namespace(module).get("__file__")
        return self._collector.files.relative(file) if type(file) is str else None

    def _importer(self) -> str | None:
        """The nearest caller that is in the repository."""
        relative = self._collector.files.relative
        # Past our own four frames, which are in the repository when it is this project that is recorded.
        frame: FrameType | None = sys._getframe(4)  # noqa: SLF001  the documented way to ask who calls
        while frame is not None:
            path = relative(frame.f_code.co_filename)
            if path is not None:
                return path
            frame = frame.f_back
        return None


def _namespace(module: object) -> dict[str, Any]:
    # Asked past all that the module or its type may define: a lazy module would be loaded by the question.
    if not issubclass(type(module), ModuleType):
        return {}
    found = _dict_of(module)
    return found if isinstance(found, dict) else {}


def _running_modules() -> list[str]:
    names = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  the documented way to ask who calls
    while frame is not None:
        if frame.f_code.co_name == _MODULE_CODE:
            names.append(frame.f_code.co_filename)
        frame = frame.f_back
    return names

"""Files opened for reading and folders listed, by the interpreter's audit events."""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from os import PathLike, fsdecode, getcwd, lstat, readlink
from os.path import basename, dirname, isdir, join, lexists, normpath, realpath
from stat import S_ISDIR, S_ISLNK

from fastci_ml.evidence.recorder.askers import is_module_read, is_search
from fastci_ml.evidence.recorder.audit import add_handlers, remove_handlers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fastci_ml.evidence.recorder.audit import Handler
    from fastci_ml.evidence.recorder.captures import OpenCapture
    from fastci_ml.evidence.recorder.collector import Collector

_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
# With more links into the repository than this, every path is looked at, not only those that begin like one.
_MAX_LINKS = 32


class FileWatch:
    """Books what is read inside the repository.

    What the process wrote itself, before anything of it was read, is output and not booked. Modules that
    are imported have captures of their own, and `SourceTextWatch` sees who looks at their text: neither is
    booked here.

    Parameters
    ----------
    collector : Collector
        Where it books.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        top = collector.files.absolute("").rstrip("/")
        self._real_top = realpath(top)
        self._tops = tuple(folder + "/" for folder in dict.fromkeys((top, self._real_top)))
        # An environment inside the repository is opened again and again, and never its own file.
        self._outside = tuple(
            folder + "/"
            for folder in dict.fromkeys((sys.prefix, realpath(sys.prefix)))
            if not (top + "/").startswith(folder + "/")
        )
        # How a path begins that may lie in the repository, or be it; grows by links that tests make to it.
        self._candidates = tuple(folder.rstrip("/") for folder in self._tops)
        self._links: list[str] = []
        self._inputs: set[str] = set()
        self._outputs: set[str] = set()
        # Folders that are open, for names that are looked up in them.
        self._open_folders: set[str] = set()
        # Folder -> whether it is reached without passing a link.
        self._plain_folders: dict[str, bool] = {}
        self._owner = get_ident()
        self._handlers: dict[str, Handler] = {
            "open": self._on_open,
            "os.listdir": self._on_list,
            "os.scandir": self._on_list,
            "os.rename": self._on_rename,
            "os.link": self._on_link,
            "os.symlink": self._on_symlink,
            "sqlite3.connect": self._on_sqlite,
            "import": self._on_extension,
            "ctypes.dlopen": self._on_library,
        }

    def install(self) -> None:
        """Begin."""
        add_handlers(self._handlers)

    def remove(self) -> None:
        """End."""
        remove_handlers(self._handlers)

    def begin_again(self) -> None:
        """Its thread is the only one."""
        self._owner = get_ident()

    def opening(self) -> None:
        """Nothing is kept back."""

    def closing(self, capture: OpenCapture) -> None:
        """Follow links, as what lies behind them is what was read, and tell folders from files."""
        for full in tuple(capture.reads):
            self._settle(full, capture, capture.reads)
        for full in tuple(capture.listings):
            self._settle(full, capture, capture.listings)

    def _settle(self, full: str, capture: OpenCapture, booked: set[str]) -> None:
        try:
            mode = lstat(full).st_mode
        except OSError:
            # That it was not there is what the test saw.
            return
        if S_ISDIR(mode) and booked is capture.reads:
            capture.reads.discard(full)
            capture.listings.add(full)
            booked = capture.listings
        folder = dirname(full)
        is_plain = self._plain_folders.get(folder)
        if is_plain is None:
            is_plain = self._plain_folders[folder] = self._is_plain(folder)
        if is_plain and not S_ISLNK(mode):
            return
        # The links on the way are dependencies as git keeps them: by the path that they hold.
        booked.discard(full)
        booked.add(realpath(full))
        step = full
        while not self._is_top(step) and step != "/":
            if S_ISLNK(lstat(step).st_mode):
                capture.reads.add(step)
            step = dirname(step)

    def _is_top(self, folder: str) -> bool:
        return folder + "/" in self._tops

    def _is_plain(self, folder: str) -> bool:
        top = next((top for top in self._tops if (folder + "/").startswith(top)), None)
        # What is not below the top was named here by a folder above it.
        return top is None or realpath(folder) == normpath(join(self._real_top, folder[len(top) :]))

    def _on_open(self, arguments: tuple[Any, ...]) -> None:
        # The one event that is frequent: most files lie elsewhere, and cost no more than this.
        path = arguments[0]
        if (
            type(path) is str
            and path[:1] == "/"
            and (not path.startswith(self._candidates) or path.startswith(self._outside))
            and "/.." not in path
        ):
            return
        self._guarded(self._book_open, *arguments)

    def _on_list(self, arguments: tuple[Any, ...]) -> None:
        path = arguments[0]
        if (
            type(path) is str
            and path[:1] == "/"
            and not path.startswith(self._candidates)
            and "/.." not in path
        ):
            return
        self._guarded(self._book_listing, path)

    def _on_rename(self, arguments: tuple[Any, ...]) -> None:
        self._guarded(self._book_rename, arguments[0], arguments[1])

    def _on_link(self, arguments: tuple[Any, ...]) -> None:
        self._guarded(self._book_read, arguments[0])

    def _on_symlink(self, arguments: tuple[Any, ...]) -> None:
        self._guarded(self._book_symlink, arguments[0], arguments[1])

    def _on_sqlite(self, arguments: tuple[Any, ...]) -> None:
        self._guarded(self._book_sqlite, arguments[0])

    def _on_extension(self, arguments: tuple[Any, ...]) -> None:
        # Only extension modules come with a file name.
        if arguments[1]:
            self._guarded(self._book_read, arguments[1])

    def _on_library(self, arguments: tuple[Any, ...]) -> None:
        # A bare name is looked up where the system keeps its libraries.
        if arguments[0] and "/" in str(arguments[0]):
            self._guarded(self._book_read, arguments[0])

    def _guarded(self, book: Any, *arguments: Any) -> None:
        collector = self._collector
        if not collector.is_active or (collector.files.is_reading and get_ident() == self._owner):
            return
        try:
            book(*arguments)
        except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
            collector.failed(error)

    def _book_open(self, path: Any, mode: str | None, flags: int) -> None:
        if mode is not None and flags & _ACCESS == os.O_RDONLY and self._is_known(path):
            self._collector.top.reads.add(path)
            return
        full = self._inside(path)
        if full is None or full.endswith(".pyc"):
            return
        if full.endswith(".py") and is_module_read(sys._getframe(1)):  # noqa: SLF001  as in `_book_listing`
            return
        if mode is None and flags & _ACCESS == os.O_RDONLY:
            self._book_by_descriptor(path, full)
        elif flags & _ACCESS == os.O_RDONLY:
            self._read(full)
        else:
            self._book_writing(full, flags)

    def _is_known(self, path: Any) -> bool:
        """Whether it was read before by this name, and is not one of those that importing reads, too."""
        return type(path) is str and path in self._inputs and not path.endswith(".py")

    def _book_by_descriptor(self, path: Any, full: str) -> None:
        """`os.open`, which may have looked the name up in an open folder: we are not told in which."""
        if is_search(sys._getframe(5)):  # noqa: SLF001  as in `_book_listing`, and `_book_open`
            return
        if isdir(full):
            self._open_folders.add(full)
            self._collector.top.listings.add(full)
            return
        text = _text(path)
        is_relative = text is not None and not text.startswith("/")
        # Of a name that was looked up in an open folder it would be chance to find it here.
        if not is_relative or lexists(full):
            self._read(full)
        if text is not None and is_relative:
            for folder in tuple(self._open_folders):
                other = join(folder, text)
                if lexists(other):
                    self._read(other)

    def _book_writing(self, full: str, flags: int) -> None:
        is_empty = flags & (os.O_TRUNC | os.O_EXCL) or not lexists(full)
        if is_empty:
            if full not in self._inputs:
                self._outputs.add(full)
        elif flags & _ACCESS == os.O_RDWR:
            self._read(full)

    def _book_read(self, path: Any) -> None:
        full = self._inside(path)
        if full is not None:
            self._read(full)

    def _read(self, full: str) -> None:
        if full not in self._outputs:
            self._inputs.add(full)
            self._collector.top.reads.add(full)

    def _book_listing(self, path: Any) -> None:
        is_open = isinstance(path, int)
        if is_open:
            try:
                path = readlink(f"/proc/self/fd/{path}")
            except OSError:
                # Not Linux: the folder was booked when it was opened.
                return
        full = self._inside("." if path is None else path)
        # Past this function, `_guarded`, `_on_list` and the audit hook.
        if full is not None and not is_search(sys._getframe(4)):  # noqa: SLF001  the documented way to ask who calls
            self._collector.top.listings.add(full)
            if is_open:
                self._open_folders.add(full)

    def _book_rename(self, source: Any, target: Any) -> None:
        self._book_read(source)
        full = self._inside(target)
        if full is not None and full not in self._inputs:
            self._outputs.add(full)

    def _book_symlink(self, source: Any, target: Any) -> None:
        link, pointed = _text(target), _text(source)
        if link is None or pointed is None:
            return
        link = join(getcwd(), link)
        pointed = realpath(join(dirname(link), pointed))
        if (pointed + "/").startswith(self._tops) and not link.startswith(self._tops):
            self._links.append(link)
            if len(self._links) > _MAX_LINKS:
                self._candidates = ("/",)
            else:
                self._candidates = (*self._candidates, link)

    def _book_sqlite(self, database: Any) -> None:
        text = _text(database)
        if text is None or text == ":memory:":
            return
        if text.startswith("file:"):
            text = text.removeprefix("file:").partition("?")[0]
            text = "/" + text.lstrip("/") if text.startswith("//") else text
        full = self._inside(text)
        if full is None:
            return
        if lexists(full):
            self._read(full)
        else:
            self._outputs.add(full)

    def _inside(self, path: Any) -> str | None:
        """A path, absolute, if it lies in the repository."""
        text = _text(path)
        if not text or "\0" in text or (text[0] == "<" and text[-1] == ">"):
            # The last is no file: the interpreter looks for the source of code that was made from text.
            return None
        if not text.startswith("/"):
            try:
                text = join(getcwd(), text)
            except OSError:
                # The working directory is gone: nothing can be opened by this name.
                return None
        if "/.." in text:
            # Not only tidied: behind a link, ".." is not where the text says.
            text = join(realpath(dirname(text)), basename(text))
        if "/." in text or "//" in text:
            text = normpath(text)
        if not (text + "/").startswith(self._tops):
            if not self._links or not text.startswith(self._candidates):
                return None
            text = realpath(text)
            if not (text + "/").startswith(self._tops):
                return None
        return None if text.startswith(self._outside) else text


def _text(path: Any) -> str | None:
    """What a program names a file by, as text; None for a descriptor, whose file was named before."""
    if isinstance(path, str):
        return path
    if isinstance(path, bytes):
        return fsdecode(path)
    if isinstance(path, PathLike):
        return fsdecode(path)
    return None

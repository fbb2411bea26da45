"""Processes that a test starts, and threads that the interpreter's hook does not see."""

from __future__ import annotations

import _thread
import functools
import sys
from collections.abc import Callable, Sequence
from os import fsdecode, getcwd
from os.path import basename, join, lexists, realpath
from typing import Any

from fastci_ml.evidence.recorder.audit import Handler, add_handlers, remove_handlers
from fastci_ml.evidence.recorder.collector import Collector, OpenCapture
from fastci_ml.evidence.recorder.imports import ImportWatch
from fastci_ml.evidence.recorder.live_children import current_test, left_behind, live_children
from fastci_ml.evidence.recorder.programs import (
    asks_git_for_files,
    find_program,
    is_started_to_compile,
    may_run_python,
    summary_of,
)
from fastci_ml.evidence.recorder.transparent import transparent
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

_MAX_DETAIL = 80
_PROCESSES = "multiprocessing.process"
_LOOKED_AT = (CaptureKind.TEST, CaptureKind.FIXTURE, CaptureKind.COLLECTOR)


class ChildWatch:
    """Says of a test that it is incomplete when it starts a process, unless that surely runs no Python.

    Whether or not, files and folders of the repository that are named to the child count as read. A child
    that lives on makes what comes after it incomplete as well, for that may send it work: by which way, a
    socket or a file, cannot be told from outside.

    Parameters
    ----------
    collector : Collector
        Where it books.
    imports : ImportWatch
        Tells when `multiprocessing` is loaded: it starts processes without an audit event.
    """

    def __init__(self, collector: Collector, imports: ImportWatch) -> None:
        self._collector = collector
        self._imports = imports
        self._tops = {
            top.rstrip("/") for top in (collector.files.absolute(""), realpath(collector.files.absolute("")))
        }
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        # Whether any was ever started, whether one was since the last look, and who lives on from before.
        self._has_started = False
        self._is_news = False
        self._living: dict[str, str] = {}
        # In which tests.
        self._tests: set[bytes] = set()
        self._handlers: dict[str, Handler] = {
            "subprocess.Popen": self._guarded(self._on_popen),
            "os.posix_spawn": self._guarded(self._on_spawn),
            "os.system": self._guarded(self._on_system),
            "os.fork": self._guarded(self._on_fork),
            "os.forkpty": self._guarded(self._on_fork),
        }

    def install(self) -> None:
        """Begin."""
        if self._collector.backend.name == "profile":
            # There is no audit event on 3.11; `threading` holds the function by a name of its own.
            for name in ("start_new_thread", "start_new"):
                self._replace(_thread, name, self._thread_gap)
        # A server, say, that a program started before it called pytest.
        self._living = live_children()
        self._has_started = bool(self._living)
        add_handlers(self._handlers)
        self._imports.after(_PROCESSES, self._watch_processes)

    def remove(self) -> None:
        """End, and put back what was replaced unless someone else has put something there."""
        remove_handlers(self._handlers)
        for place, name, ours, found in reversed(self._replaced):
            if vars(place).get(name) is ours:
                setattr(place, name, found)
        self._replaced.clear()

    def opening(self) -> None:
        """Nothing is kept back."""

    def closing(self, capture: OpenCapture) -> None:
        """Children that may have done something for it: those from before, and those that are alive."""
        # The session ends when all tests have, which have said so themselves. What is imported or cached
        # within a test is within the test.
        if not self._has_started or capture.kind not in _LOOKED_AT:
            return
        now = live_children()
        if self._is_news or not self._living.keys() <= now.keys():
            # One that ends may leave others behind.
            now |= left_behind(self._tests)
            self._is_news = False
        for detail in (self._living | now).values():
            self._collector.gap(Gap.CHILD_WITHOUT_RECORD, f"lives on: {detail}"[:_MAX_DETAIL])
        self._living = now

    def _guarded(self, book: Callable[..., None]) -> Handler:
        collector = self._collector

        def handler(arguments: tuple[Any, ...]) -> None:
            if collector.is_active:
                collector.guard(book, *arguments)

        return handler

    def _on_popen(self, executable: Any, arguments: Any, folder: Any, env: Any) -> None:
        words = _words(arguments)
        self._book(words, _text(executable) or (words[0] if words else ""), _text(folder) or "", env)

    def _on_spawn(self, path: Any, arguments: Any, env: Any) -> None:
        self._book(_words(arguments), _text(path) or "", "", env)

    def _on_system(self, command: Any) -> None:
        self._gap(_text(command) or "os.system")

    def _on_fork(self) -> None:
        self._gap("os.fork")

    def _book(self, words: list[str], executable: str, folder: str, env: Any) -> None:
        folder = join(getcwd(), folder)
        program = find_program(executable, env if env is None else _environment(env), folder)
        if program is not None:
            self._book_path(program)
        for word in words[1:]:
            for part in _parts(word):
                self._book_path(join(folder, part))
        if may_run_python(program, words):
            if not is_started_to_compile(sys._getframe(1)):  # noqa: SLF001  the documented way to ask who calls
                self._gap(summary_of(executable, words))
        elif basename(executable) == "git" and asks_git_for_files(words, folder, self._tops):
            self._gap(" ".join(["git", *words[1:3]]))

    def _book_path(self, full: str) -> None:
        # What does not exist is made by the child, or is no path at all.
        if self._collector.files.relative(full) is not None and lexists(full):
            self._collector.top.reads.add(full)

    def _gap(self, detail: str) -> None:
        self._has_started = self._is_news = True
        if test := current_test():
            self._tests.add(test)
        self._collector.gap(Gap.CHILD_WITHOUT_RECORD, detail[:_MAX_DETAIL])

    def _watch_processes(self) -> None:
        base = getattr(sys.modules[_PROCESSES], "BaseProcess", None)
        if base is not None:
            self._replace(base, "start", self._process_gap)

    def _process_gap(self, *_: Any) -> None:
        self._gap("multiprocessing")

    def _thread_gap(self, function: Any = None, *_: Any) -> None:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self._collector.gap(Gap.THREAD_UNSEEN, str(name)[:_MAX_DETAIL])

    def _replace(self, place: Any, name: str, book: Callable[..., None]) -> None:
        """Book something whenever a function or method is called."""
        collector = self._collector
        found = vars(place)[name] if name in vars(place) else getattr(place, name)

        @functools.wraps(found)
        def ours(*arguments: Any, **keywords: Any) -> Any:
            if collector.is_active:
                collector.guard(book, *arguments)
            return found(*arguments, **keywords)

        transparent(ours)
        setattr(place, name, ours)
        self._replaced.append((place, name, ours, found))


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, int):
        return None
    return fsdecode(value)


def _words(arguments: Any) -> list[str]:
    if isinstance(arguments, str | bytes) or not isinstance(arguments, Sequence):
        arguments = [arguments]
    return [text for word in arguments if (text := _text(word)) is not None]


def _environment(env: Any) -> dict[str, str]:
    return {fsdecode(name): fsdecode(value) for name, value in dict(env).items() if fsdecode(name) == "PATH"}


def _parts(word: str) -> list[str]:
    """What of an argument may be a path: ``-Ifolder``, ``--option=file``, ``@file``."""
    found = [word] if not word.startswith("-") else [word[2:]]
    if "=" in word:
        found.append(word.partition("=")[2])
    if word.startswith("@"):
        found.append(word[1:])
    # A program may be given on the command line, as long as it likes.
    return [part for part in found if part and "\n" not in part and "\0" not in part and len(part) < 4096]

"""Processes that a test starts, those that live beside it, and threads that the hook does not see."""

from __future__ import annotations

import _thread
import functools
import os
import sys
from _thread import get_ident
from os import fsdecode, getcwd
from os.path import basename, join, lexists, realpath

from fastci_ml.evidence.recorder.audit import add_handlers, remove_handlers
from fastci_ml.evidence.recorder.family import current_test as label_of_test
from fastci_ml.evidence.recorder.family import (
    matches,
    own_command,
)
from fastci_ml.evidence.recorder.live_children import (
    current_test,
    left_behind,
    live_children,
    live_siblings,
)
from fastci_ml.evidence.recorder.process_facts import say_process
from fastci_ml.evidence.recorder.process_names import is_running, name_of
from fastci_ml.evidence.recorder.programs import (
    asks_git_for_files,
    find_program,
    has_git_hooks,
    is_helper,
    is_started_to_compile,
    may_run_python,
    records_itself,
    summary_of,
)
from fastci_ml.evidence.recorder.starts import FORK, SERVER, Starts
from fastci_ml.evidence.recorder.transparent import transparent
from fastci_ml.records.evidence_kinds import LIVES_ON, CaptureKind, Gap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from fastci_ml.evidence.recorder.audit import Handler
    from fastci_ml.evidence.recorder.captures import OpenCapture
    from fastci_ml.evidence.recorder.collector import Collector
    from fastci_ml.evidence.recorder.exits import ExitWatch
    from fastci_ml.evidence.recorder.family import Family
    from fastci_ml.evidence.recorder.imports import ImportWatch

_MAX_DETAIL = 80
_LOOKED_AT = (CaptureKind.TEST, CaptureKind.FIXTURE, CaptureKind.COLLECTOR)


class ChildWatch:
    """Books each process that a test starts, unless that surely runs no Python, by the name that it has.

    A process that records itself leaves a bundle of that name, in which it books its own; what came of all of
    them is found out when bundles are merged, and one that left nothing makes the test incomplete. Files and
    folders of the repository that are named to any child count as read.

    A process that lives on may be sent work by the tests that come after: by which way, a socket or a file,
    cannot be told from outside. So it is booked on each of them as well.

    Parameters
    ----------
    collector : Collector
        Where it books.
    imports : ImportWatch
        Tells when the modules that start processes are loaded.
    family : Family
        What a fork of this process needs to record itself.
    exits : ExitWatch
        Has nothing to do in a fork that does not record.
    filled : callable
        Numbers of captures that a fork of this process may be served from: caches, compiled code.
    is_worker : bool
        Whether this is a worker of pytest-xdist.
    """

    def __init__(
        self,
        collector: Collector,
        imports: ImportWatch,
        family: Family,
        exits: ExitWatch,
        filled: Callable[[], set[int]],
        *,
        is_worker: bool,
    ) -> None:
        self._collector = collector
        self._family = family
        self._exits = exits
        self._filled = filled
        self._is_worker = is_worker
        self._starts = Starts(
            collector, imports, self._on_started, self._on_exec, self._preexec_gap, family.as_text()
        )
        self._tops = {
            top.rstrip("/") for top in (collector.files.absolute(""), realpath(collector.files.absolute("")))
        }
        self._threads: list[tuple[str, Any, Any]] = []
        # What each thread is about to start, by what an audit event said: None for what runs no Python.
        self._announced: dict[int, str | None] = {}
        # Whether any was ever started, whether one was since the last look, and who lives on from before.
        self._has_started = False
        self._is_news = False
        self._living: dict[str, str] = {}
        # What forks were started from: captures that they stand on, and whoever they serve with them.
        self._inherited: dict[str, set[int]] = {}
        # Made by fork servers, and all that record: the system does not list them as children of this one.
        self._served: dict[str, str] = {}
        self._n_read = 0
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
                self._replace_thread_start(name)
        if not self._collector.is_child:
            # A server, say, that a program started before it called pytest.
            self._living = live_children()
        self._has_started = bool(self._living) or self._is_worker
        add_handlers(self._handlers)
        self._starts.install()
        os.register_at_fork(after_in_child=self._in_fork)

    def remove(self) -> None:
        """End, and put back what was replaced unless someone else has put something there."""
        remove_handlers(self._handlers)
        self._starts.remove()
        for name, ours, found in reversed(self._threads):
            if vars(_thread).get(name) is ours:
                setattr(_thread, name, found)
        self._threads.clear()

    def begin_again(self) -> None:
        """The children are the parent's."""
        self._announced.clear()
        self._inherited.clear()
        self._served.clear()
        self._has_started = self._is_news = self._is_worker = False
        self._living = {}

    def opening(self) -> None:
        """Nothing is kept back."""

    def closing(self, capture: OpenCapture) -> None:
        """Children that may have done something for it: those from before, and those that are alive."""
        if self._announced:
            # Someone else stands between the event and the system: whom they started is not known.
            self._say_unknown()
        # The session ends when all tests have, which have said so themselves. What is imported or cached
        # within a test is within the test.
        if not self._has_started or capture.kind not in _LOOKED_AT:
            return
        now = live_children()
        if self._is_worker:
            now |= live_siblings()
        if not self._collector.is_child and (self._is_news or not self._living.keys() <= now.keys()):
            # One that ends may leave others behind.
            now |= left_behind(self._tests)
            self._is_news = False
        now |= self._served_alive()
        for name, detail in (self._living | now).items():
            self._book_child(name, LIVES_ON + detail)
        self._living = now

    def _served_alive(self) -> dict[str, str]:
        """Those that fork servers made, and all below this process that record: daemons among them."""
        if not self._collector.is_child:
            names, self._n_read = self._family.new_processes(self._n_read)
            self._served |= {name: "a process" for name in names if name not in self._served}
        for name in [name for name in self._served if not is_running(name)]:
            del self._served[name]
        return self._served

    def _guarded(self, book: Callable[..., None]) -> Handler:
        collector = self._collector

        def handler(arguments: tuple[Any, ...]) -> None:
            if collector.is_active:
                collector.guard(book, *arguments)

        return handler

    def _on_popen(self, executable: Any, arguments: Any, folder: Any, env: Any) -> None:
        words = _words(arguments)
        self._announce(words, _text(executable) or (words[0] if words else ""), _text(folder) or "", env)

    def _on_spawn(self, path: Any, arguments: Any, env: Any) -> None:
        self._announce(_words(arguments), _text(path) or "", "", env)

    def _on_system(self, command: Any) -> None:
        text = _text(command) or "os.system"
        if not matches(text, self._family.trusted):
            self._note_start()
            self._collector.gap(Gap.CHILD_WITHOUT_RECORD, text[:_MAX_DETAIL])

    def _on_fork(self) -> None:
        self._announced[get_ident()] = "os.fork"

    def _on_exec(self, path: Any, arguments: Any) -> None:
        """Another program takes the place of this one, unless that fails."""
        collector = self._collector
        # In the midst of something not all is written, and the missing end mark says it.
        if not collector.is_child or not collector.checkpoint():
            return
        words = _words(arguments)
        executable = _text(path) or ""
        program = find_program(executable, None, getcwd())
        if may_run_python(program, words) and not is_helper(words):
            if not records_itself(program, words):
                return
            collector.writer.add_exec(summary_of(executable, words))
        else:
            collector.writer.add_exec("")
        collector.writer.flush()

    def _on_started(self, name: str, arguments: Sequence[Any] | None, program: str) -> None:
        """Book a process that is there now."""
        ident = get_ident()
        if program == SERVER:
            detail: str | None = program
            self._served[name] = program
        elif ident in self._announced:
            detail = self._announced.pop(ident)
        elif arguments is None:
            detail = "os.fork"
        else:
            words = _words(arguments)
            detail = self._detail_of(words, program, program)
            self._note_opaque(detail, words, program)
        if detail is not None:
            self._note_start()
            if program == FORK:
                self._inherited[name] = self._filled()
            self._book_child(name, detail)

    def _announce(self, words: list[str], executable: str, folder: str, env: Any) -> None:
        """Book what is named to a child that is about to be started, and keep what it is."""
        folder = join(getcwd(), folder)
        program = find_program(executable, env if env is None else _environment(env), folder)
        if program is not None:
            self._book_path(program)
        for word in words[1:]:
            for part in _parts(word):
                self._book_path(join(folder, part))
        detail = self._detail_of(words, executable, program)
        is_git = detail is None and basename(executable) == "git"
        if is_git and (asks_git_for_files(words, folder, self._tops) or has_git_hooks(words, folder)):
            self._note_start()
            self._collector.gap(Gap.CHILD_WITHOUT_RECORD, " ".join(["git", *words[1:3]])[:_MAX_DETAIL])
        self._announced[get_ident()] = detail
        self._note_opaque(detail, words, program)

    def _detail_of(self, words: list[str], executable: str, program: str | None) -> str | None:
        """What a command is, for a person; None if it runs no code of the repository unseen."""
        if not may_run_python(program, words) or is_helper(words):
            return None
        if is_started_to_compile(sys._getframe(1)):  # noqa: SLF001  the documented way to ask who calls
            return None
        if matches(" ".join([basename(executable), *words[1:]]), self._family.trusted):
            return None
        return summary_of(executable, words)

    def _note_opaque(self, detail: str | None, words: list[str], program: str | None) -> None:
        """A program that is no Python may start any, without us, before it becomes one that records."""
        if detail is not None and not records_itself(program, words):
            self._note_start()
            self._collector.gap(Gap.CHILD_WITHOUT_RECORD, detail[:_MAX_DETAIL])

    def _preexec_gap(self) -> None:
        """Code of the program ran between a fork and what it became."""
        self._note_start()
        self._collector.gap(Gap.CHILD_WITHOUT_RECORD, "preexec_fn")

    def _say_unknown(self) -> None:
        for detail in [self._announced.pop(ident, None) for ident in list(self._announced)]:
            if detail is not None:
                self._note_start()
                self._collector.gap(Gap.CHILD_WITHOUT_RECORD, detail[:_MAX_DETAIL])

    def _book_path(self, full: str) -> None:
        # What does not exist is made by the child, or is no path at all.
        if self._collector.files.relative(full) is not None and lexists(full):
            self._collector.top.reads.add(full)

    def _note_start(self) -> None:
        self._has_started = self._is_news = True
        if test := current_test():
            self._tests.add(test)

    def _book_child(self, name: str, detail: str) -> None:
        if not name:
            # No system that names processes for good.
            self._collector.gap(Gap.CHILD_WITHOUT_RECORD, detail[:_MAX_DETAIL])
            return
        self._collector.book_child(name, detail[:_MAX_DETAIL], self._inherited.get(name, set()))

    def _in_fork(self) -> None:
        """In a fork of the process that was recorded."""
        collector = self._collector
        if not collector.is_active:
            return
        if self._starts.is_in_exec or not self._family.takes(own_command()):
            self._leave()
            return
        try:
            writer = self._family.new_writer(collector.backend.name, name_of(os.getpid()))
            collector.session_label = label_of_test()
            collector.begin_again(writer)
            collector.before_end.append(lambda: say_process(collector))
        except Exception:  # noqa: BLE001  the border named in CONVENTIONS: whoever booked it finds no bundle
            self._leave()

    def _leave(self) -> None:
        self._collector.leave()
        self._exits.disarm()

    def _thread_gap(self, function: Any = None, *_: Any) -> None:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self._collector.gap(Gap.THREAD_UNSEEN, str(name)[:_MAX_DETAIL])

    def _replace_thread_start(self, name: str) -> None:
        collector, book = self._collector, self._thread_gap
        found = getattr(_thread, name)

        @functools.wraps(found)
        def ours(*arguments: Any, **keywords: Any) -> Any:
            if collector.is_active:
                collector.guard(book, *arguments)
            return found(*arguments, **keywords)

        transparent(ours)
        setattr(_thread, name, ours)
        self._threads.append((name, ours, found))


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, int):
        return None
    return fsdecode(value)


def _words(arguments: Any) -> list[str]:
    if isinstance(arguments, str | bytes) or not hasattr(arguments, "__len__"):
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

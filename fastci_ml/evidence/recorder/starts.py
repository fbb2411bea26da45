"""Who was started: the process ids that the interpreter's own ways of starting a process give."""

from __future__ import annotations

import _posixsubprocess
import functools
import os
import sys
from types import BuiltinFunctionType

from fastci_ml.evidence.recorder.family import (
    VARIABLE,
    is_copy,
    with_variable,
)
from fastci_ml.evidence.recorder.process_names import name_of
from fastci_ml.evidence.recorder.transparent import transparent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from fastci_ml.evidence.recorder.collector import Collector
    from fastci_ml.evidence.recorder.imports import ImportWatch

_SUBPROCESS = "subprocess"
_PROCESSES = "multiprocessing.process"
# In the place of a program: a fork of this process, and one that a fork server made.
FORK, SERVER = "", "multiprocessing"
# Place of the environment among the arguments of `fork_exec`.
_ENVIRON = 5


class Starts:
    """Stands around the functions that start processes, to learn whom they started.

    Parameters
    ----------
    collector : Collector
        Errors of ours are booked there.
    imports : ImportWatch
        Tells when `subprocess` and `multiprocessing` are loaded.
    started : callable
        Told the name of each process, see `Capture.children`, the arguments that it was started with (of a
        fork None), and the program: `FORK` or `SERVER` where there is none.
    replaced : callable
        Told the program and arguments that are about to take the place of this one.
    prepared : callable
        Called when code of the program is to run in a fork that then becomes another one.
    variable : str
        What copies of the environment get that are given to a child.
    """

    def __init__(
        self,
        collector: Collector,
        imports: ImportWatch,
        started: Callable[[str, Sequence[Any] | None, str], None],
        replaced: Callable[[Any, Any], None],
        prepared: Callable[[], None],
        variable: str,
    ) -> None:
        self._collector = collector
        self._imports = imports
        self._started = started
        self._become = replaced
        self._prepared = prepared
        self._variable = variable
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self.is_in_exec = False
        """Whether a fork that happens now is there to become another program at once."""

    def install(self) -> None:
        """Begin."""
        self._replace(_posixsubprocess, "fork_exec", self._around_fork_exec)
        for name in ("fork", "forkpty"):
            self._replace(os, name, self._around_fork)
        for name in ("posix_spawn", "posix_spawnp"):
            self._replace(os, name, self._around_spawn)
        for name in ("execv", "execve"):
            self._replace(os, name, self._around_exec)
        self._imports.after(_SUBPROCESS, self._watch_subprocess)
        self._imports.after(_PROCESSES, self._watch_processes)

    def remove(self) -> None:
        """Put back what was found, unless someone else has put something there."""
        for place, name, ours, found in reversed(self._replaced):
            if vars(place).get(name) is ours:
                setattr(place, name, found)
        self._replaced.clear()

    def _watch_subprocess(self) -> None:
        module = sys.modules[_SUBPROCESS]
        # It holds the function by a name of its own.
        if "_fork_exec" in vars(module):
            self._replace(module, "_fork_exec", self._around_fork_exec)

    def _watch_processes(self) -> None:
        base = getattr(sys.modules[_PROCESSES], "BaseProcess", None)
        if base is not None:
            self._replace(base, "start", self._around_start)

    def _replace(self, place: Any, name: str, around: Callable[[Any], Any]) -> None:
        found = getattr(place, name, None)
        if found is None or any(ours is found for _, _, ours, _ in self._replaced):
            return
        ours = around(found)
        if place is os:
            # What is sent to other processes is sent by its name.
            ours.__module__, ours.__qualname__ = "os", name
        setattr(place, name, ours)
        self._replaced.append((place, name, ours, found))

    def _around_fork_exec(self, found: Any) -> Any:
        collector, tell = self._collector, self._tell

        @functools.wraps(found)
        def fork_exec(*arguments: Any) -> Any:
            self.is_in_exec = True
            given = arguments
            if collector.is_active and any(callable(one) and not _is_of_c(one) for one in given[_ENVIRON:]):
                collector.guard(self._prepared)
            if len(given) > _ENVIRON:
                entries = given[_ENVIRON]
                handed_on = self._handed_on(entries, lambda: with_variable(self._variable, entries))
                given = (*given[:_ENVIRON], handed_on, *given[_ENVIRON + 1 :])
            try:
                pid = found(*given)
            finally:
                self.is_in_exec = False
            if collector.is_active:
                collector.guard(tell, pid, *arguments[:2])
            return pid

        return transparent(fork_exec)

    def _around_spawn(self, found: Any) -> Any:
        collector, tell = self._collector, self._tell

        @functools.wraps(found)
        def posix_spawn(path: Any, argv: Any, env: Any, **options: Any) -> Any:
            given = self._handed_on(env, lambda: {**env, VARIABLE: self._variable} if is_copy(env) else None)
            pid = found(path, argv, given, **options)
            if collector.is_active:
                collector.guard(tell, pid, argv, (path,))
            return pid

        return transparent(posix_spawn)

    def _around_exec(self, found: Any) -> Any:
        collector, become = self._collector, self._become

        @functools.wraps(found)
        def execute(*arguments: Any, **keywords: Any) -> Any:
            if collector.is_active and len(arguments) > 1:
                collector.guard(become, *arguments[:2])
            try:
                return found(*arguments, **keywords)
            finally:
                # It failed: this program goes on.
                if collector.is_active and collector.is_child:
                    collector.guard(collector.stay)

        return transparent(execute)

    def _around_fork(self, found: Any) -> Any:
        collector, tell = self._collector, self._tell

        @functools.wraps(found)
        def fork() -> Any:
            forked = found()
            pid = forked[0] if isinstance(forked, tuple) else forked
            if pid and collector.is_active:
                collector.guard(tell, pid)
            return forked

        return transparent(fork)

    def _around_start(self, found: Any) -> Any:
        collector, tell = self._collector, self._tell_process

        @functools.wraps(found)
        def start(process: Any) -> None:
            try:
                found(process)
            finally:
                if collector.is_active:
                    collector.guard(tell, process)

        return transparent(start)

    def _handed_on(self, given: Any, changed: Callable[[], Any]) -> Any:
        """The environment of a child: as given, or changed if it is a copy of ours."""
        if given is None or not self._collector.is_active:
            return given
        try:
            found = changed()
        except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
            self._collector.failed(error)
            return given
        return given if found is None else found

    def _tell(self, pid: int, arguments: Any = None, programs: Any = None) -> None:
        program = os.fsdecode(programs[0]) if programs else FORK
        self._started(name_of(pid), arguments, program)

    def _tell_process(self, process: Any) -> None:
        """A process that a fork server made; of others we were told already."""
        popen = vars(process).get("_popen")
        if getattr(popen, "method", "") == "forkserver" and process.pid:
            self._started(name_of(process.pid), None, SERVER)


def _is_of_c(function: Any) -> bool:
    """Whether a callable runs no code of a program: ``os.setsid``."""
    return type(function) is BuiltinFunctionType

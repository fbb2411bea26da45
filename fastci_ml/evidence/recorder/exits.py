"""How a child ends: whichever way it takes, its bundle is completed first, if Python code can still run.

``os._exit``, which `multiprocessing` and DataLoader workers end by, runs no ``atexit`` function. SIGTERM ends
a process where it stands, and so it stays: a handler of Python's would keep one alive that is in C code, and
whoever waits for its end with it. SIGKILL, and ``_exit`` of C, leave no time for anything. The end mark is
missing then, and says so.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found,unused-ignore]
import atexit
import os

from fastci_ml.evidence.recorder.family import matches, own_command
from fastci_ml.evidence.recorder.transparent import transparent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastci_ml.evidence.recorder.captures import OpenCapture
    from fastci_ml.evidence.recorder.collector import Collector
    from fastci_ml.evidence.recorder.family import Family

# Bound early: a test may put something in the place of these.
_kill, _getpid = os.kill, os.getpid
_TERM = _signal.SIGTERM


class ExitWatch:
    """Completes the bundle of a child before it ends by ``os._exit`` or the usual way.

    By SIGTERM too, for commands that the settings name, and that do not handle it themselves. Such a process
    ends with the same status, but only when its main thread runs Python code.

    Parameters
    ----------
    collector : Collector
        Of a process that may fork, or that is a child.
    family : Family
        Which commands are to complete their bundles at SIGTERM.
    """

    def __init__(self, collector: Collector, family: Family) -> None:
        self._collector = collector
        self._family = family
        self._ours: Callable[[int], Any] | None = None
        self._found: Callable[[int], Any] = os._exit
        self._is_ending = False
        self._hook = self._on_term

    def install(self) -> None:
        """Stand before ``os._exit``: a fork of this process ends by it."""
        self._found = os._exit
        self._ours = self._around_exit(os._exit)
        os._exit = self._ours  # type: ignore[assignment]
        if self._collector.is_child:
            self._arm()

    def remove(self) -> None:
        """Put back what was found, unless someone else has put something there."""
        if os._exit is self._ours:
            os._exit = self._found  # type: ignore[assignment]
        self.disarm()

    def begin_again(self) -> None:
        """A fork ends by itself."""
        self._is_ending = False
        self._arm()

    def opening(self) -> None:
        """Nothing is kept back."""

    def closing(self, capture: OpenCapture) -> None:
        """Nothing is booked."""

    def finish(self) -> None:
        """Complete the bundle of a child, once."""
        collector = self._collector
        if collector.is_child and collector.is_active and not self._is_ending:
            self._is_ending = True
            collector.guard(collector.finish)

    def disarm(self) -> None:
        """Leave the end of this process alone."""
        atexit.unregister(self.finish)
        try:
            if _signal.getsignal(_TERM) == self._hook:
                _signal.signal(_TERM, _signal.SIG_DFL)
        except ValueError:
            # Not the main thread: the handler finds nothing to do, and ends the process.
            return

    def _around_exit(self, found: Callable[[int], Any]) -> Callable[[int], Any]:
        finish = self.finish

        def _exit(status: int) -> Any:
            finish()
            return found(status)

        # What is sent to other processes is sent by its name.
        _exit.__module__, _exit.__qualname__, _exit.__doc__ = "os", "_exit", found.__doc__
        return transparent(_exit)

    def _arm(self) -> None:
        atexit.register(self.finish)
        if not matches(own_command(), self._family.flushed):
            return
        try:
            if _signal.getsignal(_TERM) == _signal.SIG_DFL:
                _signal.signal(_TERM, self._hook)
        except ValueError:
            # Not the main thread: SIGTERM ends the process, and the end mark is missing.
            return

    def _on_term(self, _number: int, _frame: Any) -> None:
        self.finish()
        _signal.signal(_TERM, _signal.SIG_DFL)
        _kill(_getpid(), _TERM)

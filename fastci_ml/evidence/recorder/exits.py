"""How a child ends: whichever way it takes, its bundle is completed first, if Python code can still run.

``os._exit``, which `multiprocessing` and DataLoader workers end by, runs no ``atexit`` function, and SIGTERM
ends a process where it stands. SIGKILL, and ``_exit`` of C, leave no time for anything: the end mark is
missing then, and says so.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found,unused-ignore]
import atexit
import fcntl
import os
from _thread import get_ident, get_native_id, start_new_thread
from time import sleep

from fastci_ml.evidence.recorder.transparent import transparent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastci_ml.evidence.recorder.captures import OpenCapture
    from fastci_ml.evidence.recorder.collector import Collector

# Bound early: a test may put something in the place of these.
_read, _write, _close, _pipe, _kill, _getpid, _exists = (
    os.read,
    os.write,
    os.close,
    os.pipe,
    os.kill,
    os.getpid,
    os.path.exists,
)
_TERM = _signal.SIGTERM
_STOP = b"\0"
# A main thread that runs Python code comes to its handler long before.
_PATIENCE_S = 0.2
_LONGEST_END_S = 10.0
# Of a thread that is about to end.
_LOOK_S, _MAX_LOOKS = 0.000_05, 200
# As for bundles: low numbers of descriptors are the program's.
_MIN_HANDLE = 64


class ExitWatch:
    """Completes the bundle of a child before it ends by ``os._exit``, SIGTERM or the usual way.

    A process that handles SIGTERM itself is left alone. In others SIGTERM goes on ending the process, with
    the same status: at once where the main thread runs Python code, and else, in a collective operation say,
    by a thread that does nothing but wait for it. No fork sees that thread: Python 3.12 warns of those.

    Parameters
    ----------
    collector : Collector
        Of a process that may fork, or that is a child.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._ours: Callable[[int], Any] | None = None
        self._found: Callable[[int], Any] = os._exit
        # Both ends of the pipe that the interpreter writes the numbers of signals to.
        self._pipe: tuple[int, int] | None = None
        self._has_thread = False
        self._thread_id = 0
        self._is_ending = False
        self._owner = 0
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
        self._disarm()

    def begin_again(self) -> None:
        """A fork ends by itself, and has no thread but its first."""
        if self._pipe is not None:
            _signal.set_wakeup_fd(-1)
            for handle in self._pipe:
                _close(handle)
        self._pipe = None
        self._has_thread = False
        self._is_ending = False
        self._arm()

    def opening(self) -> None:
        """Nothing is kept back."""

    def closing(self, capture: OpenCapture) -> None:
        """Nothing is booked."""

    def before_fork(self) -> None:
        """End the thread: a fork of a process that has several is warned of."""
        if self._pipe is None or not self._has_thread:
            return
        self._has_thread = False
        _write(self._pipe[1], _STOP)
        for _ in range(_MAX_LOOKS):
            if self._thread_id and not _exists(f"/proc/self/task/{self._thread_id}"):
                break
            sleep(_LOOK_S)

    def after_fork(self) -> None:
        """Start it again, in the parent."""
        if self._pipe is not None:
            self._start_thread()

    def finish(self) -> None:
        """Complete the bundle of a child, once."""
        collector = self._collector
        if collector.is_child and collector.is_active and not self._is_ending:
            self._is_ending = True
            collector.guard(collector.finish)

    def _around_exit(self, found: Callable[[int], Any]) -> Callable[[int], Any]:
        finish = self.finish

        def _exit(status: int) -> Any:
            finish()
            return found(status)

        _exit.__doc__ = found.__doc__
        return transparent(_exit)

    def _arm(self) -> None:
        atexit.register(self.finish)
        self._owner = get_ident()
        try:
            if _signal.getsignal(_TERM) not in (_signal.SIG_DFL, self._hook):
                return
            _signal.signal(_TERM, self._hook)
        except ValueError:
            # Not the main thread: SIGTERM ends the process, and the end mark is missing.
            return
        pipe = _high_pipe()
        if pipe is None:
            return
        found = _signal.set_wakeup_fd(pipe[1], warn_on_full_buffer=False)
        if found != -1:
            # The program waits for signals itself.
            _signal.set_wakeup_fd(found)
            for handle in pipe:
                _close(handle)
            return
        self._pipe = pipe
        self._start_thread()

    def _disarm(self) -> None:
        atexit.unregister(self.finish)
        if get_ident() != self._owner:
            return
        if _signal.getsignal(_TERM) == self._hook:
            _signal.signal(_TERM, _signal.SIG_DFL)
        if self._pipe is not None:
            ours = self._pipe[1]
            found = _signal.set_wakeup_fd(-1)
            if found not in (ours, -1):
                _signal.set_wakeup_fd(found)
            # The thread ends with the process; it must not read what takes the number of its pipe.
            _write(ours, _STOP)
            self._pipe = None

    def _start_thread(self) -> None:
        assert self._pipe is not None
        self._thread_id = 0
        try:
            start_new_thread(self._wait, (self._pipe[0],))
        except RuntimeError:
            # None is to be had: the handler is there all the same.
            return
        self._has_thread = True

    def _wait(self, reader: int) -> None:
        self._thread_id = get_native_id()
        while True:
            numbers = _read(reader, 64)
            if not numbers or _STOP in numbers:
                return
            # By now the program may handle it itself.
            if _TERM in numbers and _signal.getsignal(_TERM) == self._hook:
                sleep(_PATIENCE_S)
                if self._is_ending:
                    # The main thread is about to end it.
                    sleep(_LONGEST_END_S)
                # It is in C code, and will not come to its handler.
                self.finish()
                _end_by_term()

    def _on_term(self, _number: int, _frame: Any) -> None:
        self.finish()
        _signal.signal(_TERM, _signal.SIG_DFL)
        _kill(_getpid(), _TERM)


def _high_pipe() -> tuple[int, int] | None:
    try:
        ends = _pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _MIN_HANDLE) for end in ends]
    except OSError:
        return None
    for end in ends:
        _close(end)
    os.set_blocking(high[1], False)
    return high[0], high[1]


def _end_by_term() -> None:
    """End as SIGTERM does. Python sets the default again in the main thread alone, the C library in any."""
    try:
        import ctypes

        ctypes.CDLL(None).signal(int(_TERM), None)
        _kill(_getpid(), _TERM)
        sleep(1)
    finally:
        # The exit status differs, but it ends, as whoever sent the signal expects.
        _kill(_getpid(), _signal.SIGKILL)

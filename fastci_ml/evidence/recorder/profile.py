"""The profile hook, Python 3.11, by the interpreter's own profiler written in C.

`_lsprof`, the engine of cProfile, keeps one entry for each code object that was called. A hook in Python
costs a call at every call, return and call into C: 1.5 times what this does (docs/experiments.md). A
profiler belongs to one thread, so each thread gets one of its own. Threads that C++ started are not seen.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading

# The engine of cProfile: part of the standard library, without documentation of its own.
from _lsprof import Profiler
from _thread import get_ident
from operator import itemgetter

from fastci_ml.evidence.recorder.backend import identity
from fastci_ml.evidence.recorder.transparent import transparent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType, FrameType
    from typing import Any

_code_of = itemgetter(0)


class ProfileBackend:
    """Entries of functions from a stack of C profilers, one for each open capture."""

    name = "profile"
    is_costly = True

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._thread_profilers: dict[int, list[_ThreadProfiler]] = {}
        self._left_out: set[str] = set()
        self._owner = get_ident()
        self._lost = ""
        # The profiler that was switched off by `pause`.
        self._paused: Any = None

    def start(self) -> None:
        """Take the profile hook of this thread and of those that will be started."""
        if sys.getprofile() is not None:
            raise RuntimeError(f"the profile hook is taken by {sys.getprofile()!r}")
        if threading.getprofile() is not None:
            raise RuntimeError(f"the profile hook of threads is taken by {threading.getprofile()!r}")
        # One function for good: a bound method would be another object each time it is asked for.
        self._hook = self._enter_thread
        threading.setprofile(self._hook)
        self._found_setprofile = threading.setprofile
        self._our_setprofile = self._around_setprofile(threading.setprofile)
        threading.setprofile = self._our_setprofile

    def stop(self) -> None:
        """Give the hooks back, where they are still ours."""
        if self._stack and _hook() is self._stack[-1]:
            self._stack[-1].disable()
        self._stack.clear()
        if threading.setprofile is self._our_setprofile:
            threading.setprofile = self._found_setprofile
        if threading.getprofile() == self._hook:
            threading.setprofile(None)

    def begin_again(self) -> None:
        """Forget all captures; of all threads only this one is left, whose hook may be that of a thread."""
        found = _hook()
        if isinstance(found, _Profiler):
            found.disable()
        elif found is not None:
            self._lost = f"the profile hook is {found!r}, not ours"
        # Kept, for to free what they saw takes longer than the fork.
        self._of_parent = (self._stack, self._thread_profilers)
        self._stack, self._thread_profilers = [], {}
        self._owner = get_ident()
        self._paused = None

    def push(self) -> None:
        """Begin a capture."""
        self._note_loss()
        profiler = self._new_profiler()
        if self._stack and _hook() is self._stack[-1]:
            self._stack[-1].disable()
        self._stack.append(profiler)
        # Someone else's hook is left alone: a test that profiles is a test in its own right.
        if _hook() is None:
            profiler.enable()

    def pop(self, *, is_apart: bool) -> Mapping[int, CodeType]:  # noqa: ARG002  the outer one always sees again
        """End a capture; the outer one goes on where it was."""
        self._note_loss()
        profiler = self._stack.pop()
        if _hook() is profiler:
            profiler.disable()
        if self._stack and _hook() is None:
            self._stack[-1].enable()
        codes = _codes(profiler)
        self._add_threads(codes)
        left_out = self._left_out
        return {identity(code): code for code in codes if code.co_filename not in left_out}

    def pause(self) -> bool:
        """See nothing of this thread until `resume`; whether that was possible."""
        if not self._stack or _hook() is not self._stack[-1] or get_ident() != self._owner:
            return False
        self._paused = self._stack[-1]
        self._paused.disable()
        return True

    def resume(self) -> None:
        """See again, from the capture on that was open at the pause."""
        paused, self._paused = self._paused, None
        if paused is not None and self._stack and self._stack[-1] is paused and _hook() is None:
            paused.enable()

    def leave_out(self, filename: str) -> None:
        """Pass over code of this file."""
        self._left_out.add(filename)

    def take_in(self, filename: str) -> None:
        """Pass over it no longer."""
        self._left_out.discard(filename)

    def lost(self) -> str:
        """Whether the hook was taken since this was last asked."""
        self._note_loss()
        lost, self._lost = self._lost, ""
        return lost

    def _note_loss(self) -> None:
        if not self._stack or self._stack[-1] is self._paused:
            return
        found = _hook()
        if found is not self._stack[-1]:
            self._lost = f"the profile hook is {found!r}, not ours"
            if found is None:
                # Whoever took it is done: from here on we see again.
                self._stack[-1].enable()
        elif threading.getprofile() != self._hook:
            self._lost = f"the profile hook of threads is {threading.getprofile()!r}, not ours"

    def _new_profiler(self) -> Any:
        profiler = _Profiler(subcalls=False, builtins=False)
        profiler.come_back = self._come_back
        return profiler

    def _come_back(self, profiler: Any) -> None:
        """What a program does that puts the hook back as it found it, after another one was in its place."""
        self._lost = "the profile hook was replaced, and put back"
        if get_ident() == self._owner and self._stack:
            # Other captures may have begun since it was found.
            profiler = self._stack[-1]
        profiler.enable()

    def _around_setprofile(self, found: Any) -> Any:
        @functools.wraps(found)
        def setprofile(*arguments: Any, **keywords: Any) -> Any:
            # Put back as found, it would look as if no thread had been started meanwhile.
            self._lost = "the profile hook of threads was replaced"
            return found(*arguments, **keywords)

        return transparent(setprofile)

    def _enter_thread(self, frame: FrameType, _event: str, _argument: object) -> None:
        """First event of a new thread: a profiler of its own takes over."""
        profiler = self._new_profiler()
        entered = []
        running: FrameType | None = frame
        while running is not None:
            entered.append(running.f_code)
            running = running.f_back
        self._thread_profilers.setdefault(get_ident(), []).append(_ThreadProfiler(profiler, entered))
        profiler.enable()

    def _add_threads(self, codes: list[CodeType]) -> None:
        """Add what threads entered since they were started: of one that lives on, all each time."""
        if not self._thread_profilers:
            return
        alive = sys._current_frames().keys()  # noqa: SLF001  the documented way to ask for all threads
        is_outermost = len(self._stack) <= 1
        for ident in list(self._thread_profilers):
            held = self._thread_profilers[ident]
            for thread in held:
                codes.extend(thread.entered)
                codes.extend(_codes(thread.profiler))
            if is_outermost:
                # An id is given again to a later thread: of several only the latest can be alive.
                ended = held[:-1] if ident in alive else held
                self._end_threads(ended)
                del held[: len(ended)]
                if not held:
                    del self._thread_profilers[ident]

    def _end_threads(self, ended: list[_ThreadProfiler]) -> None:
        """Switch off the profilers of threads that are no more."""
        for thread in ended:
            # This takes the hook of the thread that asks, as would happen whenever such a profiler is freed.
            thread.profiler.disable()
        if ended and self._stack and _hook() is None:
            self._stack[-1].enable()


class _Profiler(Profiler):
    """A C profiler that `sys.setprofile` accepts: programs put back what `sys.getprofile` gave them."""

    come_back: Any

    def __call__(self, _frame: FrameType, _event: str, _argument: object) -> None:
        self.come_back(self)


class _ThreadProfiler:
    __slots__ = ("entered", "profiler")

    def __init__(self, profiler: Any, entered: list[CodeType]) -> None:
        self.profiler = profiler
        self.entered = entered


def _hook() -> Any:
    """What holds the profile hook of this thread: for a C profiler the profiler itself."""
    return sys.getprofile()


def _codes(profiler: Any) -> list[CodeType]:
    """Code objects of a profiler, which may belong to a thread that is running."""
    # A collection in the midst could run Python code, hand over to that thread, and let it change the table
    # that is being read.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        # Without C functions, as `builtins=False` has it, each entry is one of a code object.
        return list(map(_code_of, profiler.getstats()))
    finally:
        if was_enabled:
            gc.enable()

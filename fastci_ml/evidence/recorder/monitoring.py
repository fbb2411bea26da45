"""`sys.monitoring`, Python 3.12 and later: entries of functions, those of all threads, C++'s own included.

Code of other projects costs one call of ours for good: its event is switched off where it stands, and never
on again. Switching events on can only be done for all code at once, and each function then pays when it is
next called: for a suite of short tests that is the dearest part of recording. So the repository's functions
are not switched off, and cost a call of ours at each entry, until a capture has seen so many entries that
switching off and on again is cheaper.
"""

from __future__ import annotations

import sys
from _thread import get_ident

from fastci_ml.evidence.recorder.backend import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType
    from typing import Any

# Absent before 3.12, where `choose_backend` does not come here.
_monitoring: Any = getattr(sys, "monitoring", None)

_NAME = "fastci-ml"
# 0, 1 and 2 are where debuggers, coverage and profilers look first: those are taken last.
_TOOL_IDS = (4, 3, 5, 2, 1, 0)
# Entries of one capture before functions are switched off: about what switching them on again costs.
_MAX_ENTRIES = 16_384


def free_tool_id() -> int | None:
    """A tool id that nobody uses; None when all six are taken."""
    return next((number for number in _TOOL_IDS if _monitoring.get_tool(number) is None), None)


class MonitoringBackend:
    """Entries of functions by the interpreter's own events.

    Parameters
    ----------
    tool_id : int
        One that `free_tool_id` gave.
    """

    name = "monitoring"
    is_costly = False

    def __init__(self, tool_id: int) -> None:
        self._tool_id = tool_id
        # The callbacks hold these very objects, so that nothing is looked up in them: a list of entries up to
        # the limit, what came behind it by identity, and whether anything was switched off.
        self._seen: list[CodeType] = []
        self._beyond: dict[int, CodeType] = {}
        self._switched_off: list[bool] = []
        self._left_out: set[str] = set()
        # What each open capture saw while it was the innermost one.
        self._open: list[dict[int, CodeType]] = []

    def start(self) -> None:
        """Take the tool id."""
        try:
            _monitoring.use_tool_id(self._tool_id, _NAME)
        except ValueError as error:
            raise RuntimeError(f"sys.monitoring tool id {self._tool_id} is taken: {error}") from error
        enter, throw = _callbacks(self._seen, self._beyond, self._switched_off, self._left_out)
        events = _monitoring.events
        # A generator or coroutine that an earlier test started goes on in this one: resumed or thrown into.
        self._events = events.PY_START | events.PY_RESUME | events.PY_THROW
        _monitoring.register_callback(self._tool_id, events.PY_START, enter)
        _monitoring.register_callback(self._tool_id, events.PY_RESUME, enter)
        _monitoring.register_callback(self._tool_id, events.PY_THROW, throw)
        _monitoring.set_events(self._tool_id, self._events)

    def stop(self) -> None:
        """Give the tool id back, unless another tool has it by now."""
        if not self.lost():
            _monitoring.set_events(self._tool_id, 0)
            _monitoring.free_tool_id(self._tool_id)

    def begin_again(self) -> None:
        """Forget all captures; what was switched off is on again when the next one begins."""
        # Kept, for to let go of what they hold takes longer than the fork.
        self._of_parent, self._open = self._open, []
        self._seen.clear()
        self._beyond.clear()

    def push(self) -> None:
        """Begin a capture."""
        if self._open:
            self._open[-1].update(self._take())
        self._open.append({})
        self._switch_on()

    def pop(self, *, is_apart: bool) -> Mapping[int, CodeType]:
        """End a capture."""
        entered = self._open.pop()
        entered.update(self._take())
        if is_apart:
            self._switch_on()
        return entered

    def pause(self) -> bool:
        """Go on: it would not pay."""
        return False

    def resume(self) -> None:
        """There was no pause."""

    def leave_out(self, filename: str) -> None:
        """Switch code of this file off where it is met, for good."""
        self._left_out.add(filename)

    def take_in(self, filename: str) -> None:
        """Pass over it no longer."""
        self._left_out.discard(filename)

    def lost(self) -> str:
        """Whether another tool took the id, or switched our events off."""
        holder = _monitoring.get_tool(self._tool_id)
        if holder != _NAME:
            return f"sys.monitoring tool id {self._tool_id} belongs to {holder or 'nobody'}"
        if _monitoring.get_events(self._tool_id) != self._events:
            return f"events of sys.monitoring tool id {self._tool_id} were changed"
        return ""

    def _take(self) -> dict[int, CodeType]:
        """What was seen, each code object once; threads may add to it meanwhile, and nothing is lost."""
        seen, beyond = self._seen, self._beyond
        entered = seen[:]
        del seen[: len(entered)]
        taken = dict(zip(map(identity, entered), entered, strict=True))
        while beyond:
            key, code = beyond.popitem()
            taken[key] = code
        return taken

    def _switch_on(self) -> None:
        if self._switched_off:
            self._switched_off.clear()
            _monitoring.restart_events()


def _callbacks(
    seen: list[CodeType], beyond: dict[int, CodeType], switched_off: list[bool], left_out: set[str]
) -> tuple[Any, Any]:
    append = seen.append
    disable = _monitoring.DISABLE
    owner = get_ident()
    # Closures, not globals: they are called while the interpreter shuts down and has cleared our module.
    max_entries, thread, number = _MAX_ENTRIES, get_ident, identity

    def enter(code: CodeType, _offset: int) -> object:
        if code.co_filename in left_out:
            return disable
        if len(seen) < max_entries:
            append(code)
            return None
        beyond[number(code)] = code
        # Only the thread that begins captures: another one could do so when the next has begun.
        if thread() == owner:
            switched_off.append(True)
            return disable
        return None

    def throw(code: CodeType, _offset: int, _exception: BaseException) -> None:
        # This event cannot be switched off for one code object, but it is rare.
        beyond[number(code)] = code

    return enter, throw

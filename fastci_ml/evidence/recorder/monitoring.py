"""`sys.monitoring`, Python 3.12 and later: each function costs one call of ours in a capture, then nothing.

The event of a function's entry is switched off for that code object once it was seen, and on for all of
them when a capture begins. All threads are seen, those that C++ started as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import CodeType
from typing import Any

# Absent before 3.12, where `choose_backend` does not come here.
_monitoring: Any = getattr(sys, "monitoring", None)

_NAME = "fastci-ml"
# 0, 1 and 2 are where debuggers, coverage and profilers look first: those are taken last.
_TOOL_IDS = (4, 3, 5, 2, 1, 0)


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

    def __init__(self, tool_id: int) -> None:
        self._tool_id = tool_id
        # One list for good: the callbacks hold its `append`, so that nothing is looked up in them.
        self._seen: list[CodeType] = []
        self._outer: list[list[CodeType]] = []

    def start(self) -> None:
        """Take the tool id."""
        try:
            _monitoring.use_tool_id(self._tool_id, _NAME)
        except ValueError as error:
            raise RuntimeError(f"sys.monitoring tool id {self._tool_id} is taken: {error}") from error
        enter, throw = _callbacks(self._seen)
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

    def push(self) -> None:
        """Begin a capture."""
        self._outer.append(self._seen.copy())
        self._seen.clear()
        _monitoring.restart_events()

    def pop(self, *, is_apart: bool) -> Iterable[CodeType]:
        """End a capture."""
        seen = self._seen.copy()
        # In place: the callbacks hold this very list.
        self._seen[:] = self._outer.pop()
        if is_apart:
            _monitoring.restart_events()
        return seen

    def lost(self) -> str:
        """Whether another tool took the id, or switched our events off."""
        holder = _monitoring.get_tool(self._tool_id)
        if holder != _NAME:
            return f"sys.monitoring tool id {self._tool_id} belongs to {holder or 'nobody'}"
        if _monitoring.get_events(self._tool_id) != self._events:
            return f"events of sys.monitoring tool id {self._tool_id} were changed"
        return ""


def _callbacks(seen: list[CodeType]) -> tuple[Any, Any]:
    append = seen.append
    disable = _monitoring.DISABLE

    # Closures, not globals: they are called while the interpreter shuts down and has cleared our module.
    def enter(code: CodeType, _offset: int) -> object:
        append(code)
        return disable

    def throw(code: CodeType, _offset: int, _exception: BaseException) -> None:
        # This event cannot be switched off for one code object, but it is rare.
        append(code)

    return enter, throw

"""Frames of ours that nest as deep as the program's, without bringing its recursion limit nearer."""

from __future__ import annotations

from sys import getrecursionlimit, setrecursionlimit

# So many frames more or less are what any pytest plugin costs.
_UNNOTICED = 8


class Nesting:
    """Lifts the recursion limit by one for each frame of ours beyond a few, and lowers it in the end.

    For one thread. A program that sets the limit meanwhile has the last word.

    Examples
    --------
    >>> nesting, limit = Nesting(), getrecursionlimit()
    >>> for _ in range(10):
    ...     nesting.enter()
    >>> getrecursionlimit() - limit
    2
    >>> for _ in range(10):
    ...     nesting.leave()
    >>> getrecursionlimit() - limit
    0
    """

    def __init__(self) -> None:
        self._depth = 0
        self._found = 0
        self._lifted = 0

    def enter(self) -> None:
        """A frame of ours begins."""
        self._depth += 1
        if self._depth > _UNNOTICED:
            limit = getrecursionlimit()
            if not self._lifted:
                self._found = limit
            if limit == self._found + self._lifted:
                setrecursionlimit(limit + 1)
                self._lifted += 1

    def leave(self) -> None:
        """It ends."""
        self._depth -= 1
        if self._lifted and self._depth <= _UNNOTICED:
            # Only now: while frames unwind near the limit, the interpreter refuses to lower it.
            if getrecursionlimit() == self._found + self._lifted:
                setrecursionlimit(self._found)
            self._lifted = 0

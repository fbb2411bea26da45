"""`sys.setprofile` with a hook in Python: for when every id of `sys.monitoring` is taken.

Slow, and not needed unless six other tools record at once.
"""

from __future__ import annotations

import sys
import threading

from fastci_ml.evidence.recorder.backend import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType, FrameType


class HookBackend:
    """Entries of functions of this thread and of threads started later."""

    name = "profile"
    is_costly = False

    def __init__(self) -> None:
        self._frames: dict[int, CodeType] = {}
        self._outer: list[dict[int, CodeType]] = []
        self._left_out: set[str] = set()

    def start(self) -> None:
        """Take the profile hooks."""
        if sys.getprofile() is not None:
            raise RuntimeError(f"the profile hook is taken by {sys.getprofile()!r}")
        frames = self._frames
        left_out, number = self._left_out, identity

        def hook(frame: FrameType, event: str, _argument: object) -> None:
            if event == "call" and frame.f_code.co_filename not in left_out:
                # By identity: equal code objects of two files compare equal.
                frames[number(frame.f_code)] = frame.f_code

        self._hook = hook
        sys.setprofile(hook)
        threading.setprofile(hook)

    def stop(self) -> None:
        """Give the hooks back, where they are still ours."""
        if sys.getprofile() is self._hook:
            sys.setprofile(None)
        if threading.getprofile() is self._hook:
            threading.setprofile(None)

    def begin_again(self) -> None:
        """Forget all captures."""
        self._frames.clear()
        self._outer.clear()

    def push(self) -> None:
        """Begin a capture."""
        self._outer.append(dict(self._frames))
        self._frames.clear()

    def pop(self, *, is_apart: bool) -> Mapping[int, CodeType]:  # noqa: ARG002  the outer one always sees again
        """End a capture; the hook goes on seeing what was seen before."""
        entered = dict(self._frames)
        outer = self._outer.pop()
        self._frames.clear()
        self._frames.update(outer)
        return entered

    def pause(self) -> bool:
        """Go on: it would not pay."""
        return False

    def resume(self) -> None:
        """There was no pause."""

    def leave_out(self, filename: str) -> None:
        """Pass over code of this file."""
        self._left_out.add(filename)

    def take_in(self, filename: str) -> None:
        """Pass over it no longer."""
        self._left_out.discard(filename)

    def lost(self) -> str:
        """Whether the hook was taken; once it is free it is ours again."""
        found = sys.getprofile()
        if found is self._hook:
            return ""
        if found is None:
            sys.setprofile(self._hook)
        return f"the profile hook is {found!r}, not ours"

"""What tells which functions ran: one small interface, and the choice between its implementations."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import CodeType
from typing import Protocol

# A number of its own for each living object, as `id` gives: but `id` tells every audit hook, and ours is one.
identity = object.__hash__


class Backend(Protocol):
    """A stack of captures of code objects, driven by one thread.

    Attributes
    ----------
    name : str
        As `Provenance.backend` has it.
    """

    name: str

    def start(self) -> None:
        """Take the interpreter's hook; raises RuntimeError where another tool has it."""

    def stop(self) -> None:
        """Give the hook back."""

    def push(self) -> None:
        """Begin a capture; until its `pop`, what is entered belongs to it alone."""

    def pop(self, *, is_apart: bool) -> Mapping[int, CodeType]:
        """End the latest capture.

        Parameters
        ----------
        is_apart : bool
            Whether the capture around it must see again what ran in this one. If not, the caller keeps in
            mind that the outer one stands on this one.

        Returns
        -------
        mapping of int to CodeType
            By identity, every code object entered since `push`, those of all threads included, files apart
            that were left out; more than that is allowed, less is not.
        """

    def leave_out(self, filename: str) -> None:
        """Say that code of a file, as `co_filename` names it, is of no interest."""

    def take_in(self, filename: str) -> None:
        """Take that back, for code objects of that file that have never run."""

    def lost(self) -> str:
        """How the hook was lost since this was last asked, for a person; empty when it was not."""


def choose_backend() -> Backend:
    """The best back end that this interpreter has and nobody else uses; not started yet.

    Raises
    ------
    RuntimeError
        If other tools hold every hook there is.
    """
    if sys.version_info >= (3, 12):
        from fastci_ml.evidence.recorder.monitoring import MonitoringBackend, free_tool_id

        tool_id = free_tool_id()
        if tool_id is not None:
            return MonitoringBackend(tool_id)
        from fastci_ml.evidence.recorder.profile_hook import HookBackend

        return HookBackend()
    from fastci_ml.evidence.recorder.profile import ProfileBackend

    return ProfileBackend()

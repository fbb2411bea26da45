"""What a collector is made of: a back end that tells which functions ran, and watches for all else.

For readers and type checkers; no process that records loads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Protocol

from fastci_ml.evidence.recorder.captures import OpenCapture


class Backend(Protocol):
    """A stack of captures of code objects, driven by one thread.

    Attributes
    ----------
    name : str
        As `Provenance.backend` has it.
    is_costly : bool
        Whether code of other projects costs at each call, so that looking away from it pays.
    """

    name: str
    is_costly: bool

    def start(self) -> None:
        """Take the interpreter's hook; raises RuntimeError where another tool has it."""

    def stop(self) -> None:
        """Give the hook back."""

    def begin_again(self) -> None:
        """Forget all captures: this process is a fork of the one that began them."""

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

    def pause(self) -> bool:
        """See nothing of this thread until `resume`; whether that was possible."""

    def resume(self) -> None:
        """See again."""

    def leave_out(self, filename: str) -> None:
        """Say that code of a file, as `co_filename` names it, is of no interest."""

    def take_in(self, filename: str) -> None:
        """Take that back, for code objects of that file that have never run."""

    def lost(self) -> str:
        """How the hook was lost since this was last asked, for a person; empty when it was not."""


class Watch(Protocol):
    """Something that books what the back end does not see."""

    def install(self) -> None:
        """Begin."""

    def remove(self) -> None:
        """End, and leave everything as it was found."""

    def begin_again(self) -> None:
        """Forget what was of the process that this one is a fork of."""

    def opening(self) -> None:
        """Before a capture opens: what is not booked yet belongs to the one around it."""

    def closing(self, capture: OpenCapture) -> None:
        """Add to a capture that ends; its codes are there already."""

"""What tells which functions ran: the choice between the hooks that this interpreter has."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fastci_ml.evidence.recorder.interfaces import Backend

# A number of its own for each living object, as `id` gives: but `id` tells every audit hook, and ours is one.
identity = object.__hash__


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

"""Names of processes that no other ever has on a machine: id, and start; see `Capture.children`."""

from __future__ import annotations

# Bound early: a test may put something in its place.
_open = open


def name_of(pid: int) -> str:
    """Name of a process, see `Capture.children`; empty where the system does not tell its start.

    Examples
    --------
    >>> import os
    >>> name_of(os.getpid()).split()[0] == str(os.getpid())
    True
    """
    found = _state_and_start(pid)
    return "" if found is None else f"{pid} {found[1]}"


def is_running(name: str) -> bool:
    """Whether a process of that name is there, and not only waits to be asked how it ended."""
    pid, _, start = name.partition(" ")
    found = _state_and_start(int(pid)) if pid.isdigit() else None
    return found is not None and found[1] == start and found[0] not in "ZX"


def _state_and_start(pid: int) -> tuple[str, str] | None:
    try:
        with _open(f"/proc/{pid}/stat", "rb") as stream:
            # Behind the command, which may hold anything.
            fields = stream.read().rpartition(b")")[2].split()
        return fields[0].decode("ascii"), fields[19].decode("ascii")
    except (OSError, IndexError):
        return None

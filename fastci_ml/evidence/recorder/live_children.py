"""Children of this process that are alive, and may run code of the repository for whoever sends them work."""

from __future__ import annotations

import os
from os import fsdecode, listdir, readlink, waitid

from fastci_ml.evidence.recorder.programs import may_run_python, summary_of

# Bound early: a test may put something else in their place.
_open = open
_WHETHER_ANY = os.WEXITED | os.WNOHANG | os.WNOWAIT
# Helpers of the standard library and of torch's compiler: they run nothing of a repository.
_HELPERS = (b"from multiprocessing.resource_tracker import ", b"torch/_inductor/compile_worker")


def live_children() -> dict[str, str]:
    """What each child is that may run Python, by a name that no later process has.

    Where the system does not list a process's children, one entry stands for whatever there is.
    """
    try:
        numbers = {
            number
            for thread in listdir("/proc/self/task")
            for number in _read(f"/proc/self/task/{thread}/children").split()
        }
    except OSError:
        return {"": "a process"} if _has_children() else {}
    found = {}
    for number in map(fsdecode, numbers):
        try:
            # Behind the name, which may hold anything: the state, and as the 20th the time of its start.
            facts = _read(f"/proc/{number}/stat").rpartition(b")")[2].split()
            command = _read(f"/proc/{number}/cmdline")
            program = readlink(f"/proc/{number}/exe")
        except OSError:
            # It has ended by now, or only waits to be asked how.
            continue
        words = [fsdecode(word) for word in command.split(b"\0")[:-1]]
        is_helper = any(helper in command for helper in _HELPERS)
        if facts[0] not in (b"Z", b"X") and not is_helper and may_run_python(program, words):
            found[f"{number} {fsdecode(facts[19])}"] = summary_of(program, words)
    return found


def _has_children() -> bool:
    try:
        waitid(os.P_ALL, 0, _WHETHER_ANY)
    except ChildProcessError:
        return False
    return True


def _read(path: str) -> bytes:
    with _open(path, "rb") as stream:
        return stream.read()

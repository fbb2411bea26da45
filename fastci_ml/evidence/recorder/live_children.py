"""Processes that are alive, and may run code of the repository for whoever sends them work.

By two ways, for neither sees all: the children of this process, as the system lists them; and processes
that were left behind by one of them (a server that a shell started, and ended), by the environment that
they were started with.
"""

from __future__ import annotations

import os
from os import environ, fsdecode, fsencode, getpid, getppid, getsid, listdir, readlink

from fastci_ml.evidence.recorder.programs import is_helper, may_run_python, summary_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Set

# Bound early: a test may put something else in their place.
_open = open
# Absent on some systems.
_waitid = getattr(os, "waitid", None)
_UNKNOWN = "a process"
# What execnet has a worker run at first.
_WORKER = b"exec(eval(sys.stdin.readline()))"
# How pytest says which test runs, to whatever the test starts.
_TEST = "PYTEST_CURRENT_TEST"


def live_children() -> dict[str, str]:
    """What each child is that may run Python, by a name that no later process has.

    Where the system does not list a process's children, one entry stands for whatever there is.
    """
    try:
        numbers = {
            fsdecode(number) for thread in listdir("/proc/self/task") for number in _children_of(thread)
        }
    except OSError:
        return {"": _UNKNOWN} if _has_children() else {}
    return dict(_described(numbers))


def live_siblings() -> dict[str, str]:
    """The same of the other children of this process's parent, workers of pytest-xdist apart.

    The controller of pytest-xdist records nothing, but what it starts may serve the tests of its workers.
    """
    parent = getppid()
    try:
        threads = listdir(f"/proc/{parent}/task")
        numbers = {
            fsdecode(number)
            for thread in threads
            for number in _read(f"/proc/{parent}/task/{thread}/children").split()
        }
    except OSError:
        # The controller has ended, or the system does not list its children.
        return {}
    numbers.discard(str(getpid()))
    return dict(_described({number for number in numbers if not _is_worker(number)}))


def _is_worker(number: str) -> bool:
    try:
        return _WORKER in _read(f"/proc/{number}/cmdline")
    except OSError:
        return True


def current_test() -> bytes:
    """What a process that is started now has in its environment; empty outside of tests."""
    test = environ.get(_TEST)
    return b"" if test is None else fsencode(f"{_TEST}={test}")


def left_behind(tests: Set[bytes]) -> dict[str, str]:
    """The same of processes that a test started, wherever they hang by now; empty without a list of all.

    Parameters
    ----------
    tests : set of bytes
        What `current_test` gave when they may have been started.
    """
    try:
        session = getsid(0)
        numbers = {name for name in listdir("/proc") if name.isdigit()} - {str(getpid()), str(getppid())}
        own = _facts("self")
    except OSError:
        return {}
    found = set()
    for number in numbers:
        try:
            facts = _facts(number)
            # A process of another session, or from before us, is none of ours.
            may_be_ours = int(facts[3]) == session and int(facts[19]) >= int(own[19])
            if may_be_ours and not tests.isdisjoint(_read(f"/proc/{number}/environ").split(b"\0")):
                found.add(number)
        except OSError:
            # It has ended, or is another user's.
            continue
    return dict(_described(found))


def _described(numbers: set[str]) -> Iterator[tuple[str, str]]:
    for number in numbers:
        try:
            facts = _facts(number)
        except OSError:
            continue
        if facts[0] in (b"Z", b"X"):
            # It has ended, and only waits to be asked how.
            continue
        key = f"{number} {fsdecode(facts[19])}"
        try:
            command = _read(f"/proc/{number}/cmdline")
            program = readlink(f"/proc/{number}/exe")
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            # Another user's, or one that lets nobody look.
            yield key, _UNKNOWN
            continue
        words = [fsdecode(word) for word in command.split(b"\0")[:-1]]
        if not is_helper(words) and may_run_python(program, words):
            yield key, summary_of(program, words)


def _children_of(thread: str) -> list[bytes]:
    try:
        return _read(f"/proc/self/task/{thread}/children").split()
    except (FileNotFoundError, ProcessLookupError):
        # The thread has ended; where threads have no such file, the main one has none either.
        if thread == str(getpid()):
            raise
        return []


def _facts(number: str) -> list[bytes]:
    # Behind the name, which may hold anything: the state first, the 4th the session, the 20th the start.
    return _read(f"/proc/{number}/stat").rpartition(b")")[2].split()


def _has_children() -> bool:
    if _waitid is None:
        return True
    try:
        _waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _read(path: str) -> bytes:
    with _open(path, "rb") as stream:
        return stream.read()

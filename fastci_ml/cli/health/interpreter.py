"""The interpreter: its version, what would record here, and who holds its hooks."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import Any

from fastci_ml.cli.health.finding import Finding, ok, problem, warning
from fastci_ml.evidence.recorder.backend import choose_backend
from fastci_ml.evidence.recorder.family import VARIABLE

_TOPIC = "interpreter"
_OLDEST = (3, 11)
_MONITORING_SINCE = (3, 12)
# Ids of sys.monitoring that have a purpose by convention; the others are free for all.
_PURPOSES = {0: "debuggers", 1: "coverage", 2: "profilers", 5: "optimizers"}
_N_TOOL_IDS = 6
_CHILDREN = "children"
_CHILD_MODULE = "fastci_ml.evidence.recorder.child_start"
_HOOK_FILE = "fastci_ml_children.pth"
_LONGEST_S = 60.0


def look_at_interpreter() -> Iterable[Finding]:
    """Findings about the interpreter of this process."""
    version = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    if sys.version_info < _OLDEST:
        yield problem(_TOPIC, "python", f"{version}: older than 3.11", "python3.12 -m venv .venv")
    else:
        yield ok(_TOPIC, "python", version)
    yield _recorder()
    yield _hook_of_children()
    yield from _hooks()


def _recorder() -> Finding:
    """What records here: tried, on a function of our own."""
    try:
        backend = choose_backend()
        backend.start()
    except RuntimeError as error:
        return problem(
            _TOPIC,
            "recorder",
            f"nothing can record here: {error}",
            "run without the other tool, then: fastci-ml doctor",
        )
    try:
        backend.push()
        _probe()
        has_seen = _probe.__code__ in backend.pop(is_apart=False).values()
    finally:
        backend.stop()
    if not has_seen:
        return problem(
            _TOPIC,
            "recorder",
            f"{backend.name}: did not see a function that ran",
            "fastci-ml doctor -v, and report it",
        )
    return ok(_TOPIC, "recorder", f"{backend.name}: {_reason(backend.name)}")


def _hook_of_children() -> Finding:
    """Whether processes that tests start would record: tried, with a variable that means nothing."""
    code = f"import sys; sys.exit({_CHILD_MODULE!r} not in sys.modules)"
    environ = {**os.environ, VARIABLE: "doctor"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], env=environ, capture_output=True, check=False, timeout=_LONGEST_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return warning(_TOPIC, _CHILDREN, f"could not be tried: {error}", "fastci-ml doctor -v")
    if done.returncode == 0:
        return ok(_TOPIC, _CHILDREN, "the start-up hook is installed: processes that tests start record")
    return warning(
        _TOPIC,
        _CHILDREN,
        f"no start-up hook ({_HOOK_FILE}) in {sys.executable}: tests that start processes are incomplete",
        "pip install --force-reinstall --no-deps fastci-ml, into the environment itself, not by --target",
    )


def _probe() -> None:
    """Something to be seen."""


def _reason(name: str) -> str:
    if name == "monitoring":
        return "sys.monitoring is there, and an id of it is free"
    if sys.version_info >= _MONITORING_SINCE:
        return "every id of sys.monitoring is taken, so the slower profile hook is used"
    return "this release of Python has no sys.monitoring; its profile hook is free"


def _hooks() -> Iterable[Finding]:
    # Absent before 3.12.
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is not None:
        for number in range(_N_TOOL_IDS):
            holder = monitoring.get_tool(number)
            purpose = f", meant for {_PURPOSES[number]}" if number in _PURPOSES else ""
            yield ok(
                _TOPIC, f"sys.monitoring id {number}", (f"held by {holder}" if holder else "free") + purpose
            )
        return
    for name, holder in (
        ("profile hook", sys.getprofile()),
        ("profile hook of threads", threading.getprofile()),
    ):
        if holder is None:
            yield ok(_TOPIC, name, "free")
        else:
            yield warning(_TOPIC, name, f"held by {holder!r}", "run the tests without the profiler")

"""Recording of a process that a recorded one started; called by the start-up hook, before the program begins.

What is loaded here is kept to a few milliseconds: a suite may start hundreds of children.
"""

from __future__ import annotations

from time import process_time

_BEGAN_S = process_time()

import sys  # noqa: E402  the clock comes first
from os import environ, getpid  # noqa: E402
from time import time_ns  # noqa: E402

from fastci_ml.evidence.recorder.family import (  # noqa: E402
    Family,
    current_test,
    own_command,
    take_variable,
)
from fastci_ml.evidence.recorder.process_names import name_of  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fastci_ml.evidence.recorder.collector import Collector

# Helpers of the standard library that run nothing of a repository.
_HELPER = "-c from multiprocessing.resource_tracker import main;main("
_recorded: list[Collector] = []


def is_recorded() -> bool:
    """Whether this process records itself as a child."""
    return bool(_recorded) and _recorded[0].is_active


def begin() -> None:
    """Record this process, once; where that fails, whoever started it is incomplete."""
    if _recorded:
        # A start-up hook runs twice where the folder of packages has two names.
        return
    try:
        _begin()
    except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS: the program is to run
        _tell(error)


def _begin() -> None:
    command = own_command()
    family = Family.from_text(take_variable())
    if _HELPER in command or not family.takes(command):
        return
    from fastci_ml.evidence.recorder.backend import choose_backend
    from fastci_ml.evidence.recorder.collector import Collector
    from fastci_ml.evidence.recorder.process_facts import say_process
    from fastci_ml.evidence.recorder.project_files import ProjectFiles
    from fastci_ml.evidence.recorder.watches import make_watches

    started_ns = time_ns()
    backend = choose_backend()
    backend.start()
    try:
        writer = family.new_writer(backend.name, name_of(getpid()))
    except OSError:
        backend.stop()
        raise
    files = ProjectFiles(family.top, family.outside, started_ns, writer.sources)
    collector = Collector(backend, files, writer)
    collector.is_child = True
    collector.session_label = current_test()
    collector.watches = make_watches(collector, family)
    collector.before_end.append(lambda: say_process(collector))
    collector.start()
    _recorded.append(collector)
    collector.recorder_s = process_time() - _BEGAN_S


def _tell(error: Exception) -> None:
    """Say it where only who looks for it finds it: what a test's child prints is compared."""
    if environ.get("FASTCI_DEBUG"):
        sys.stderr.write(f"fastci-ml: this process is not recorded: {type(error).__name__}: {error}\n")

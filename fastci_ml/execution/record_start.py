"""Starting the recorder of a pytest process, before its conftest files are imported."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fastci_ml.errors import FastCIError
from fastci_ml.evidence.recorder.child_start import is_recorded
from fastci_ml.evidence.recorder.session import start_recording
from fastci_ml.execution.record_plugin import GPU_PROBLEM, RecordPlugin
from fastci_ml.settings import find_root, load_settings
from fastci_ml.sources.projects import repository_top

_LOG = logging.getLogger(__name__)
NAME = "fastci-record"


class NotRecording:
    """Says why a session that should be recorded is not.

    Parameters
    ----------
    reason : str
        For a person.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def pytest_report_header(self) -> str:
        """Say it at the start."""
        return f"fastci: {self._reason}"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say it at the end, where it is read."""
        terminalreporter.section("fastci", sep="-")
        terminalreporter.line(self._reason)


class WorkersRecord(NotRecording):
    """Speaks for the workers of pytest-xdist, which record, and have no terminal."""

    def __init__(self) -> None:
        super().__init__("the workers record, one bundle each")
        # A dict for its order: workers of one machine say the same.
        self._told: dict[str, None] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Keep what a worker wants to be said; one that died said nothing."""
        text = (getattr(node, "workeroutput", None) or {}).get(GPU_PROBLEM)
        if text is not None:
            self._told[text] = None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say it, once."""
        super().pytest_terminal_summary(terminalreporter)
        for text in self._told:
            terminalreporter.line(text)


def start_recorder(config: pytest.Config, folder: str | None) -> None:
    """Begin to record this process; where that is not possible, say so and let the tests run.

    Parameters
    ----------
    config : pytest.Config
        Of the session, at its very start.
    folder : str or None
        Folder of bundles; None for that of the settings.
    """
    if config.pluginmanager.has_plugin(NAME) or is_recorded():
        # The second: a test or a command that is recorded runs pytest, all of which is its doing.
        return
    if _is_controller(config):
        config.pluginmanager.register(WorkersRecord(), NAME)
        return
    try:
        plugin = _start(config, folder)
    except (FastCIError, OSError) as error:
        config.pluginmanager.register(NotRecording(f"nothing is recorded: {error}"), NAME)
        return
    except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS: the tests run
        _LOG.exception("the recorder did not start")
        reason = f"nothing is recorded, by a bug of ours: {type(error).__name__}: {error}"
        config.pluginmanager.register(NotRecording(reason), NAME)
        return
    config.pluginmanager.register(plugin, NAME)
    # Runs when all else was unconfigured, also where the session never got so far as to begin.
    config.add_cleanup(plugin.finish)


def _start(config: pytest.Config, folder: str | None) -> RecordPlugin:
    is_worker = _is_worker()
    rootdir = config.rootpath.resolve()
    settings = load_settings(find_root(rootdir))
    top = repository_top(settings.root)
    bundles_dir = Path(folder).absolute() if folder else settings.bundles_dir
    project = rootdir.relative_to(top).as_posix() if rootdir.is_relative_to(top) else "."
    collector = start_recording(
        settings,
        top,
        bundles_dir,
        project="" if project == "." else project,
        session_id=os.environ.get("PYTEST_XDIST_TESTRUNUID", "") if is_worker else "",
        worker=os.environ.get("PYTEST_XDIST_WORKER", "") if is_worker else "",
    )
    is_reversed = bool(config.known_args_namespace.fastci_reverse)
    return RecordPlugin(collector, "" if project == "." else project, is_reversed=is_reversed)


def _is_controller(config: pytest.Config) -> bool:
    """Whether this process hands the tests to workers of pytest-xdist, and runs none itself."""
    if _is_worker():
        return False
    given = config.known_args_namespace
    n_workers = getattr(given, "numprocesses", None)
    return bool(n_workers or getattr(given, "tx", None)) or getattr(given, "dist", "no") != "no"


def _is_worker() -> bool:
    """Whether this process is a worker of pytest-xdist, whose variables what it starts has too."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  the documented way to ask who calls
    while frame is not None:
        # What execnet calls the code that a worker runs.
        if frame.f_globals.get("__name__") == "__channelexec__":
            return True
        frame = frame.f_back
    return False

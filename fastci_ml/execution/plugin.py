"""pytest plugin, entry point `fastci`: run the tests of a plan, in its order; record what tests touch.

This module is loaded by every pytest run of the environment, so it holds the options alone; the work is
loaded when one of them is given.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

# Names the folder of bundles: set by `fastci-ml record`, for the command may be a script that calls pytest.
RECORD_VARIABLE = "FASTCI_RECORD"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each of which begins with ``--fastci-``."""
    group = parser.getgroup("fastci", "running a plan, recording evidence (fastci-ml)")
    group.addoption(
        "--fastci-plan",
        metavar="PATH",
        help="run what this plan.json says, in its order; if it does not hold here, run everything",
    )
    group.addoption(
        "--fastci-shadow",
        action="store_true",
        help="run everything in the usual order, and report what the plan would have left out and missed",
    )
    group.addoption(
        "--fastci-finished",
        metavar="PATH",
        help="write the exit code here when the session has come to its end (`fastci-ml run` asks for it)",
    )
    group.addoption(
        "--fastci-record",
        action="store_true",
        help="record which functions, files and fixtures each test touches",
    )
    group.addoption(
        "--fastci-bundles",
        metavar="DIR",
        help="record into this folder (default: .fastci/bundles)",
    )
    group.addoption(
        "--fastci-reverse",
        action="store_true",
        help="with recording: run the tests from last to first, to see what evidence owed to their order",
    )


# Before the conftest files are imported: what runs while they are is evidence too.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Begin to record where it is asked for."""
    given = early_config.known_args_namespace
    folder = given.fastci_bundles or os.environ.get(RECORD_VARIABLE)
    if given.fastci_record or folder:
        from fastci_ml.execution.record_start import start_recorder

        start_recorder(early_config, folder)
    return (yield)


# The outermost wrapper: what it sees is what pytest says in the end, also of --help and the like.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int | None, int | None]:
    """Leave a sign that the session came to its end."""
    path = config.getoption("fastci_finished")
    if path is None or hasattr(config, "workerinput"):
        return (yield)
    from fastci_ml.execution.finish_mark import FinishMark

    mark = FinishMark(Path(path))
    config.pluginmanager.register(mark, "fastci-finish-mark")
    code = yield
    mark.write(int(code or 0))
    return code


def pytest_configure(config: pytest.Config) -> None:
    """Load the rest where a plan is given."""
    path = config.getoption("fastci_plan")
    if path is None:
        if config.getoption("fastci_shadow"):
            raise pytest.UsageError("--fastci-shadow needs a plan: --fastci-plan PATH")
        return
    from fastci_ml.execution.plan_plugin import PlanPlugin

    is_shadow = bool(config.getoption("fastci_shadow"))
    config.pluginmanager.register(PlanPlugin(config, path, is_shadow=is_shadow), "fastci-plan")

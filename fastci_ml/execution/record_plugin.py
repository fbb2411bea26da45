"""The pytest hooks that record. Standard library and pytest only.

Each test, each set-up of a shared fixture and each collection of a file is a capture of its own; a test
stands on those it used. Whatever of ours fails, the tests go on as they would have without us, and what is
recorded says that it is incomplete.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterable
from threading import enumerate as running_threads
from time import time_ns
from typing import Any
from weakref import WeakSet

import pytest

from fastci_ml.evidence.recorder.captures import OpenCapture
from fastci_ml.evidence.recorder.collector import Collector
from fastci_ml.evidence.recorder.native import native_readers
from fastci_ml.execution.resources import ResourceMeter
from fastci_ml.records.evidence import RunFacts
from fastci_ml.records.evidence_kinds import CaptureKind
from fastci_ml.records.gpu import GpuProblem
from fastci_ml.records.ids import with_project

_LOG = logging.getLogger(__name__)
# Key of pytest-xdist's `workeroutput`.
GPU_PROBLEM = "fastci_gpu_problem"


class RecordPlugin:
    """Records one pytest process.

    Parameters
    ----------
    collector : Collector
        Started.
    project : str
        Folder of pytest's root from the top of the repository; empty for the top itself.
    is_reversed : bool
        Run the tests from last to first.
    """

    def __init__(self, collector: Collector, project: str, *, is_reversed: bool = False) -> None:
        self.collector = collector
        self._is_reversed = is_reversed
        self._project = project
        self._collected: dict[str, int] = {}
        # Captures of fixtures of a wider scope that are set up now, by the identity of their definition.
        self._fixtures: dict[int, int] = {}
        self._run = _Run()
        self._meter = ResourceMeter()
        self.n_tests = 0

    def finish(self) -> None:
        """End the recording, once."""
        self.collector.guard(self._meter.finish)
        if self.collector.is_active:
            try:
                self.collector.finish()
            except Exception:  # noqa: BLE001  the border named in CONVENTIONS
                # Without an end mark no record of it counts as complete.
                _LOG.exception("%s: the bundle could not be completed", self.collector.writer.path)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Look for GPUs; in every worker of pytest-xdist, as each is a session of its own."""
        if not session.config.option.collectonly:
            self.collector.guard(self._meter.start)

    def pytest_report_header(self) -> list[str]:
        """Say that the session is recorded, and what is not."""
        lines = [f"fastci: recording by {self.collector.backend.name} to {self.collector.writer.path}"]
        if self._meter.first_problem is not None:
            lines.append(f"fastci: {no_gpu_figures(self._meter.first_problem)}")
        return lines

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker of pytest-xdist has no terminal: let the controller say why GPU figures are missing."""
        problem = self._meter.first_problem or self._meter.later_problem
        output = getattr(session.config, "workeroutput", None)
        if problem is not None and output is not None:
            output[GPU_PROBLEM] = no_gpu_figures(problem)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what the driver said after the header was printed."""
        problem = self._meter.later_problem
        if problem is not None:
            terminalreporter.section("fastci", sep="-")
            terminalreporter.line(no_gpu_figures(problem))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """What runs while one file, class or folder is collected."""
        node_id = with_project(collector.nodeid, self._project)
        capture = self._push(CaptureKind.COLLECTOR, node_id)
        try:
            return (yield)
        finally:
            if capture is not None:
                number = self._pop(capture)
                if number is not None:
                    self._collected[collector.nodeid] = number

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Turn the order around where that is asked for; tests that share a fixture stay together."""
        if self._is_reversed:
            items.reverse()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """The set-up of a fixture that several tests may share."""
        if fixturedef.scope == "function":
            return (yield)
        # Its definition may be a plugin's; the name is enough for a person.
        label = f"{with_project(fixturedef.baseid, self._project)}::{fixturedef.argname}"
        capture = self._push(CaptureKind.FIXTURE, label)
        try:
            return (yield)
        finally:
            if capture is not None:
                # Others that were set up before, by whoever came first, and that this one asked for.
                self.collector.guard(self._add_fixtures, capture, request)
                number = self._pop(capture)
                if number is not None:
                    self._fixtures[id(fixturedef)] = number

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Forget a fixture that was torn down."""
        self._fixtures.pop(id(fixturedef), None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """One test, with reruns if there are any."""
        # Bound early: a fixture of a wider scope may have stopped the clock.
        started_us = time_ns() // 1000
        threads = WeakSet(running_threads())
        self._run = _Run()
        capture = self._push(CaptureKind.TEST, with_project(item.nodeid, self._project))
        if capture is not None:
            self.collector.guard(self._meter.begin)
        try:
            return (yield)
        finally:
            if capture is not None:
                self.collector.guard(self._end_test, item, capture, started_us, threads)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Before anything is torn down it is still known which fixtures the test used."""
        if self._may_record:
            self.collector.guard(self._add_item_fixtures, item)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Outcome and time of each phase, as the other plugins left it."""
        report = yield
        self.collector.guard(self._run.add, report)
        return report

    @property
    def _may_record(self) -> bool:
        # The test may have forked: what goes on in the child is all the doing of that test.
        return self.collector.may_push and not self.collector.is_child

    def _push(self, kind: CaptureKind, label: str) -> OpenCapture | None:
        if not self._may_record:
            return None
        try:
            return self.collector.push(kind, label)
        except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
            self.collector.failed(error)
            return None

    def _pop(self, capture: OpenCapture) -> int | None:
        if not self._may_record:
            return None
        try:
            return self.collector.pop(capture)
        except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
            self.collector.failed(error)
            return None

    def _end_test(
        self, item: pytest.Item, capture: OpenCapture, started_us: int, threads: WeakSet[threading.Thread]
    ) -> None:
        if not self._may_record:
            return
        # First: what closing the capture takes is not the test's.
        self.collector.guard(self._meter.end)
        capture.uses.update(
            number for node in item.listchain() if (number := self._collected.get(node.nodeid)) is not None
        )
        leaked = [thread.name for thread in running_threads() if thread not in threads]
        number = self.collector.pop(capture)
        self.n_tests += 1
        facts = RunFacts(
            outcome=self._run.outcome,
            started_us=started_us,
            setup_s=self._run.seconds.get("setup"),
            call_s=self._run.seconds.get("call"),
            teardown_s=self._run.seconds.get("teardown"),
            is_doctest=type(item).__module__ == "_pytest.doctest",
            native_readers=native_readers(),
            notes=tuple(f"thread lives on: {name}" for name in leaked),
            **self._meter.took._asdict(),
        )
        self.collector.add_run(number, facts)

    def _add_item_fixtures(self, item: pytest.Item) -> None:
        request = getattr(item, "_request", None)
        capture = self.collector.top
        if request:
            self._add_fixtures(capture, request)
        elif getattr(item, "fixturenames", None):
            # pytest's own book cannot be asked: all that is set up now may have been used.
            capture.uses.update(self._fixtures.values())

    def _add_fixtures(self, capture: OpenCapture, request: Any) -> None:
        used: Iterable[Any] | None
        try:
            # The only place that knows fixtures that were asked for by name while the test ran.
            used = request._fixture_defs.values()  # noqa: SLF001
        except AttributeError:
            used = None
        if used is None:
            capture.uses.update(self._fixtures.values())
            return
        for fixturedef in used:
            number = self._fixtures.get(id(fixturedef))
            if number is not None:
                capture.uses.add(number)


def no_gpu_figures(problem: GpuProblem) -> str:
    """What a problem means for the records, in one line."""
    return f"{problem}; what tests take of GPUs stays empty"


class _Run:
    """Outcome and times of one test from the reports of its phases; those of a rerun replace the earlier."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._words: dict[str, str] = {}

    def add(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            self.seconds.clear()
            self._words.clear()
        self.seconds[report.when] = report.duration
        self._words[report.when] = _word(report)

    @property
    def outcome(self) -> str:
        """The worst of the phases; ``unknown`` where not even the call was reached."""
        if "error" in (self._words.get("setup"), self._words.get("teardown")):
            return "error"
        return self._words.get("call") or self._words.get("setup", "unknown").replace("passed", "unknown")


def _word(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xpassed" if report.passed else "xfailed"
    if report.failed:
        return "failed" if report.when == "call" else "error"
    return str(report.outcome)

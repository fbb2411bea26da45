"""Which test a child works for, where it is told: workers that live on serve one test after the other."""

from __future__ import annotations

from os import fsdecode
from time import monotonic, time_ns

from fastci_ml.evidence.recorder.audit import add_handlers, remove_handlers
from fastci_ml.evidence.recorder.family import test_of
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fastci_ml.evidence.recorder.captures import OpenCapture
    from fastci_ml.evidence.recorder.collector import Collector

_VARIABLE = b"PYTEST_CURRENT_TEST"


class TaskFacts:
    """What `RunFacts` is, for a task; its outcome is for the test to say."""

    __slots__ = ("call_s", "outcome", "started_us")

    def __init__(self, started_us: int, call_s: float) -> None:
        self.outcome = "unknown"
        self.started_us = started_us
        self.call_s = call_s


class TaskWatch:
    """Makes what a child does between setting ``PYTEST_CURRENT_TEST`` and deleting it a capture of that test.

    pytest sets that variable for whatever a test starts. A worker that serves many tests sets it for each
    task, or what it does counts for all tests that run beside it.

    Parameters
    ----------
    collector : Collector
        Of a child.
    project : str
        Folder that pytest's ids start at, from the top of the repository; empty for the top itself.
    """

    def __init__(self, collector: Collector, project: str) -> None:
        self._collector = collector
        self._before = f"{project}/" if project else ""
        self._task: OpenCapture | None = None
        self._started_us = 0
        self._started_s = 0.0
        self._handlers = {"os.putenv": self._on_putenv, "os.unsetenv": self._on_unsetenv}

    def install(self) -> None:
        """Begin."""
        add_handlers(self._handlers)

    def remove(self) -> None:
        """End."""
        remove_handlers(self._handlers)

    def begin_again(self) -> None:
        """A fork begins outside of tasks: whoever forked it names it."""
        self._task = None

    def opening(self) -> None:
        """Nothing is kept back."""

    def closing(self, capture: OpenCapture) -> None:
        """Nothing is booked."""

    def _on_putenv(self, arguments: tuple[Any, ...]) -> None:
        name, value = arguments
        if name == _VARIABLE and self._collector.is_child and self._collector.is_active:
            self._collector.guard(self._begin, self._before + test_of(fsdecode(value)))

    def _on_unsetenv(self, arguments: tuple[Any, ...]) -> None:
        if arguments[0] == _VARIABLE and self._collector.is_child and self._collector.is_active:
            self._collector.guard(self._end)

    def _begin(self, test: str) -> None:
        if self._task is not None and self._task.label == test:
            return
        self._end()
        if not self._is_between():
            return
        # What was done so far is known now, whatever becomes of the process.
        self._collector.checkpoint()
        self._started_us, self._started_s = time_ns() // 1000, monotonic()
        self._task = self._collector.push(CaptureKind.TEST, test)

    def _end(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        if not self._collector.may_push or self._collector.top is not task:
            # In another thread, or in the midst of an import: what follows would still be booked on it.
            self._collector.gap(
                Gap.RECORDER_FAILED, f"the test was changed within something else: {task.label}"[:200]
            )
            self._task = task
            return
        number = self._collector.pop(task)
        # Reaching up to here: a task is that of its test only if it ended before the test did.
        facts = TaskFacts(self._started_us, monotonic() - self._started_s)
        self._collector.add_run(number, facts)  # type: ignore[arg-type]  # what the writer asks for it has
        self._collector.checkpoint()

    def _is_between(self) -> bool:
        return self._collector.may_push and self._collector.top.kind is CaptureKind.SESSION

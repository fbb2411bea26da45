"""The pytest hooks that follow a plan. Standard library and pytest only.

One rule stands above all: if anything of ours fails, every test runs as it would have run without us. Hence
each hook is a border (CONVENTIONS): the traceback is logged, the summary tells, the tests go on.

Under pytest-xdist the controller decides whether the plan holds and hands the answer to the workers. Each
worker applies it to the same collection and so comes to the same order; what they found comes back to the
controller, which reports.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from fastci_ml.execution import plan_summary
from fastci_ml.execution.gate import Admission, admit
from fastci_ml.execution.grouping import order_items
from fastci_ml.execution.selection import Tally, rank_key, select
from fastci_ml.records.ids import NodeId
from fastci_ml.records.plans import FOLLOWED_PROPERTY, Followed

_LOG = logging.getLogger(__name__)
_CHANNEL = "fastci"
# Marks of plugins that skip or fail a test unless others ran before it, and the plugins.
_ORDERING_MARKS = {"dependency": "pytest-dependency", "order": "pytest-order"}

ReturnT = TypeVar("ReturnT")
Rest = ParamSpec("Rest")


def _border(
    hook: Callable[Concatenate[PlanPlugin, Rest], ReturnT],
) -> Callable[Concatenate[PlanPlugin, Rest], ReturnT | None]:
    """Make a method one that never raises."""

    @functools.wraps(hook)
    def guarded(self: PlanPlugin, /, *args: Rest.args, **kwargs: Rest.kwargs) -> ReturnT | None:
        try:
            return hook(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS: the tests go on
            self._give_up(error)
            return None

    return guarded


class PlanPlugin:
    """Follows one plan in one pytest process.

    Parameters
    ----------
    config : pytest.Config
        Of the session.
    path : str
        The plan, as typed.
    is_shadow : bool
        Run everything in the usual order; only report.
    """

    def __init__(self, config: pytest.Config, path: str, *, is_shadow: bool) -> None:
        self._is_shadow = is_shadow
        self._workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
        self._admission = Admission(holds=False, message="the plan was not looked at")
        self._tally: Tally | None = None
        self._ran: set[NodeId] = set()
        self._failed: set[NodeId] = set()
        self._notes: list[str] = []
        self._decide(config, path)

    def _give_up(self, error: Exception) -> None:
        """Log a failure of ours; before the plan is applied, no plan is followed from here on."""
        _LOG.error("fastci failed", exc_info=error)
        message = f"fastci failed, please report it: {type(error).__name__}: {error}"
        if self._tally is None and not self._ran:
            self._admission = Admission(holds=False, message=message)
        else:
            self._notes.append(f"{message}; what is said here may be incomplete")

    @_border
    def _decide(self, config: pytest.Config, path: str) -> None:
        if self._workerinput is None:
            start = config.invocation_params.dir
            self._admission = admit(start / path, rootdir=config.rootpath, start=start)
        else:
            self._admission = Admission.loads(self._workerinput[_CHANNEL])
        if self._admission.holds and not self._is_shadow and hasattr(config.option, "loadscopereorder"):
            # By default xdist puts the largest scopes first, which would undo the order of the plan.
            config.option.loadscopereorder = False

    @pytest.hookimpl(optionalhook=True)
    @_border
    def pytest_configure_node(self, node: Any) -> None:
        """Hand the answer to a worker of pytest-xdist."""
        node.workerinput[_CHANNEL] = self._admission.dumps()

    @pytest.hookimpl(optionalhook=True)
    @_border
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker found; all workers find the same, and one that crashed says nothing."""
        text = getattr(node, "workeroutput", {}).get(_CHANNEL)
        if text and self._tally is None:
            self._tally = Tally.loads(text)

    # The outermost wrapper acts last, after -k, -m, --lf and plugins that sort have had their say.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None]:
        """Leave out what the plan leaves out, and order the rest."""
        # Read before xdist appends the group of --dist=loadgroup to the ids. The hash of an item is that of
        # its node id, so it changes then: `id` is the key that stays.
        node_ids = {id(item): item.nodeid for item in items}
        yield
        if self._admission.holds:
            self._apply(config, items, node_ids)

    @_border
    def _apply(self, config: pytest.Config, items: list[pytest.Item], node_ids: dict[int, str]) -> None:
        admission = self._admission
        ids = [admission.plan_id(node_ids.get(id(item), item.nodeid)) for item in items]
        seen = [admission.plan_id(node_id) for node_id in node_ids.values()]
        places, tally = select(ids, seen, admission)
        if not self._is_shadow:
            kept = [items[place] for place in places]
            tally = replace(tally, kept_order=_tied_by(config, kept))
            if not tally.kept_order:
                kept = order_items(kept, [rank_key(ids[place], admission) for place in places])
            staying = set(places)
            left_out = [item for place, item in enumerate(items) if place not in staying]
            if left_out:
                config.hook.pytest_deselected(items=left_out)
            # Last: had anything above failed, `items` would be as pytest left it.
            items[:] = kept
        self._tally = tally

    @_border
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which tests ran and which failed, for the summary."""
        if self._workerinput is not None:
            return
        plan_id = self._admission.plan_id(report.nodeid)
        entry_id = self._admission.entry_id(plan_id)
        if entry_id not in self._admission.entries and hasattr(report, "node"):
            # Only xdist sets `node`, and only its --dist=loadgroup appends "@group" to ids.
            ungrouped = NodeId(plan_id.rpartition("@")[0])
            plan_id = ungrouped if ungrouped in self._admission.entries else plan_id
        self._ran.add(plan_id)
        if report.failed:
            self._failed.add(plan_id)

    # First, so that what a worker found is in its output before xdist sends it.
    @pytest.hookimpl(tryfirst=True)
    @_border
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Report to the controller; make a plan that is empty on purpose a success."""
        if self._workerinput is not None:
            if self._tally is not None:
                session.config.workeroutput[_CHANNEL] = self._tally.dumps()  # type: ignore[attr-defined]
            return
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._is_empty_on_purpose:
            session.exitstatus = pytest.ExitCode.OK
        self._tell_report(session.config)

    def _tell_report(self, config: pytest.Config) -> None:
        """Write into pytest's JUnit report, if there is one, what became of the plan: `outcome` asks."""
        from _pytest.junitxml import xml_key  # pytest offers properties to fixtures only

        followed = Followed.SHADOW if self._is_shadow else Followed.YES
        report = config.stash.get(xml_key, None)
        if report is not None:
            report.add_global_property(
                FOLLOWED_PROPERTY, followed.value if self._admission.holds else Followed.NO.value
            )

    @property
    def _is_empty_on_purpose(self) -> bool:
        """Whether there were tests and the plan left out every one of them."""
        tally = self._tally
        return tally is not None and not self._is_shadow and tally.n_kept == 0 < tally.n_collected

    @_border
    def pytest_report_header(self) -> list[str]:
        """Say whether the plan is followed, before anything runs."""
        lines = plan_summary.header(self._admission, is_shadow=self._is_shadow)
        return [f"fastci: {plan_summary.printable(line)}" for line in lines]

    @_border
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what the plan did."""
        terminalreporter.write_sep("=", "fastci plan")
        lines = plan_summary.summary(
            self._admission, self._tally, ran=self._ran, failed=self._failed, is_shadow=self._is_shadow
        )
        for line in (*lines, *self._notes):
            terminalreporter.write_line(plan_summary.printable(line))


def _tied_by(config: pytest.Config, items: Sequence[pytest.Item]) -> str:
    """What needs the usual order, in words; empty where nothing does."""
    if config.getoption("stepwise", False):
        # It deselects whatever stands before the last failure in the usual order, as passed.
        return "--stepwise"
    for mark, plugin in _ORDERING_MARKS.items():
        if any(item.get_closest_marker(mark) for item in items):
            return f"tests marked {mark!r} ({plugin})"
    return ""

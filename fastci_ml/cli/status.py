"""What the history holds: runs, tests, failure classes, lanes, time span, join rate.

The join rate is the share of executions whose test is known for certain, not guessed from a class name. Below
the floor of the settings (`min_join_ratio`) plans leave out no test.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastci_ml.settings import Settings
    from fastci_ml.sources.history.summary import HistorySummary

_MANY_PARTS = 600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--history", type=Path, metavar="DIR", help="folder of the history store")
    parser.add_argument(
        "--collected",
        type=Path,
        metavar="FILE",
        help="output of `pytest --collect-only -q`: how many of today's tests have history",
    )
    parser.add_argument(
        "--project",
        metavar="FOLDER",
        help="folder that the ids of --collected start from (default: that of the settings)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Print the figures of one history."""
    from dataclasses import asdict

    from fastci_ml.cli import output
    from fastci_ml.errors import UsageError
    from fastci_ml.records.ids import read_collected, with_project
    from fastci_ml.records.unstable_ids import describe_unstable
    from fastci_ml.sources.history.store import HistoryStore
    from fastci_ml.sources.history.summary import summarize
    from fastci_ml.sources.projects import checked_project, default_project

    collected: list[str] = []
    if args.collected:
        try:
            # The path of a file may be no UTF-8; the history spells it in the same way.
            collected = read_collected(args.collected.read_bytes().decode("utf-8", "backslashreplace"))
        except OSError as error:
            raise UsageError(
                f"{args.collected}: cannot be read: {error}", hint="pytest --collect-only -q > collected.txt"
            ) from error
    store = HistoryStore(args.history or settings.history_dir)
    project = default_project(settings.root) if args.project is None else checked_project(args.project)
    collected = [with_project(node_id, project) for node_id in collected]
    summary = summarize(store, collected, root=settings.root)
    if summary.n_parts > _MANY_PARTS:
        output.tell(f"{summary.n_parts:,} parts make reading slow: fastci-ml history compact")
    if summary.unstable:
        output.tell(f"note: {describe_unstable(summary.unstable)}")
    if args.json:
        figures = asdict(summary)
        figures["first"], figures["last"] = (
            moment.isoformat() if moment else None for moment in (summary.first, summary.last)
        )
        figures["min_join_ratio"] = settings.min_join_ratio
        output.answer_json({"schema": "fastci.status/1", "history": str(store.directory), **figures})
    elif summary.n_executions or summary.n_runs:
        output.answer(_for_person(summary, settings.min_join_ratio))
    else:
        output.answer(f"{store.directory}: no history yet; `fastci-ml ingest PATH` adds some")
    return 0


def _for_person(summary: HistorySummary, floor: float) -> str:
    assert summary.first is not None
    assert summary.last is not None
    rows = [
        ("runs", f"{summary.n_runs:,}, {summary.n_failing_runs:,} with a test failure"),
        ("time span", f"{summary.first:%Y-%m-%d %H:%M} to {summary.last:%Y-%m-%d %H:%M} UTC"),
        ("tests", f"{summary.n_tests:,}"),
        ("executions", f"{summary.n_executions:,}"),
        ("outcomes", _counts(summary.outcomes)),
        ("failure classes", _counts(summary.failure_classes) or "no failures"),
        ("lanes", _counts(summary.lanes)),
        ("join rate", _percent(summary.join_ratio) + _below(summary.join_ratio, floor)),
    ]
    if not math.isnan(summary.known_ratio):
        share = _percent(summary.known_ratio) + _below(summary.known_ratio, floor)
        rows.append(("collected tests with history", share))
    if summary.unstable:
        rows.append(("functions with changing ids", f"{len(summary.unstable):,}, each joined to one"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name or '(unnamed)'} {n:,}" for name, n in counts.items())


def _percent(ratio: float) -> str:
    return "unknown" if math.isnan(ratio) else f"{100 * ratio:.1f}%"


def _below(ratio: float, floor: float) -> str:
    """Say what a share below the floor means; nothing above it and where the share is unknown."""
    return f", below {_percent(floor)}: plans leave out no test" if ratio < floor else ""

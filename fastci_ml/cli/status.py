"""What the history holds, and the evidence: runs, tests, failure classes, join rate; complete records, gaps.

The join rate is the share of executions whose test is known for certain, not guessed from a class name. Below
the floor of the settings (`min_join_ratio`) plans leave out no test. A test whose record is not complete is
never left out for its evidence. Where only pytest is installed, the evidence alone is shown.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastci_ml.evidence.overview import EvidenceOverview
    from fastci_ml.settings import Settings
    from fastci_ml.sources.history.summary import HistorySummary

_MANY_PARTS = 600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--history", type=Path, metavar="DIR", help="folder of the history store")
    parser.add_argument("--evidence", type=Path, metavar="FILE", help="file of the evidence store")
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
    """Print the figures of one history and of one evidence store."""
    from fastci_ml.cli import output

    directory = args.history or settings.history_dir
    store = args.evidence or settings.evidence_db
    missing = _missing_package()
    summary = None if missing else _summarize(args, settings, directory)
    evidence = _view(store)
    if missing:
        output.tell(f"{missing} is not installed, so nothing is said of the history: pip install fastci-ml")
    if args.json:
        figures = {} if summary is None else _plain_history(summary)
        output.answer_json(
            {
                "schema": "fastci.status/1",
                "history": str(directory),
                **figures,
                "min_join_ratio": settings.min_join_ratio,
                "evidence": None if evidence is None else _plain_evidence(evidence, store),
            }
        )
        return 0
    if summary is not None and (summary.n_executions or summary.n_runs):
        output.answer(_for_person(summary, settings.min_join_ratio))
    elif summary is not None:
        output.answer(f"{directory}: no history yet; `fastci-ml ingest PATH` adds some")
    if evidence is None:
        output.answer(f"{store}: no evidence yet; `fastci-ml record --merge -- pytest` adds some")
    else:
        output.answer(("" if summary is None else "\n") + _evidence_for_person(evidence))
    return 0


def _missing_package() -> str:
    """Package without which the history cannot be read; empty if all are there."""
    import importlib

    for name in ("numpy", "pyarrow"):
        try:
            importlib.import_module(name)
        except ImportError:
            return name
    return ""


def _summarize(args: argparse.Namespace, settings: Settings, directory: Path) -> HistorySummary:
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
    project = default_project(settings.root) if args.project is None else checked_project(args.project)
    collected = [with_project(node_id, project) for node_id in collected]
    summary = summarize(HistoryStore(directory), collected, root=settings.root)
    if summary.n_parts > _MANY_PARTS:
        output.tell(f"{summary.n_parts:,} parts make reading slow: fastci-ml history compact")
    if summary.unstable:
        output.tell(f"note: {describe_unstable(summary.unstable)}")
    return summary


def _view(store: Path) -> EvidenceOverview | None:
    """Figures of the evidence; None where there is no store yet."""
    from fastci_ml.evidence.overview import view_evidence
    from fastci_ml.evidence.store.store import EvidenceStore

    if not store.exists():
        return None
    with EvidenceStore.open(store, read_only=True) as opened:
        return view_evidence(opened)


def _plain_history(summary: HistorySummary) -> dict[str, Any]:
    from dataclasses import asdict

    figures = asdict(summary)
    figures["first"], figures["last"] = (
        moment.isoformat() if moment else None for moment in (summary.first, summary.last)
    )
    return figures


def _plain_evidence(found: EvidenceOverview, store: Path) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "store": str(store),
        "n_tests": found.n_tests,
        "n_complete": found.n_complete,
        "complete_ratio": found.complete_ratio,
        "reasons": {gap.value: n for gap, n in found.reasons.items()},
        "newest_trunk_us": found.newest_trunk_us,
        "scopes": [{**asdict(scope), "is_imported": scope.is_imported} for scope in found.scopes],
        "worst": [
            {
                "test": test.node_id,
                "lane": test.lane,
                "scope": test.scope,
                "gaps": [{"reason": gap.value, "detail": detail} for gap, detail in test.gaps],
            }
            for test in found.worst
        ],
    }


def _evidence_for_person(found: EvidenceOverview) -> str:
    from fastci_ml.cli import output

    lines = [f"evidence: {found.n_tests:,} tests recorded, {_percent(found.complete_ratio)} of them complete"]
    rows = [
        [
            f"  {scope.lane}",
            scope.scope,
            f"{scope.n_tests:,}",
            "imported" if scope.is_imported else _percent(scope.n_complete / scope.n_tests),
            _day(scope.newest_us),
        ]
        for scope in found.scopes
    ]
    if rows:
        lines += ["", output.table(["  lane", "scope", "tests", "complete", "newest"], rows)]
    if found.reasons:
        lines += ["", "not complete, so run for every change, because"]
        lines += [f"  {n:>6,}  {gap.meaning}" for gap, n in found.reasons.items()]
        lines += ["", "tests with most reasons"]
    for test in found.worst:
        lines.append(f"  {test.node_id}  ({test.lane}, {test.scope})")
        lines += [f"    {gap.meaning}" + (f": {detail}" if detail else "") for gap, detail in test.gaps]
    return "\n".join(lines)


def _day(moment_us: int) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(moment_us / 1e6, UTC):%Y-%m-%d %H:%M}"


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

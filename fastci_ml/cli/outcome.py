"""Append what a plan's run showed to the history, and log it on the model version that ranked the plan.

RESULTS are JUnit XML files or report logs of the run, or folders of them. Repeating the command changes
nothing. If the MLflow server is away, the outcome waits in the spool (`fastci-ml models flush` sends it), and
the exit code is 0 all the same.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastci_ml.cli.output import answer, answer_json, tell
from fastci_ml.errors import RegistryError

if TYPE_CHECKING:
    from fastci_ml.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the plan, the results and where they go."""
    parser.add_argument("plan", type=Path, help="the plan that ran")
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULTS", help="test reports of its run")
    parser.add_argument(
        "--history", type=Path, metavar="DIR", help="history store (default: <state>/history)"
    )
    parser.add_argument(
        "--run-id", metavar="ID", help="id of the CI run (default: from the plan and RESULTS)"
    )
    parser.add_argument(
        "--logs",
        type=Path,
        nargs="+",
        default=[],
        metavar="PATH",
        help="logs of all ranks: asked where a test only says that a process failed",
    )
    parser.add_argument("--tracking-uri", metavar="URI", help="MLflow server (default: as in the settings)")
    parser.add_argument("--no-mlflow", action="store_true", help="append to the history only")
    parser.add_argument("--json", action="store_true", help="print the outcome record")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Read, append, log, print."""
    from fastci_ml.execution.outcome import outcome_record
    from fastci_ml.execution.results import read_results
    from fastci_ml.sources.failures.rule_files import load_rules
    from fastci_ml.sources.history.store import HistoryStore

    if args.tracking_uri:
        settings = replace(settings, tracking_uri=args.tracking_uri)
    found = read_results(
        args.plan,
        args.results,
        root=settings.root,
        run_id=args.run_id,
        rules=load_rules(settings.failure_rules),
        logs=args.logs,
    )
    for note in found.notes:
        tell(f"note: {note}")
    store = HistoryStore(args.history or settings.history_dir)
    is_new = store.append_tables(found.executions, found.runs, found.changes, digest=found.digest)
    record = outcome_record(found)
    logged = "not asked for" if args.no_mlflow else _log(record, settings)
    if args.json:
        answer_json({**record, "is_new": is_new, "logged": logged})
    else:
        answer(_describe(record, is_new=is_new, logged=logged))
    return 0


def _log(record: dict[str, Any], settings: Settings) -> str:
    """Log the outcome on its model version, or keep it for later; what was done, in a word or two."""
    from fastci_ml.learn.spool import Spool

    model = record["model"]
    if model.get("kind") != "model":
        tell(f"note: ranked by {model.get('name', 'nothing')!r}, no registered model: nothing to log on")
        return "no model"
    # Local: numpy and the model readers are needed only where something is logged.
    from fastci_ml.learn.registry import Registry

    registry, spool = Registry(settings), Spool(settings.spool_dir)
    try:
        registry.log_outcome(record)
    except RegistryError as error:
        path = spool.add(record)
        tell(f"warning: {error}")
        tell(f"  the outcome waits in {path}; later: fastci-ml models flush")
        return "spooled"
    waiting = spool.flush(registry)
    if waiting.n_sent:
        tell(f"note: {waiting.n_sent} outcomes that had waited are logged too")
    return "logged"


def _describe(record: dict[str, Any], *, is_new: bool, logged: str) -> str:
    found = record["metrics"]
    expected, at = _number(found["expected_failures"]), found["first_failure_place"]
    lines = [
        f"run {record['tags']['run_id']}: {found['n_run']} of {found['n_tests']} tests ran by the plan, "
        f"{found['n_left_out']} left out, {found['n_missing']} missing, {found['n_unplanned']} unplanned",
        f"failures: {found['n_failures']} in all; {found['observed_failures']} of planned tests, expected "
        f"{expected}; {found['n_unplanned_failures']} of unplanned ones, {found['n_missing']} missing, "
        f"{found['n_other_failures']} of another class; {found['n_flaky']} flaky",
    ]
    if at is not None:
        lines.append(
            f"first failure at place {at}, after {found['first_failure_s']:.1f} s; "
            f"APFD {_number(found['apfd'])}, APFDc {_number(found['apfdc'])}, per failing test"
        )
    if found["n_left_out_run"]:
        lines.append(
            f"left out by the plan, yet run: {found['n_left_out_run']}, "
            f"of which {found['n_left_out_failures']} failed"
        )
    lines.append(f"ran {found['run_s']:.1f} s, expected to have saved {found['expected_saved_s']:.1f} s")
    lines.append(f"history: {'appended' if is_new else 'was in already'}; MLflow: {logged}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"

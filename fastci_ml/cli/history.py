"""Compact or prune the history store.

  fastci-ml history compact             one file a table: reading gets fast again
  fastci-ml history prune --before DAY  drop runs that finished before DAY (UTC)

Both are safe to interrupt, and other processes may read and append meanwhile.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastci_ml.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("action", choices=("compact", "prune"))
    parser.add_argument("--before", metavar="DATE", help="ISO date or time, UTC where it has no zone")
    parser.add_argument("--history", type=Path, metavar="DIR", help="folder of the history store")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Do one of the two, and say what changed."""
    from fastci_ml.cli import output
    from fastci_ml.errors import UsageError
    from fastci_ml.sources.history.store import HistoryStore

    store = HistoryStore(args.history or settings.history_dir)
    n_before = store.n_parts()
    n_runs = 0
    if args.action == "compact":
        if args.before:
            raise UsageError(
                "compact takes no --before", hint=f"fastci-ml history prune --before {args.before}"
            )
        store.compact(output.Progress())
    else:
        n_runs = store.prune(_before(args.before), output.Progress())
    n_after = store.n_parts()
    if args.json:
        output.answer_json(
            {
                "schema": "fastci.history/1",
                "history": str(store.directory),
                "n_runs_dropped": n_runs,
                "n_parts_before": n_before,
                "n_parts": n_after,
            }
        )
    else:
        dropped = f"{n_runs:,} runs dropped, " if args.action == "prune" else ""
        output.answer(f"{dropped}{n_before:,} files are now {n_after:,}")
    return 0


def _before(text: str | None) -> datetime:
    from fastci_ml.errors import UsageError

    if not text:
        raise UsageError("prune needs a date", hint="fastci-ml history prune --before 2026-01-31")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--before {text!r} is no ISO date", hint="--before 2026-01-31") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

"""Replay policies over recorded history and print one table.

  fastci-ml replay --prediction --history .fastci/history
  fastci-ml replay --prediction --history .fastci/history --split 0.7 --json

--prediction asks how early each policy would have found the failures of each recorded run: every simple
policy, the model, and the optimum. Without --split the model is trained again as time goes on, each time on
the runs that had ended by then. docs/metrics.md explains every figure.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fastci_ml.cli import output
from fastci_ml.errors import TooLittleDataError, UsageError
from fastci_ml.settings import Settings

if TYPE_CHECKING:
    from fastci_ml.replay.prediction import PredictionReplay
    from fastci_ml.replay.protocol import Protocol

_DEFAULT_START, _DEFAULT_RETRAIN = 0.3, 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--prediction", action="store_true", help="replay the order of tests, run by run")
    parser.add_argument(
        "--history", type=Path, metavar="DIR", help="history store (default: the repository's)"
    )
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--split", type=float, metavar="SHARE", help="train once on the first SHARE of the runs, e.g. 0.7"
    )
    when.add_argument(
        "--start",
        type=float,
        default=_DEFAULT_START,
        metavar="SHARE",
        help="predict after the first SHARE of the runs (default: %(default)s)",
    )
    parser.add_argument(
        "--retrain",
        type=float,
        default=_DEFAULT_RETRAIN,
        metavar="SHARE",
        help="train again after each SHARE of the runs (default: %(default)s; not with --split)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of everything random (default: %(default)s)"
    )
    parser.add_argument("--no-model", action="store_true", help="simple policies and the optimum only")
    parser.add_argument("--policies", metavar="A,B", help="simple policies to compare (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, floats unrounded")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Replay, and print the table."""
    if not args.prediction:
        raise UsageError("nothing to replay", hint="fastci-ml replay --prediction")
    from fastci_ml.features.log import build_log
    from fastci_ml.features.matrix import build_matrix
    from fastci_ml.replay.prediction import fit_model, replay_prediction
    from fastci_ml.replay.tables import replay_document
    from fastci_ml.sources.history.store import HistoryStore

    protocol, policies = _protocol(args), _policies(args.policies)
    directory = args.history or settings.history_dir
    log = build_log(HistoryStore(directory))
    if log.n_runs == 0:
        raise TooLittleDataError(f"{directory}: no runs, expected a history", hint="fastci-ml ingest --help")
    progress = output.Progress()
    replay = replay_prediction(
        log,
        build_matrix(log, progress),
        protocol,
        policies=policies,
        fit=None if args.no_model else fit_model(args.seed),
        progress=progress,
    )
    if args.json:
        output.answer_json(replay_document(replay))
    else:
        _print_text(replay)
    return 0


def _protocol(args: argparse.Namespace) -> Protocol:
    from fastci_ml.replay.protocol import Protocol

    is_split = args.split is not None
    try:
        return Protocol(
            start_share=args.split if is_split else args.start,
            retrain_share=None if is_split else args.retrain,
            seed=args.seed,
        )
    except ValueError as error:
        raise UsageError(str(error), hint="fastci-ml replay --help") from error


def _policies(names: str | None) -> tuple[str, ...]:
    from fastci_ml.learn.policies import POLICIES

    if names is None:
        return tuple(POLICIES)
    chosen = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in chosen:
        if name not in POLICIES:
            raise UsageError(f"unknown policy {name!r}", hint=f"choose from {', '.join(POLICIES)}")
    return chosen


def _print_text(replay: PredictionReplay) -> None:
    from fastci_ml.replay.tables import comparison_heading, replay_cells, replay_comparisons, replay_notes

    parts = ["\n".join(replay_notes(replay))]
    for comparison in replay_comparisons(replay):
        heading = comparison_heading(comparison)
        table = output.table(*replay_cells(comparison))
        parts.append(f"{heading}\n{table}" if comparison.n_runs else heading)
    output.answer("\n\n".join(parts))

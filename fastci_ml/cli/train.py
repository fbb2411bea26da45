"""Train the risk model on the history, write its bundle and register it with MLflow.

  fastci-ml train
  fastci-ml train --history .fastci/history --out .fastci/model --seed 1
  fastci-ml train --no-mlflow

`fastci-ml rank` reads the bundle. When the registry is away the bundle is written all the same, and the exit
code is 4. Too little history is no reason to guess: exit code 3, with the figures.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastci_ml.cli.output import Progress, answer, answer_json, tell
from fastci_ml.errors import RegistryError

if TYPE_CHECKING:
    from fastci_ml.learn.bundle import ModelBundle
    from fastci_ml.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--history", type=Path, metavar="DIR", help="history store (default: <state>/history)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="model bundle (default: <state>/model)")
    parser.add_argument("--no-mlflow", action="store_true", help="write the bundle only")
    parser.add_argument("--model-name", help="registered model (default: that of the settings)")
    parser.add_argument("--tracking-uri", help="MLflow server or store (default: that of the settings)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of everything random (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, floats unrounded")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Train, save, register, and say how good it is."""
    from datetime import UTC, datetime

    from fastci_ml.features.log import build_log
    from fastci_ml.features.matrix import build_matrix
    from fastci_ml.learn.bundle import ModelBundle
    from fastci_ml.learn.training import train
    from fastci_ml.sources.history.store import HistoryStore

    settings = with_registry(args, settings)
    out = args.out or settings.model_dir
    progress = Progress()
    log = build_log(HistoryStore(args.history or settings.history_dir), root=settings.root)
    trained = train(
        log,
        build_matrix(log, progress),
        created_at=datetime.now(UTC),
        name=settings.model_name,
        seed=args.seed,
        progress=progress,
    )
    trained.save(out)
    bundle = ModelBundle.load(out)
    tell(f"wrote {out}")
    for warning in bundle.card["warnings"]:
        tell(f"warning: {warning}")
    failure: RegistryError | None = None
    version: str | None = None
    if not args.no_mlflow:
        try:
            version = register_bundle(out, bundle, settings)
        except RegistryError as error:
            failure = error
            tell(f"the model is trained and {out} is written, but not registered: {error}")
            tell("  hint: when it is back: fastci-ml models register")
    if args.json:
        answer_json(_document(out, bundle, settings, version, failure))
    else:
        answer(_describe(out, bundle, settings, version))
    return 0 if failure is None else failure.exit_code


def with_registry(args: argparse.Namespace, settings: Settings) -> Settings:
    """Settings with what the command line says of the registry."""
    return replace(
        settings,
        model_name=args.model_name or settings.model_name,
        tracking_uri=args.tracking_uri or settings.tracking_uri,
    )


def register_bundle(out: Path, bundle: ModelBundle, settings: Settings) -> str:
    """Track and register a saved bundle, with its plots; the version."""
    import tempfile

    from fastci_ml.learn.plots import draw_plots
    from fastci_ml.learn.registry import Registry

    registry = Registry(settings)
    registry.check()  # before the plots, which take seconds
    tell(f"registering with MLflow at {registry.shown_uri}")
    with tempfile.TemporaryDirectory() as folder:
        return registry.log_training(out, bundle, draw_plots(bundle.card, Path(folder)))


def _document(
    out: Path, bundle: ModelBundle, settings: Settings, version: str | None, failure: RegistryError | None
) -> dict[str, Any]:
    return {
        "schema": "fastci.train/1",
        "out": str(out),
        "digest": bundle.digest,
        "model": {"name": settings.model_name, "version": version},
        "registry_error": None if failure is None else str(failure),
        "card": bundle.card,
    }


def _describe(out: Path, bundle: ModelBundle, settings: Settings, version: str | None) -> str:
    card = bundle.card
    history, test = card["history"], card["metrics"]["test"]
    registered = f"{settings.model_name} version {version}" if version else "not registered"
    lines = [
        f"{out}: {registered}; {history['n_failures']:,} failures in {history['n_training_rows']:,} results "
        f"of {history['n_runs']:,} runs, {card['n_trees']} trees, risks {card['calibration']}",
    ]
    if test["n_failing_runs"]:
        lines.append(f"on the last {test['n_runs']} runs ({test['n_failing_runs']} failing), not trained on:")
        for metric in ("apfd", "apfdc"):
            simple, policy = test[f"best_simple_{metric}"], test[f"best_simple_{metric}_policy"]
            lines.append(f"  {metric:<6} {test[metric]:.3f}   best simple policy {simple:.3f} ({policy})")
    if test.get("brier_skill") is not None:
        lines.append(f"  Brier skill {test['brier_skill']:.3f}")
    return "\n".join(lines)

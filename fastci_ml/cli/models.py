"""List registered model versions, promote one, fetch one; send what waited for the server.

fastci-ml models                       versions with aliases, figures and outcomes
fastci-ml models promote 3             make version 3 the champion
fastci-ml models pull champion         fetch its bundle, for `fastci-ml rank`
fastci-ml models flush                 send outcomes that waited for the server
fastci-ml models register              register a bundle that was trained while the server was away
fastci-ml models upgrade               bring the local database of an earlier MLflow up to date, with a backup
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastci_ml.cli.output import Progress, answer, answer_json, table, tell
from fastci_ml.cli.train import register_bundle, with_registry
from fastci_ml.errors import UsageError

if TYPE_CHECKING:
    from fastci_ml.learn.registry import Registry
    from fastci_ml.learn.registry.versions import RegisteredVersion
    from fastci_ml.settings import Settings

_SCHEMA = "fastci.models/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = ("list", "promote", "pull", "flush", "register", "upgrade")
    parser.add_argument("action", nargs="?", default="list", choices=actions)
    parser.add_argument("version", nargs="?", help="for promote: a number; for pull: a number or an alias")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="for pull and register: the bundle (default: <state>/model)"
    )
    parser.add_argument("--model-name", help="registered model (default: that of the settings)")
    parser.add_argument("--tracking-uri", help="MLflow server or store (default: that of the settings)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, floats unrounded")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Do what `action` says."""
    from fastci_ml.learn.registry import Registry

    if args.version is not None and args.action not in ("promote", "pull"):
        raise UsageError(f"models {args.action} takes no version", hint=f"fastci-ml models {args.action}")
    if args.out is not None and args.action not in ("pull", "register"):
        raise UsageError(f"models {args.action} takes no --out", hint="fastci-ml models pull --out DIR")
    settings = with_registry(args, settings)
    registry = Registry(settings)
    if args.action == "list":
        return _list(args, registry)
    if args.action == "promote":
        return _promote(args, registry)
    if args.action == "pull":
        return _pull(args, registry, settings)
    if args.action == "register":
        return _register(args, settings)
    if args.action == "upgrade":
        return _upgrade(args, registry)
    return _flush(args, registry, settings)


def _list(args: argparse.Namespace, registry: Registry) -> int:
    versions = registry.versions()
    if args.json:
        entries = [_document(version) for version in versions]
        answer_json({"schema": _SCHEMA, "name": registry.model_name, "versions": entries})
    elif not versions:
        answer(f"{registry.model_name}: no version registered at {registry.shown_uri}")
    else:
        header = ("version", "aliases", "created", "apfd", "apfdc", "outcomes", "outcome apfd", "saved s")
        answer(table(header, [_row(version) for version in versions]))
    return 0


def _promote(args: argparse.Namespace, registry: Registry) -> int:
    if args.version is None:
        raise UsageError("models promote needs a version", hint="fastci-ml models promote 3")
    before = registry.promote(args.version)
    if args.json:
        answer_json(
            {"schema": _SCHEMA, "name": registry.model_name, "champion": args.version, "before": before}
        )
    else:
        was = f"was version {before}; back with `fastci-ml models promote {before}`" if before else "was none"
        if before == args.version:
            was = "as before"
        answer(f"{registry.model_name}: champion is version {args.version} ({was})")
    return 0


def _pull(args: argparse.Namespace, registry: Registry, settings: Settings) -> int:
    out = args.out or settings.model_dir
    bundle = registry.pull(args.version or "champion", out)
    if args.json:
        answer_json(
            {
                "schema": _SCHEMA,
                "name": bundle.name,
                "version": bundle.version,
                "out": str(out),
                "digest": bundle.digest,
            }
        )
    else:
        answer(f"{out}: {bundle.name} version {bundle.version}")
    return 0


def _register(args: argparse.Namespace, settings: Settings) -> int:
    from fastci_ml.learn.bundle import ModelBundle

    path = args.out or settings.model_dir
    bundle = ModelBundle.load(path)
    if bundle.registration is not None:
        raise UsageError(
            f"{path} is registered as {bundle.name} version {bundle.version} already", hint="fastci-ml models"
        )
    version = register_bundle(path, bundle, settings)
    if args.json:
        answer_json(
            {"schema": _SCHEMA, "name": settings.model_name, "version": version, "digest": bundle.digest}
        )
    else:
        answer(f"{path}: {settings.model_name} version {version}")
    return 0


def _flush(args: argparse.Namespace, registry: Registry, settings: Settings) -> int:
    from fastci_ml.learn.spool import Spool

    report = Spool(settings.spool_dir).flush(registry)
    for path, error in report.failures.items():
        tell(f"{path} stays: {error}")
    if args.json:
        failures = [{"file": str(path), "error": str(error)} for path, error in report.failures.items()]
        answer_json({"schema": _SCHEMA, "n_sent": report.n_sent, "failures": failures})
    else:
        answer(f"{report.n_sent} outcomes sent, {len(report.failures)} stay in {settings.spool_dir}")
    return max((error.exit_code for error in report.failures.values()), default=0)


def _upgrade(args: argparse.Namespace, registry: Registry) -> int:
    from datetime import UTC, datetime

    done = registry.upgrade(now=datetime.now(UTC), progress=Progress())
    if args.json:
        document = {"path": str(done.path), "before": done.before, "after": done.after}
        answer_json({"schema": _SCHEMA, **document, "backup": str(done.backup) if done.backup else None})
    elif done.backup is None:
        answer(f"{done.path}: schema revision {done.after} is that of the installed MLflow: nothing to do")
    else:
        answer(f"{done.path}: upgraded from schema revision {done.before} to {done.after}")
        answer(f"as it was: {done.backup}")
    return 0


def _document(version: RegisteredVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "aliases": list(version.aliases),
        "created_at": version.created_at.isoformat(),
        "run_id": version.run_id,
        "model_id": version.model_id,
        "digest": version.digest,
        "stage": version.stage,
        "metrics": dict(version.metrics),
        "outcomes": dict(version.outcomes),
    }


def _row(version: RegisteredVersion) -> tuple[str, ...]:
    def figure(values: Mapping[str, float], key: str, form: str = ".3f") -> str:
        return format(values[key], form) if key in values else "-"

    return (
        version.version,
        ",".join(version.aliases) or (f"stage {version.stage}" if version.stage else "-"),
        f"{version.created_at:%Y-%m-%d %H:%M}",
        figure(version.metrics, "apfd"),
        figure(version.metrics, "apfdc"),
        figure(version.outcomes, "n_outcomes", ".0f"),
        figure(version.outcomes, "apfd"),
        figure(version.outcomes, "expected_saved_s", ".0f"),
    )

"""Read CI logs, test reports and tables into the history.

PATHS are files or folders. Reports are JUnit XML and pytest report logs, told apart by their content. A
run.json beside reports says which run they belong to; without one, the options do, and without those each
file is a run of its own. Tables (CSV, Parquet) need --preset, --table or --map. Files that were ingested
before for the same run are left alone; under another run id they are another run. A run that ends more than
a day from now is refused: it would hide those that come after it.

  fastci-ml ingest ci-logs/
  fastci-ml ingest junit.xml --run-id 4711 --base origin/main --head HEAD
  fastci-ml ingest junit.xml --run-id 4711 --job unit --shard 2/4 --attempt 1 --selected collected.txt
  fastci-ml ingest results.csv --map run=build test=name outcome=verdict failed=FAIL,ERROR time=started

What should be there and is not is unknown, never passed. Each of these costs a warning: a shard that no
report speaks for (--n-shards, or names like 2/4), a test of --selected without a result, a run.json without
any report (the process may have died), a report with the same bytes as that of another shard.

--strict takes no half measures: whatever would be a warning (repaired or unknown values, a torn last line, a
missing shard or test, times from the age of a file, a list of changes that may be cut off, names guessed from
class names) makes its whole run unusable. Nothing of that run is added, one line for each reason says why.

Exit code 3 when a file could not be used, or --strict refused a run; everything else is in.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastci_ml.settings import Settings
    from fastci_ml.sources.failures.run_logs import RunLogs
    from fastci_ml.sources.ingest.run_file import RunInfo
    from fastci_ml.sources.tables import TableMapping

# More lines than a person reads; --json has them all.
_MOST_WARNINGS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="report, table or folder")
    parser.add_argument("--history", type=Path, metavar="DIR", help="folder of the history store")
    parser.add_argument(
        "--collected",
        type=Path,
        metavar="FILE",
        help="output of `pytest --collect-only -q`: exact test names",
    )
    tables = parser.add_argument_group("tables")
    which = tables.add_mutually_exclusive_group()
    which.add_argument("--preset", metavar="NAME", help="mapping of a published history: iofrol, druid, ...")
    which.add_argument("--table", metavar="NAME", help="mapping from [tool.fastci.tables.NAME]")
    tables.add_argument(
        "--map",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="run=, test=, outcome=, duration=, time=, ...",
    )
    run = parser.add_argument_group("runs without a run.json")
    for name, text in (
        ("--run-id", "CI run"),
        ("--job", "CI job"),
        ("--shard", "shard of the job; names like 2/4 tell how many there are"),
        ("--lane", "environment (default: this one; for a preset its name)"),
        ("--base", "commit or revision that the run is compared with"),
        ("--head", "commit or revision that ran"),
    ):
        run.add_argument(name, default="", help=text)
    run.add_argument("--repo", type=Path, help="repository of --base and --head (default: this one)")
    run.add_argument("--attempt", type=int, metavar="N", help="the CI's attempt at the job, from 1")
    run.add_argument("--n-shards", type=int, metavar="N", help="shards that the job has")
    run.add_argument(
        "--selected",
        type=Path,
        metavar="FILE",
        help="output of `pytest --collect-only -q`: what was to run; tests without a result are unknown",
    )
    run.add_argument(
        "--logs",
        type=Path,
        metavar="PATH",
        help="file or folder of the logs of all ranks: asked where a test only says that a process failed",
    )
    parser.add_argument(
        "--project",
        metavar="PATH",
        help="folder from the top of the repository that test ids start at, where run.json names none "
        "(default: that of the settings)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="a run with anything odd is unusable: nothing of it is added"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Ingest; 3 when a file could not be used."""
    from datetime import UTC, datetime

    from fastci_ml.cli import output
    from fastci_ml.records.ids import read_collected
    from fastci_ml.sources.environment import detect_lane
    from fastci_ml.sources.failures.rule_files import load_rules
    from fastci_ml.sources.history.store import HistoryStore
    from fastci_ml.sources.ingest.ingest import IngestOptions, ingest_paths

    options = IngestOptions(
        # A published history is of no environment of ours: it gets a lane of its own.
        lane=args.lane or args.preset or settings.lane or detect_lane(),
        run=_run(args),
        # A revision is looked up where it is named, also without --repo.
        repository=args.repo or (settings.root if args.base or args.head else None),
        mapping=_mapping(args, settings),
        collected=read_collected(_text(args.collected)) if args.collected else (),
        root=settings.root,
        project=_project(args, settings),
        is_strict=args.strict,
        rules=load_rules(settings.failure_rules),
        now=datetime.now(UTC),
    )
    store = HistoryStore(args.history or settings.history_dir)
    report = ingest_paths(store, args.paths, options, output.Progress())
    for line in report.problems:
        output.tell(f"unusable: {line}")
    for line in report.warnings[:_MOST_WARNINGS]:
        output.tell(f"warning: {line}")
    if len(report.warnings) > _MOST_WARNINGS:
        output.tell(f"warning: and {len(report.warnings) - _MOST_WARNINGS} more; --json lists all")
    if args.json:
        output.answer_json(
            {
                "schema": "fastci.ingest/1",
                "history": str(store.directory),
                "n_files": report.n_files,
                "n_runs": report.n_runs,
                "n_executions": report.n_executions,
                "n_duplicates": report.n_duplicates,
                "n_noted": report.n_noted,
                "n_incomplete_runs": report.n_incomplete_runs,
                "n_absent_shards": report.n_absent_shards,
                "n_missing": report.n_missing,
                "n_unjoined": report.n_unjoined,
                "problems": report.problems,
                "warnings": report.warnings,
            }
        )
    else:
        output.answer(
            f"{report.n_files:,} files: {report.n_runs:,} runs and {report.n_executions:,} executions added, "
            f"{report.n_duplicates:,} files known already, {len(report.problems):,} unusable"
        )
        if report.n_incomplete_runs:
            output.answer(
                f"incomplete: {report.n_incomplete_runs:,} runs, {report.n_absent_shards:,} absent shards, "
                f"{report.n_missing:,} tests without a result"
            )
    return 3 if report.problems else 0


def _run(args: argparse.Namespace) -> RunInfo:
    from fastci_ml.errors import UsageError
    from fastci_ml.records.ids import NodeId, read_collected
    from fastci_ml.sources.ingest.run_file import MOST_ATTEMPTS, MOST_SHARDS, RunInfo

    for option, value, most in (
        ("--attempt", args.attempt, MOST_ATTEMPTS),
        ("--n-shards", args.n_shards, MOST_SHARDS),
    ):
        if value is not None and not 1 <= value <= most:
            raise UsageError(
                f"{option} {value}, expected 1 to {most:,}", hint=f"fastci-ml ingest PATH {option} 1"
            )
    selected = tuple(map(NodeId, read_collected(_text(args.selected)))) if args.selected else None
    base, head = args.base, args.head
    if args.repo is not None:
        from fastci_ml.sources.git.repository import Repository

        # The history keeps commits: what `HEAD` meant today is lost tomorrow.
        with Repository(args.repo) as repository:
            base, head = (repository.resolve(name) if name else "" for name in (base, head))
    return RunInfo(
        run_id=args.run_id,
        job=args.job,
        shard=args.shard,
        lane=args.lane,
        base=base,
        head=head,
        attempt=args.attempt,
        n_shards=args.n_shards,
        selected=selected or None,
        logs=_logs(args.logs),
        notes=(f"{args.selected}: no test in the list of selected tests, so it is unknown",)
        if selected == ()
        else (),
    )


def _project(args: argparse.Namespace, settings: Settings) -> str:
    from fastci_ml.errors import UsageError
    from fastci_ml.records.ids import parse_project
    from fastci_ml.sources.projects import default_project

    if args.project is None:
        return default_project(settings.root)
    try:
        return parse_project(args.project)
    except ValueError as error:
        raise UsageError(f"--project: {error}", hint="--project services/a") from error


def _logs(path: Path | None) -> tuple[RunLogs, ...]:
    from fastci_ml.errors import UsageError
    from fastci_ml.sources.failures.run_logs import WHOLE_RUN, RunLogs

    if path is None:
        return ()
    if not path.exists():
        raise UsageError(
            f"--logs {path}: no such file or folder", hint="torchrun --log-dir DIR --redirects 3"
        )
    return (RunLogs(((WHOLE_RUN, (path.name,)),), path.absolute().parent),)


def _mapping(args: argparse.Namespace, settings: Settings) -> TableMapping | None:
    if not (args.preset or args.table or args.map):
        return None
    from fastci_ml.sources.tables import make_mapping

    return make_mapping({**_named_mapping(args, settings), **_map_options(args.map)})


def _named_mapping(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    from dataclasses import asdict

    from fastci_ml.errors import UsageError
    from fastci_ml.sources.presets import PRESETS

    if args.preset:
        if args.preset not in PRESETS:
            raise UsageError(f"unknown preset {args.preset!r}", hint=f"--preset {'|'.join(PRESETS)}")
        return {key: value for key, value in asdict(PRESETS[args.preset]).items() if value}
    if args.table:
        if not isinstance(settings.tables.get(args.table), dict):
            known = ", ".join(settings.tables) or "none"
            raise UsageError(
                f"no table mapping {args.table!r} in the settings (known: {known})",
                hint=f"add [tool.fastci.tables.{args.table}] to pyproject.toml",
            )
        return dict(settings.tables[args.table])
    return {}


def _map_options(words: list[str]) -> dict[str, str]:
    from fastci_ml.errors import UsageError

    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--map {word!r}, expected KEY=VALUE", hint="--map run=COLUMN test=COLUMN")
        options[key] = value
    return options


def _text(path: Path) -> str:
    from fastci_ml.errors import UsageError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: cannot be read: {error}", hint=f"pytest --collect-only -q > {path}"
        ) from error

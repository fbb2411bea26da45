"""Merge what tests recorded into the evidence store; import what other tools measured; drop what is old.

  fastci-ml merge                         all of .fastci/bundles, each bundle once
  fastci-ml merge DIR FILE                bundles of other machines, also as zips, as CI gives them out
  fastci-ml merge s3://bucket/nightly     the same by URL, with fsspec: pip install 'fastci-ml[remote]'
  fastci-ml merge --coverage .coverage    data of coverage.py with a context for each test, as weaker evidence
  fastci-ml merge --testmon .testmondata  data of pytest-testmon, the same
  fastci-ml merge --retain-days 30        then drop what is older: merged bundles, and records of other scopes

With FASTCI_EVIDENCE_KEY in the environment, or --trusted-digests, a bundle that is neither sealed with the
key nor listed is stored as untrusted: it can only add tests to a plan.

Never dropped: a bundle that is not merged, and the newest record of a test of trunk. Exit code 3 if there was
something to merge and none of it could be.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastci_ml.evidence.importers.imported import ImportedEvidence
    from fastci_ml.settings import Settings

_DAY_US = 86_400_000_000
_MAX_DAYS = 36_500
_N_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="bundles, zips, folders of both, URLs of them (default: .fastci/bundles)",
    )
    parser.add_argument(
        "--trusted-digests",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="believe bundles whose SHA-256 is in FILE, a line each, as sha256sum prints them, and no others",
    )
    parser.add_argument(
        "--evidence", type=Path, metavar="FILE", help="the store (default: .fastci/evidence.sqlite)"
    )
    parser.add_argument(
        "--coverage",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="import data of coverage.py",
    )
    parser.add_argument(
        "--testmon",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="import data of pytest-testmon",
    )
    parser.add_argument("--lane", metavar="NAME", help="environment that imported data was measured in")
    parser.add_argument(
        "--retain-days",
        type=float,
        metavar="N",
        help="drop merged bundles and records of other scopes after N days",
    )
    parser.add_argument("--compact", action="store_true", help="make the store as small as it gets")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


@dataclass(slots=True)
class _Report:
    """What was done, for both kinds of answer."""

    figures: dict[str, Any]
    rows: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    n_done: int = 0


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Merge, import, drop; say what was done."""
    from fastci_ml.cli import output
    from fastci_ml.errors import EvidenceError, UsageError

    days = args.retain_days
    if days is not None and not 0 <= days <= _MAX_DAYS:
        raise UsageError(f"--retain-days {days:g}: expected 0 to {_MAX_DAYS}", hint="--retain-days 30")
    store = args.evidence or settings.evidence_db
    report = _Report({"schema": "fastci.merge/1", "evidence": str(store)})
    now_us = time.time_ns() // 1000
    is_merging = _merge(args, settings, store, report)
    is_importing = _import(args, settings, store, now_us, report)
    if (is_merging or is_importing) and not report.n_done:
        raise EvidenceError(
            f"nothing could be merged: {'; '.join(report.problems[:_N_SHOWN])}",
            hint="fastci-ml record -- pytest",
        )
    for problem in report.problems:
        output.tell(f"fastci-ml: left out: {problem}")
    _keep_up(args, settings, store, now_us, report)
    if args.json:
        output.answer_json({**report.figures, "problems": report.problems})
    else:
        report.rows.append(("evidence", str(store)))
        width = max(len(name) for name, _ in report.rows)
        output.answer("\n".join(f"{name:<{width}}  {text}" for name, text in report.rows))
    return 0


def _folders(args: argparse.Namespace, settings: Settings) -> list[Path]:
    """What old bundles may be removed from: neither a zip nor what lies elsewhere."""
    from fastci_ml.evidence.merge.archives import is_archive
    from fastci_ml.evidence.merge.remote import is_url

    if not args.paths:
        return [settings.bundles_dir]
    paths = [Path(text) for text in args.paths if not is_url(text)]
    return [path for path in paths if not is_archive(path)]


def _merge(args: argparse.Namespace, settings: Settings, store: Path, report: _Report) -> bool:
    """Merge bundles; False where there are none and only something else was asked for."""
    from fastci_ml.cli import output
    from fastci_ml.errors import EvidenceError
    from fastci_ml.evidence.merge.artifacts import has_artifacts, merge_artifacts
    from fastci_ml.evidence.seal_key import take_key
    from fastci_ml.sources.projects import repository_top

    given = args.paths or [str(settings.bundles_dir)]
    has_other_work = args.coverage or args.testmon or args.compact or args.retain_days is not None
    if not args.paths and not has_artifacts(settings.bundles_dir, settings.staging_dir):
        if has_other_work:
            return False
        raise EvidenceError(f"{given[0]}: no bundle found", hint="fastci-ml record -- pytest")
    summary = merge_artifacts(
        given,
        store,
        root=repository_top(settings.root),
        staging_dir=settings.staging_dir,
        key=take_key(os.environ),
        trusted_digests=args.trusted_digests,
        progress=output.Progress(),
    )
    report.n_done += summary.n_merged + summary.n_known
    report.problems += summary.problems
    n_tests = summary.n_records + summary.n_outdated
    ratio = summary.n_complete / n_tests if n_tests else float("nan")
    report.figures["bundles"] = {
        "n_files": summary.n_files,
        "n_merged": summary.n_merged,
        "n_known": summary.n_known,
        "n_skipped": len(summary.problems),
        "n_untrusted": summary.n_untrusted,
        "n_processes": summary.n_processes,
        "n_waiting": summary.n_waiting,
        "n_tests": n_tests,
        "n_complete": summary.n_complete,
        "complete_ratio": ratio,
        "n_records": summary.n_records,
        "n_superseded": summary.n_superseded,
        "n_outdated": summary.n_outdated,
        "reasons": {gap.value: n for gap, n in summary.gaps.most_common()},
    }
    skipped = f", {len(summary.problems):,} left out" if summary.problems else ""
    report.rows.append(("bundles", f"{summary.n_merged:,} merged, {summary.n_known:,} known before{skipped}"))
    if summary.n_processes:
        ms = 1e3 * summary.recorder_s / summary.n_processes
        text = f"{summary.n_processes:,} that tests started; recording took {ms:.0f} ms of CPU in each"
        report.rows.append(("processes", text))
    if summary.n_waiting:
        text = f"{summary.n_waiting:,} bundles wait for that of the tests which started them"
        report.rows.append(("waiting", text))
    if summary.n_untrusted:
        text = f"{summary.n_untrusted:,} neither sealed nor listed: they can only add tests to a plan"
        report.rows.append(("untrusted", text))
    if n_tests:
        report.rows.append(("tests recorded", f"{n_tests:,}, {100 * ratio:.1f}% of them complete"))
    if summary.n_superseded or summary.n_outdated:
        text = f"{summary.n_superseded:,} older records replaced"
        if summary.n_outdated:
            text += f", {summary.n_outdated:,} left out for newer ones"
        report.rows.append(("replaced", text))
    report.rows += [
        ("not complete", f"{n:,}: {gap.meaning}") for gap, n in summary.gaps.most_common(_N_SHOWN)
    ]
    return True


def _import(args: argparse.Namespace, settings: Settings, store: Path, now_us: int, report: _Report) -> bool:
    """Import data of other tools; what cannot be used is a problem, and the next is tried."""
    from fastci_ml.cli import output
    from fastci_ml.errors import EvidenceError
    from fastci_ml.evidence.importers.coverage_data import import_coverage
    from fastci_ml.evidence.importers.store_imported import store_imported
    from fastci_ml.evidence.importers.testmon_data import import_testmon
    from fastci_ml.sources.environment import detect_lane
    from fastci_ml.sources.projects import default_project, repository_top

    jobs = [(import_coverage, path) for path in args.coverage]
    jobs += [(import_testmon, path) for path in args.testmon]
    figures = []
    for importer, path in jobs:
        try:
            found = importer(
                path,
                root=repository_top(settings.root),
                lane=args.lane or settings.lane or detect_lane(),
                project=default_project(settings.root),
                progress=output.Progress(),
            )
        except EvidenceError as error:
            hint = f" (hint: {error.hint})" if error.hint else ""
            report.problems.append(f"{error}{hint}")
            continue
        store_imported(found, store, now_us=now_us)
        report.n_done += 1
        report.problems += found.refused
        figures.append(_imported(path, found))
        report.rows.append(("imported", f"{len(found.records):,} tests of {path}, as weaker evidence"))
    if jobs:
        report.figures["imported"] = figures
    return bool(jobs)


def _imported(path: Path, found: ImportedEvidence) -> dict[str, Any]:
    return {
        "path": str(path),
        "backend": found.records[0].backend,
        "n_tests": len(found.records),
        "refused": list(found.refused),
    }


def _keep_up(args: argparse.Namespace, settings: Settings, path: Path, now_us: int, report: _Report) -> None:
    """Drop what is old, or make the store small."""
    from fastci_ml.cli import output
    from fastci_ml.evidence.retention import remove_merged
    from fastci_ml.evidence.store.store import EvidenceStore

    if args.retain_days is None and not args.compact:
        return
    with EvidenceStore.open(path) as store:
        if args.retain_days is None:
            kept_up = store.compact()
        else:
            older_than_us = now_us - int(args.retain_days * _DAY_US)
            # Before the store forgets them: only what it has may go.
            removed = remove_merged(
                _folders(args, settings), store, older_than_us=older_than_us, progress=output.Progress()
            )
            kept_up = store.prune(older_than_us=older_than_us)
            report.figures["removed"] = {
                "n_bundles": removed.n_bundles,
                "n_sources": removed.n_sources,
                "n_seals": removed.n_seals,
                "n_bytes": removed.n_bytes,
                "n_records": kept_up.n_records,
            }
            size = f"{removed.n_bytes / 1e6:.1f} MB"
            files = f"{removed.n_bundles:,} bundles, {removed.n_sources:,} sources, {size}"
            report.rows.append(("removed", f"{files}; {kept_up.n_records:,} old records"))
    report.figures["n_freed_bytes"] = kept_up.n_freed_bytes
    report.rows.append(("store", f"{max(kept_up.n_freed_bytes, 0) / 1e6:.1f} MB freed"))

"""Write the plan for a change: which tests run, in what order, and why. The CI pre-step.

Without a model it falls back to a simple policy, without a history to the order of test ids, and the plan
says so. Tests that the plan does not know are run by the plugin all the same.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fastci_ml.cli.output import answer, tell
from fastci_ml.errors import DataError, ModelError, UsageError

if TYPE_CHECKING:
    from fastci_ml.learn.bundle import ModelBundle
    from fastci_ml.records.plans import Plan
    from fastci_ml.settings import Settings

_DEFAULT_TOP = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--base", required=True, help="revision to compare with, such as origin/main")
    parser.add_argument("--head", default="HEAD", help="revision that will run (default: HEAD)")
    parser.add_argument(
        "--deepen",
        type=int,
        metavar="N",
        help="fetch at most N commits of history where a shallow clone does not show what the change is; "
        "0 fetches nothing (default: 1050)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("plan.json"), help="file to write (default: plan.json)"
    )
    parser.add_argument("--model", type=Path, help="model bundle (default: <state>/model)")
    parser.add_argument("--history", type=Path, help="history store (default: <state>/history)")
    parser.add_argument("--lane", help="lane that the plan will run on (default: detected here)")
    parser.add_argument(
        "--collected",
        metavar="FILE",
        help="node ids, one a line, as `pytest --collect-only -q` prints them; - for stdin",
    )
    parser.add_argument(
        "--project",
        metavar="FOLDER",
        help="folder that the ids of --collected start from (default: that of the settings)",
    )
    parser.add_argument(
        "--objective",
        choices=("cost", "failures"),
        default="cost",
        help="order by risk per second (default) or by risk alone",
    )
    parser.add_argument("--json", action="store_true", help="print the plan to stdout as well")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Make the plan, write it, and say what is in it."""
    # Ranking multiplies no matrices; starting BLAS threads would cost more than the whole of it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from fastci_ml.planning.change import read_change
    from fastci_ml.planning.plan import make_plan
    from fastci_ml.planning.prioritize import Objective
    from fastci_ml.records.ids import with_project
    from fastci_ml.sources.git.fetch import FetchLimits
    from fastci_ml.sources.git.repository import Repository
    from fastci_ml.sources.history.store import HistoryStore
    from fastci_ml.sources.history.tables import storable
    from fastci_ml.sources.projects import checked_project, default_project

    project = default_project(settings.root) if args.project is None else checked_project(args.project)
    notes: list[str] = []
    limits = FetchLimits() if args.deepen is None else FetchLimits(n_commits=args.deepen)
    with _without_collection(), Repository(settings.root) as repository:
        plan = make_plan(
            read_change(repository, args.base, args.head, limits=limits),
            # As the history spells it, where it is no UTF-8.
            lane=storable(args.lane or settings.lane or _detect_lane()),
            bundle=_load_bundle(args.model, settings, notes.append),
            store=HistoryStore(args.history or settings.history_dir),
            collected=[with_project(node_id, project) for node_id in _read_collected(args.collected)],
            objective=Objective(args.objective),
            notes=notes,
            project=project,
            min_join_ratio=settings.min_join_ratio,
            root=settings.root,
        )
        text = plan.dumps()
    _write(args.out, text)
    for note in plan.notes:
        tell(f"note: {note}")
    if args.json:
        answer(text.rstrip("\n"))
    else:
        answer(_describe(plan, args.out))
    return 0


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Do without the garbage collector: a plan is many small objects, and none of them is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _detect_lane() -> str:
    from fastci_ml.sources.environment import detect_lane

    return detect_lane()


def _load_bundle(given: Path | None, settings: Settings, note: Callable[[str], None]) -> ModelBundle | None:
    """Model to rank with; a default one that is absent or unusable is a reason to fall back, not to stop."""
    from fastci_ml.learn.bundle import ModelBundle

    path = given or settings.model_dir
    if given is None and not path.exists():
        note(f"no model at {path}; `fastci-ml train` makes one")
        return None
    try:
        return ModelBundle.load(path)
    except ModelError as error:
        if given is not None:
            raise
        note(f"the model is unusable: {error}")
        return None


def _read_collected(name: str | None) -> list[str]:
    """Node ids of a listing; none where no listing is given."""
    if name is None:
        return []
    from fastci_ml.records.ids import read_collected

    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise DataError(
            f"{name}: the list of collected tests cannot be read: {error}",
            hint="pytest --collect-only -q > collected.txt",
        ) from error
    # The path of a file may be no UTF-8; the history spells it in the same way.
    node_ids = read_collected(content.decode("utf-8", "backslashreplace"))
    if not node_ids:
        raise UsageError(f"{name}: no node id in it", hint="pytest --collect-only -q > collected.txt")
    return node_ids


def _write(path: Path, text: str) -> None:
    """Write the plan in one step: a reader sees the old one or the whole new one."""
    if path.is_dir():
        raise UsageError(f"--out {path}: a folder, expected a file", hint="fastci-ml rank --out plan.json")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(text.encode("ascii"))
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise DataError(
            f"{path}: the plan cannot be written: {error}", hint="fastci-ml rank --out FILE"
        ) from error


def _describe(plan: Plan, path: Path) -> str:
    """Short account for a person: totals, what forbids to leave tests out, the first tests with reasons."""
    from fastci_ml.planning.join_rate import describe_join

    summary, model = plan.summary, plan.model
    version = f" version {model['version']}" if model["version"] else ""
    by = f"ranked by {model['kind']} {model['name']!r}{version}"
    if model["kind"] == "none":
        by = "ordered by test id"
    lines = [
        f"{path}: {summary['n_run']} of {summary['n_tests']} tests run, "
        f"{summary['duration_s']:.1f} s expected",
        by,
        describe_join(summary),
        *(f"full run: {reason.text}" for reason in plan.full_run),
    ]
    for test in plan.tests[:_DEFAULT_TOP]:
        risk = "risk ?    " if test.risk is None else f"risk {test.risk:.3f}"
        lines.append(f"  {test.order:>4}  {risk}  {test.id}")
        lines.extend(f"                    {reason.text}" for reason in test.reasons)
    if len(plan.tests) > _DEFAULT_TOP:
        lines.append(f"  ... {len(plan.tests) - _DEFAULT_TOP} more in {path}")
    return "\n".join(line.rstrip() for line in lines)

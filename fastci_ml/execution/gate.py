"""Does a plan hold here? It does for one tree and one lane; anywhere else every test runs.

Standard library only. The answer is made once, by the process that the user started, and is handed to the
workers of pytest-xdist as one line of JSON: they must all come to the same order.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastci_ml.errors import FastCIError, PlanError
from fastci_ml.records.ids import NodeId
from fastci_ml.records.plan_reader import loads_plan
from fastci_ml.records.plans import Decision, Plan
from fastci_ml.records.unstable_ids import UNSTABLE_REASON, split_params
from fastci_ml.settings import find_root, load_settings
from fastci_ml.sources.environment import detect_lane
from fastci_ml.sources.git.worktree import read_worktree

_SHORT = 12


@dataclass(frozen=True, slots=True)
class Entry:
    """What the plan says of one test, as far as running it goes."""

    decision: Decision
    order: int
    duration_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Whether a plan is followed.

    Attributes
    ----------
    holds : bool
        False: every test runs, in the usual order.
    message : str
        One line for a person: what the plan is for, or what was found where something else was expected.
    hint : str
        What to type; empty where the plan holds.
    rootdir, plan_root : str
        Where pytest's ids start, and where those of the plan do: absolute paths with ``/``.
    entries : mapping of NodeId to Entry
        Tests of the plan, by id; empty where it does not hold.
    functions : frozenset of NodeId
        Entries that stand for all tests of a function, whose ids change between runs.
    """

    holds: bool
    message: str
    hint: str = ""
    rootdir: str = "/"
    plan_root: str = "/"
    entries: Mapping[NodeId, Entry] = field(default_factory=dict)
    functions: frozenset[NodeId] = frozenset()

    def plan_id(self, node_id: str) -> NodeId:
        """Id that a plan knows the test by: from the plan's root, where pytest's is from its own.

        Examples
        --------
        >>> admission = Admission(holds=True, message="", rootdir="/repo/pkg", plan_root="/repo")
        >>> admission.plan_id("test_a.py::test_x[a::/b]")
        'pkg/test_a.py::test_x[a::/b]'
        """
        if self.rootdir == self.plan_root:
            return NodeId(node_id)
        # Only the path moves: what follows the first `::` is stored as pytest printed it.
        path, separator, names = node_id.partition("::")
        moved = posixpath.relpath(posixpath.join(self.rootdir, path), self.plan_root)
        return NodeId(moved + separator + names)

    def entry_id(self, plan_id: NodeId) -> NodeId:
        """Id of the entry that speaks for a test: its own, else that of its function; its own without any."""
        if plan_id in self.entries or not self.functions:
            return plan_id
        function = split_params(plan_id)[0]
        return function if function in self.functions else plan_id

    def dumps(self) -> str:
        """JSON in ASCII: what goes to a worker must survive any channel, lone surrogates included."""
        entries = [[key, e.decision.value, e.order, e.duration_s] for key, e in self.entries.items()]
        functions = sorted(self.functions)
        return json.dumps(
            [self.holds, self.message, self.hint, self.rootdir, self.plan_root, entries, functions]
        )

    @classmethod
    def loads(cls, text: str) -> Admission:
        """Inverse of `dumps`."""
        holds, message, hint, rootdir, plan_root, rows, functions = json.loads(text)
        entries = {NodeId(key): Entry(Decision(word), order, seconds) for key, word, order, seconds in rows}
        return cls(
            holds=holds,
            message=message,
            hint=hint,
            rootdir=rootdir,
            plan_root=plan_root,
            entries=entries,
            functions=frozenset(map(NodeId, functions)),
        )


def admit(path: Path, *, rootdir: Path, start: Path) -> Admission:
    """Decide whether the plan of a file is followed by tests collected from a folder.

    Parameters
    ----------
    path : Path
        The plan; it may be missing, or hold anything.
    rootdir : Path
        Root that pytest's ids start from: most often the repository's root or a folder below it.
    start : Path
        Where the user started pytest: says which repository is meant if `rootdir` lies in none.

    Returns
    -------
    Admission
        It does not hold when the file is no plan, when the tree that is checked out is not the plan's or has
        changes that are not committed, or when this is another lane.
    """
    rootdir, start = rootdir.resolve(), start.resolve()
    repository = _repository_of(rootdir) or _repository_of(start)
    try:
        plan = _read(path)
        objection = _objection(plan, repository or start, start)
    except FastCIError as error:
        return _refuse(f"the plan cannot be used: {error}", error.hint)
    if objection:
        hint = "fastci-ml rank --base <base> --head HEAD, on this checkout and this lane"
        return _refuse(f"{path} does not hold here: {objection}", hint)
    n_run = sum(test.decision.is_run for test in plan.tests)
    return Admission(
        holds=True,
        message=f"{path} holds for tree {plan.head_tree[:_SHORT]} on {plan.lane}: "
        f"it runs {n_run} of {len(plan.tests)} tests",
        rootdir=rootdir.as_posix(),
        plan_root=(repository or start).joinpath(plan.root).as_posix(),
        entries={test.id: Entry(test.decision, test.order, test.duration_s) for test in plan.tests},
        functions=plan_functions(plan),
    )


def plan_functions(plan: Plan) -> frozenset[NodeId]:
    """Entries of a plan that stand for all tests of a function."""
    return frozenset(
        test.id for test in plan.tests if any(reason.code == UNSTABLE_REASON for reason in test.reasons)
    )


def _refuse(message: str, hint: str | None) -> Admission:
    return Admission(holds=False, message=message, hint=hint or "")


def _read(path: Path) -> Plan:
    try:
        if path.exists() and not path.is_file():
            # Opening a pipe that nobody writes to would block the tests for ever.
            raise PlanError(f"{path}: no regular file", hint="fastci-ml rank --out plan.json")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: {error}", hint="fastci-ml rank --out plan.json") from error
    return loads_plan(text, name=str(path))


def _repository_of(folder: Path) -> Path | None:
    """Find the folder that ids in plans start from: git's top, without asking git a second time."""
    # In a worktree or a submodule `.git` is a file.
    return next((here for here in (folder, *folder.parents) if (here / ".git").exists()), None)


def _objection(plan: Plan, repository: Path, start: Path) -> str:
    """Objection to the plan in this checkout; empty when there is none."""
    worktree = read_worktree(repository)
    if worktree.top.resolve() != repository:
        return f"git takes {worktree.top} for the checkout, expected {repository} (is GIT_WORK_TREE set?)"
    if worktree.tree != plan.head_tree:
        return f"the checkout is tree {worktree.tree[:_SHORT]}, expected {plan.head_tree[:_SHORT] or 'none'}"
    if worktree.is_dirty:
        return "tracked files are changed and not committed, expected a clean checkout"
    # Settings are found from where the user stands, as every command of ours finds them.
    lane = load_settings(find_root(start)).lane or detect_lane()
    if lane != plan.lane:
        return f"the lane is {lane}, expected {plan.lane}"
    return ""

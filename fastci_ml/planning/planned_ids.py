"""Which tests a plan names: what the history knows and what pytest collected, by ids that hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fastci_ml.records.ids import NodeId, node_path
from fastci_ml.records.unstable_ids import HistoryKeys, Instability, split_params

if TYPE_CHECKING:
    from fastci_ml.planning.change import Change

_N_SHOWN = 3


class PlannedIds:
    """Ids of one plan, all from the top of the repository.

    Parameters
    ----------
    known : sequence of str
        What the history has tests of the lane under: ids, and functions whose ids change between runs.
    collected : sequence of str
        Node ids that pytest collected; empty where nobody asked it.
    unstable : mapping of NodeId to Instability
        Functions of the history whose ids change between runs.
    change : Change
        Knows which files the head has.
    project : str
        Folder of the tests: known tests elsewhere are none of this plan.

    Attributes
    ----------
    node_ids : list of str
        Sorted, each once. A test whose id will be another when it runs stands as its function.
    n_collected : Counter of NodeId
        How many collected tests each stands for.
    functions : dict of NodeId to Instability
        Those of `node_ids` that stand for all tests of a function.
    addressed : dict of NodeId to Instability
        Functions that were collected under addresses.
    unstable : dict of NodeId to Instability
        Functions of this plan whose ids change.
    notes : list of str
        What was left out of what is known, and what looks wrong.
    """

    def __init__(
        self,
        known: Sequence[str],
        collected: Sequence[str],
        unstable: Mapping[NodeId, Instability],
        change: Change,
        project: str,
    ) -> None:
        keys = HistoryKeys(unstable)
        self.n_collected: Counter[NodeId] = Counter()
        self.addressed: dict[NodeId, Instability] = {}
        self.functions: dict[NodeId, Instability] = {}
        self.unstable: dict[NodeId, Instability] = {}
        # Sorted: a function may have ids of several kinds, whatever the order of the listing.
        for node_id in sorted(set(collected)):
            kind, function = keys.kind(node_id), split_params(node_id)[0]
            if kind is not None:
                self.unstable[function] = unstable.get(function, kind)
            if kind is Instability.ADDRESS and function not in unstable:
                self.addressed[function] = kind
            if kind is not None and kind.is_volatile:
                self.functions[function] = kind
                self.n_collected[function] += 1
            else:
                self.n_collected[NodeId(node_id)] += 1
        # Numbers come back as long as the list stays: then the tests themselves stand in the plan.
        numbered = self.unstable.keys() - self.functions.keys()
        there = [NodeId(key) for key in known if key not in numbered and _is_there(key, change, project)]
        kept, self.notes = _split_gone(there, self.n_collected)
        for key in kept:
            if key in unstable:
                self.functions[key] = self.unstable[key] = unstable[key]
        self.node_ids = sorted({*kept, *self.n_collected})
        self.notes += _misplaced(self.n_collected, change, project)


def _is_there(key: str, change: Change, project: str) -> bool:
    """Whether a known test is one of the project, and its file, where the id names one, is still there.

    An id that is a file of the head is the report of a failed collection, not a test.
    """
    if project and not key.startswith(f"{project}/"):
        return False
    inside = _in_root(node_path(key), change)
    return inside is None or ("::" in key) == (inside in change.paths)


def _in_root(path: str, change: Change) -> str | None:
    """Path from the root of the change; None where it lies elsewhere, and nobody knows whether it exists."""
    if not change.root:
        return path
    return path.removeprefix(f"{change.root}/") if path.startswith(f"{change.root}/") else None


def _split_gone(known: Sequence[NodeId], collected: Mapping[NodeId, int]) -> tuple[list[NodeId], list[str]]:
    """Known tests that may still exist, and a note about those that are gone.

    A file that was collected without a test of old no longer has it. A file of which nothing was collected
    may have failed to import, so its tests stay, and a run without their results is a failure.
    """
    files = {node_path(node_id) for node_id in collected}
    gone = {node_id for node_id in known if node_id not in collected and node_path(node_id) in files}
    if not gone:
        return list(known), []
    shown = ", ".join(sorted(gone)[:_N_SHOWN]) + (", ..." if len(gone) > _N_SHOWN else "")
    note = f"{len(gone)} known tests are gone, as their files were collected without them: {shown}"
    return [node_id for node_id in known if node_id not in gone], [note]


def _misplaced(collected: Mapping[NodeId, int], change: Change, project: str) -> list[str]:
    """Note where no collected file is at the head: then ids start elsewhere than was said."""
    paths = {node_path(node_id) for node_id in collected}
    if not paths or any(_in_root(path, change) in change.paths for path in paths):
        return []
    first = min(paths).removeprefix(f"{project}/" if project else "")
    ends = sorted(path for path in change.paths if path.endswith(f"/{first}"))
    top = f"{change.root}/" if change.root else ""
    hint = f"; try --project {top}{ends[0].removesuffix(f'/{first}')}" if len(ends) == 1 else ""
    return [f"no file of the collected tests is at the head, such as {min(paths)}{hint}"]

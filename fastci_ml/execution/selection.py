"""Split collected tests by a plan: what runs, in what order, and what is left out. Standard library only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fastci_ml.execution.gate import Admission
from fastci_ml.records.ids import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What a plan meant for the tests that were collected.

    Attributes
    ----------
    n_collected : int
        Tests that were there when the plan was applied.
    n_kept : int
        Tests of these that run.
    left_out : dict of str to int
        Number of tests that the plan leaves out, by decision.
    unknown : list of NodeId
        Collected tests that the plan does not name; they run.
    missing : list of NodeId
        Tests that the plan runs and that were not collected.
    n_deselected : int
        Tests that the plan runs and that the command line or another plugin deselected.
    expected_s : float
        Sum of the expected durations of what runs, where the plan has one.
    n_untimed : int
        Tests that run and have none.
    saved_s : float
        Sum of the expected durations of what is left out, where the plan has one.
    kept_order : str
        What made the tests keep their usual order; empty where they follow that of the plan.
    """

    n_collected: int
    n_kept: int
    left_out: dict[str, int] = field(default_factory=dict)
    unknown: list[NodeId] = field(default_factory=list)
    missing: list[NodeId] = field(default_factory=list)
    n_deselected: int = 0
    expected_s: float = 0.0
    n_untimed: int = 0
    saved_s: float = 0.0
    kept_order: str = ""

    @property
    def n_left_out(self) -> int:
        """Tests that the plan leaves out."""
        return sum(self.left_out.values())

    def dumps(self) -> str:
        """JSON in ASCII, for the way from a worker to its controller."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Tally:
        """Inverse of `dumps`."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


def select(ids: Sequence[NodeId], seen: Sequence[NodeId], admission: Admission) -> tuple[list[int], Tally]:
    """Apply a plan that holds.

    Parameters
    ----------
    ids : sequence of NodeId
        Tests that would run without the plan, by their ids in plans.
    seen : sequence of NodeId
        Tests that were collected, before the command line or a plugin deselected any.
    admission : Admission
        The plan.

    Returns
    -------
    kept : list of int
        Places in `ids` of what runs, ascending.
    tally : Tally
        The counts; `kept` together with what the tally says is left out are all of `ids`.
    """
    kept: list[int] = []
    unknown: list[NodeId] = []
    left_out: Counter[str] = Counter()
    expected_s = saved_s = 0.0
    n_untimed = 0
    timed: set[NodeId] = set()  # an entry of a function has the duration of all its tests
    for place, node_id in enumerate(ids):
        entry_id = admission.entry_id(node_id)
        entry = admission.entries.get(entry_id)
        duration_s = None if entry is None else 0.0 if entry_id in timed else entry.duration_s
        timed.add(entry_id)
        if entry is not None and not entry.decision.is_run:
            left_out[entry.decision.value] += 1
            saved_s += duration_s or 0.0
            continue
        kept.append(place)
        if entry is None:
            unknown.append(node_id)
        if duration_s is None:
            n_untimed += 1
        else:
            expected_s += duration_s
    planned = {node_id for node_id, entry in admission.entries.items() if entry.decision.is_run}
    collected = {admission.entry_id(node_id) for node_id in seen}
    staying = {admission.entry_id(node_id) for node_id in ids}
    return kept, Tally(
        n_collected=len(ids),
        n_kept=len(kept),
        left_out=dict(sorted(left_out.items())),
        unknown=unknown,
        missing=sorted(planned - collected),
        n_deselected=len((planned & collected) - staying),
        expected_s=expected_s,
        n_untimed=n_untimed,
        saved_s=saved_s,
    )


def rank_key(node_id: NodeId, admission: Admission) -> tuple[int, str]:
    """Sort key of a test that runs: its place in the plan, ties by id.

    A test that the plan does not know goes before all others. The plan holds for this very tree, so such a
    test is most often one that the change brings or renames: nothing vouches for it, and it is the likeliest
    to fail. At the end it would also be the first that a time limit cuts off.
    """
    entry_id = admission.entry_id(node_id)
    entry = admission.entries.get(entry_id)
    # Tests of one function keep their usual order: their own ids would order them anew in each run.
    return (0, node_id) if entry is None else (entry.order, entry_id)

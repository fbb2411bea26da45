"""How much of a suite the evidence covers: what was recorded, by lane and scope, and what was imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fastci_ml.evidence.store.reading import RecordHead
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence_kinds import IMPORTED_SCOPES, Gap, may_narrow

_N_WORST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeOverview:
    """One lane and scope.

    Attributes
    ----------
    lane, scope : str
        Which.
    n_tests, n_complete : int
        Tests with a record; those whose newest record is complete.
    newest_us : int
        Time of the newest record, microseconds since the epoch, UTC.
    """

    lane: str
    scope: str
    n_tests: int
    n_complete: int
    newest_us: int

    @property
    def is_imported(self) -> bool:
        """Whether its records come from another tool, and so are never complete."""
        return self.scope in IMPORTED_SCOPES


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstTest:
    """A test that no evidence may leave out.

    Attributes
    ----------
    node_id, lane, scope : str
        Which.
    gaps : tuple of (Gap, str)
        Why its newest record is not complete.
    """

    node_id: str
    lane: str
    scope: str
    gaps: tuple[tuple[Gap, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceOverview:
    """The store in figures; a test counts once for each lane and scope, and imported ones not at all.

    Attributes
    ----------
    scopes : tuple of ScopeOverview
        By lane, then by scope; imported ones too.
    n_tests, n_complete : int
        Tests with a record, and those whose newest one is complete.
    reasons : dict of Gap to int
        Tests whose newest record has the gap, most first.
    worst : tuple of WorstTest
        At most ten: those with most reasons first.
    newest_trunk_us : int or None
        Time of the newest record of trunk, of any lane.
    """

    scopes: tuple[ScopeOverview, ...]
    n_tests: int
    n_complete: int
    reasons: dict[Gap, int]
    worst: tuple[WorstTest, ...]
    newest_trunk_us: int | None

    @property
    def complete_ratio(self) -> float:
        """Share of the recorded tests whose newest record is complete; NaN without any."""
        return self.n_complete / self.n_tests if self.n_tests else float("nan")


def view_evidence(store: EvidenceStore) -> EvidenceOverview:
    """Count what the store holds.

    Parameters
    ----------
    store : EvidenceStore
        Opened.

    Returns
    -------
    EvidenceOverview
        Of one state of it.
    """
    newest = _newest(store.records())
    by_scope: dict[tuple[str, str], list[RecordHead]] = {}
    for head in newest:
        by_scope.setdefault((head.lane, head.scope), []).append(head)
    scopes = tuple(
        ScopeOverview(
            lane=lane,
            scope=scope,
            n_tests=len(heads),
            n_complete=sum(not head.gaps for head in heads),
            newest_us=max(head.recorded_us for head in heads),
        )
        for (lane, scope), heads in sorted(by_scope.items())
    )
    recorded = [head for head in newest if head.scope not in IMPORTED_SCOPES]
    reasons = Counter(gap for head in recorded for gap in dict.fromkeys(gap for gap, _ in head.gaps))
    return EvidenceOverview(
        scopes=scopes,
        n_tests=len(recorded),
        n_complete=sum(not head.gaps for head in recorded),
        reasons=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        worst=tuple(_worst(recorded)),
        newest_trunk_us=max((found.newest_us for found in scopes if may_narrow(found.scope)), default=None),
    )


def _newest(heads: Iterable[RecordHead]) -> list[RecordHead]:
    """The newest record of each test, lane and scope."""
    found: dict[tuple[str, str, str], RecordHead] = {}
    for head in heads:
        key = (head.node_id, head.lane, head.scope)
        known = found.get(key)
        if known is None or (head.recorded_us, head.record_id) > (known.recorded_us, known.record_id):
            found[key] = head
    return list(found.values())


def _worst(heads: Iterable[RecordHead]) -> list[WorstTest]:
    incomplete = sorted(
        (head for head in heads if head.gaps),
        key=lambda head: (-len({gap for gap, _ in head.gaps}), head.node_id, head.lane, head.scope),
    )
    return [
        WorstTest(node_id=head.node_id, lane=head.lane, scope=head.scope, gaps=head.gaps)
        for head in incomplete[:_N_WORST]
    ]

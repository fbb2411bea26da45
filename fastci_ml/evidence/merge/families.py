"""Bundles of one recorded session: that of the outermost process, and those of the processes below it.

They are merged together, for only together they say what a test touched, and whether anything is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fastci_ml.records.evidence import Provenance
from fastci_ml.records.evidence_kinds import needs_trust


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One state of a bundle: a file that was looked at and not yet taken apart.

    Attributes
    ----------
    path : Path
        The file.
    provenance : Provenance
        Its first line.
    digest : str
        SHA-256 of its bytes, hexadecimal.
    n_bytes : int
        How many they are.
    is_known : bool
        Whether the store has the bundle in this state.
    """

    path: Path
    provenance: Provenance
    digest: str
    n_bytes: int
    is_known: bool


@dataclass(frozen=True, slots=True)
class BundleFamily:
    """The bundles of a session, each in all of its states: trusted ones first, then the largest.

    Attributes
    ----------
    roots : list of State
        States of the outermost bundle.
    children : list of list of State
        Those of each other one, by their ids.
    """

    roots: list[State]
    children: list[list[State]]

    @property
    def bundle_id(self) -> str:
        """Of the outermost bundle."""
        return self.roots[0].provenance.bundle_id

    @property
    def states(self) -> list[State]:
        """All."""
        return [*self.roots, *(state for states in self.children for state in states)]

    @property
    def n_states(self) -> int:
        """How many files there are."""
        return len(self.roots) + sum(map(len, self.children))

    @property
    def n_bytes(self) -> int:
        """Of the largest state of each bundle."""
        return self.roots[0].n_bytes + sum(states[0].n_bytes for states in self.children)

    @property
    def group(self) -> tuple[str, ...]:
        """What bundles that stand on the same sources have in common."""
        given = self.roots[0].provenance
        return (given.lane, given.scope, given.commit, given.tree)

    @property
    def order(self) -> tuple[str, ...]:
        """As they are merged: groups together, sessions together."""
        given = self.roots[0].provenance
        return (*self.group, given.session_id, given.bundle_id)


def families_of(states: Iterable[State]) -> tuple[list[BundleFamily], dict[str, list[State]]]:
    """Sort bundles by family.

    A bundle that names another one its parent and is of another lane, scope or commit is none of it: what it
    touched says nothing about the tests there.

    Returns
    -------
    families : list of BundleFamily
        Those whose outermost bundle is there.
    orphans : dict of str to list of State
        The others, by the bundle that they name.
    """
    roots: dict[str, list[State]] = {}
    children: dict[str, dict[str, list[State]]] = {}
    for state in sorted(states, key=_order):
        given = state.provenance
        if given.parent:
            children.setdefault(given.parent, {}).setdefault(given.bundle_id, []).append(state)
        else:
            roots.setdefault(given.bundle_id, []).append(state)
    families = []
    for bundle_id, own in roots.items():
        first = own[0].provenance
        below = [
            states for states in children.pop(bundle_id, {}).values() if is_kin(states[0].provenance, first)
        ]
        families.append(BundleFamily(own, below))
    orphans = {
        parent: [state for states in by_id.values() for state in states] for parent, by_id in children.items()
    }
    return families, orphans


def _order(state: State) -> tuple[object, ...]:
    # What is believed of trunk first: a larger state that is not believed says nothing of trunk.
    given = state.provenance
    return (given.bundle_id, not needs_trust(given.scope), -state.n_bytes, state.digest)


def is_kin(child: Provenance, root: Provenance) -> bool:
    """Whether a bundle, as far as it is believed, says of itself what the outermost one does."""
    return child.parent == root.bundle_id and _common(child) == _common(root)


def _common(given: Provenance) -> tuple[str, ...]:
    return (given.session_id, given.lane, given.scope, given.commit, given.tree)

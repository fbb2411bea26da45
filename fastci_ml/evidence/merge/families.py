"""Bundles of one recorded session: that of the outermost process, and those of the processes below it.

They are merged together, for only together they say what a test touched, and whether anything is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fastci_ml.records.evidence import Provenance


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
    """

    path: Path
    provenance: Provenance
    digest: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Family:
    """The bundles of a session, each in all of its states, the largest first.

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
    def digest(self) -> str:
        """Of the largest state of each bundle."""
        own = [(states[0].provenance.bundle_id, states[0].digest) for states in self.children]
        return digest_of(self.roots[0].digest, own)

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


def digest_of(root: str, children: Iterable[tuple[str, str]]) -> str:
    """Digest of a family from those of its bundles; of one without children that of its file.

    Parameters
    ----------
    root : str
        Digest of the outermost bundle.
    children : iterable of (str, str)
        Id and digest of each other one.
    """
    names = [f"{bundle_id} {digest}" for bundle_id, digest in sorted(children)]
    return hashlib.sha256("\n".join([root, *names]).encode()).hexdigest() if names else root


def families_of(states: Iterable[State]) -> tuple[list[Family], dict[str, list[State]]]:
    """Sort bundles by family.

    A bundle that names another one its parent and is of another lane, scope or commit is none of it: what it
    touched says nothing about the tests there.

    Returns
    -------
    families : list of Family
        Those whose outermost bundle is there.
    orphans : dict of str to list of State
        The others, by the bundle that they name.
    """
    roots: dict[str, list[State]] = {}
    children: dict[str, dict[str, list[State]]] = {}
    for state in sorted(states, key=lambda one: (one.provenance.bundle_id, -one.n_bytes, one.digest)):
        given = state.provenance
        if given.parent:
            children.setdefault(given.parent, {}).setdefault(given.bundle_id, []).append(state)
        else:
            roots.setdefault(given.bundle_id, []).append(state)
    families = []
    for bundle_id, own in roots.items():
        first = own[0].provenance
        below = [
            states
            for states in children.pop(bundle_id, {}).values()
            if _kin(states[0].provenance) == _kin(first)
        ]
        families.append(Family(own, below))
    orphans = {
        parent: [state for states in by_id.values() for state in states] for parent, by_id in children.items()
    }
    return families, orphans


def _kin(given: Provenance) -> tuple[str, ...]:
    return (given.session_id, given.lane, given.scope, given.commit, given.tree)

"""Merging bundles into the store: each once, in any order and any number of calls, and never half."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.reader import (
    Bundle,
    digest_bundle,
    find_bundles,
    open_bundle,
    read_bundle,
)
from fastci_ml.evidence.merge.bundle_evidence import BundleEvidence, build_records, merged_of
from fastci_ml.evidence.merge.families import BundleFamily, State, families_of, is_kin
from fastci_ml.evidence.merge.problems import as_line
from fastci_ml.evidence.merge.sources_at_hand import ParsedSources, SourcesAtHand, is_below_root
from fastci_ml.evidence.merge.trust import AS_DECLARED, Trust
from fastci_ml.evidence.store.batch import MergeBatch, MergedBundle
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import EvidenceRecord
from fastci_ml.records.evidence_kinds import Gap, needs_trust
from fastci_ml.records.progress import ProgressHook, silent

# Bundles of one transaction. In memory they take some twenty times their size.
_MAX_BUNDLES = 64
_MAX_BYTES = 8 << 20


@dataclass(slots=True)
class MergeSummary:
    """What a merge did.

    Attributes
    ----------
    n_files : int
        Files found that should be bundles.
    n_merged : int
        Bundles merged.
    n_known : int
        Bundles that the store has already, as they are or in a state that says more.
    n_records : int
        Records that are in force now.
    n_superseded, n_outdated : int
        Older records that they took the place of; records that something newer was there for.
    n_untrusted : int
        Files of bundles that say whose code ran and could not show it: stored as `UNTRUSTED_SCOPE`.
    n_complete : int
        Tests, one for each bundle that ran it, whose record is complete.
    n_processes : int
        Processes that tests started whose bundles were merged with those of their tests.
    recorder_s : float
        CPU seconds that recording took in these.
    n_waiting : int
        Bundles of processes without that of the tests which started them: they wait for it.
    gaps : Counter of Gap
        Tests, counted the same way, whose record has the gap.
    problems : list of str
        One line for each file that could not be used; it stays where it is.
    """

    n_files: int = 0
    n_merged: int = 0
    n_known: int = 0
    n_records: int = 0
    n_superseded: int = 0
    n_outdated: int = 0
    n_untrusted: int = 0
    n_complete: int = 0
    n_processes: int = 0
    recorder_s: float = 0.0
    n_waiting: int = 0
    gaps: Counter[Gap] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def merge_bundles(
    paths: Sequence[Path],
    store_path: Path,
    *,
    root: Path,
    now_us: int | None = None,
    trust: Trust = AS_DECLARED,
    progress: ProgressHook = silent,
) -> MergeSummary:
    """Merge bundles into the evidence store.

    The bundles of a commit are written in few transactions, each whole or not at all: a merge may be killed
    at any moment, and done again.

    Parameters
    ----------
    paths : sequence of Path
        Bundles, and folders to look for them in; sources lie beside each bundle.
    store_path : Path
        File of the store; made where missing.
    root : Path
        Top of the working tree, for sources that do not lie beside the bundle.
    now_us : int, optional
        Time of the merge, microseconds since the epoch, UTC; this machine's clock by default.
    trust : Trust
        Which bundles are believed when they say whose code ran; all by default.
    progress : ProgressHook
        Called before each transaction, and at the end.

    Returns
    -------
    MergeSummary
        `problems` is not empty when a file could not be used.

    Raises
    ------
    EvidenceError
        If the store cannot be used.
    """
    merge = _Merge(root, time.time_ns() // 1_000 if now_us is None else now_us, trust)
    found = find_bundles(list(paths))
    merge.summary.n_files = len(found)
    if not found:
        merge.add_problem(f"{', '.join(map(str, paths))}: no bundle found")
        return merge.summary
    with EvidenceStore.open(store_path, create=True) as store:
        families = list(merge.new_families(found, store))
        n_done = 0
        for chunk in _chunks(families):
            progress("merge", n_done, len(families))
            merge.add_chunk(chunk, store)
            n_done += len(chunk)
        progress("merge", n_done, len(families))
    return merge.summary


def _chunks(families: Iterable[BundleFamily]) -> Iterator[list[BundleFamily]]:
    """Families for one transaction each, of bundles that stand on the same sources."""
    for _, group in groupby(sorted(families, key=lambda one: one.order), key=lambda one: one.group):
        chunk: list[BundleFamily] = []
        n_bytes = 0
        for family in group:
            if chunk and (len(chunk) >= _MAX_BUNDLES or n_bytes + family.n_bytes > _MAX_BYTES):
                yield chunk
                chunk, n_bytes = [], 0
            chunk.append(family)
            n_bytes += family.n_bytes
        yield chunk


class _Merge:
    """One call of `merge_bundles`: what all of its bundles share."""

    def __init__(self, root: Path, now_us: int, trust: Trust) -> None:
        self._root = root
        self._trust = trust
        self._now_us = now_us
        self._parsed = ParsedSources()
        self._is_file: dict[str, bool] = {}
        self.summary = MergeSummary()

    def add_problem(self, text: str) -> None:
        """Add a problem as one line, whatever the names in it hold."""
        self.summary.problems.append(as_line(text))

    def new_families(self, paths: Iterable[Path], store: EvidenceStore) -> Iterator[BundleFamily]:
        """Families of bundles that the store does not have as they are."""
        states: list[State] = []
        seen: set[tuple[str, str]] = set()
        for path in paths:
            try:
                with open_bundle(path) as stream:
                    declared, digest, n_bytes = digest_bundle(path, stream)
            except EvidenceError as error:
                self.add_problem(str(error))
                continue
            provenance = self._trust.judge(declared, digest, store)
            self.summary.n_untrusted += provenance.scope != declared.scope
            key = (provenance.bundle_id, digest)
            if key in seen:
                self.summary.n_known += 1
                continue
            seen.add(key)
            is_known = store.has_bundle(*key, scope=provenance.scope)
            states.append(
                State(path=path, provenance=provenance, digest=digest, n_bytes=n_bytes, is_known=is_known)
            )
        families, orphans = families_of(states)
        for waiting in orphans.values():
            n_known = sum(state.is_known for state in waiting)
            self.summary.n_known += n_known
            self.summary.n_waiting += len(waiting) - n_known
        for family in families:
            if all(state.is_known for state in family.states):
                self.summary.n_known += family.n_states
            elif family.children:
                yield family
            else:
                new = [state for state in family.roots if not state.is_known]
                self.summary.n_known += len(family.roots) - len(new)
                yield BundleFamily(new, [])

    def add_chunk(self, chunk: list[BundleFamily], store: EvidenceStore) -> None:
        """Add families of bundles in one transaction."""
        evidence: list[BundleEvidence] = []
        merged: list[MergedBundle] = []
        for family in chunk:
            bundle = self._best(family, store)
            if bundle is None:
                continue
            sources = SourcesAtHand([state.path for state in family.states], self._root)
            one = build_records(
                bundle,
                sources,
                children=self._children(family, store, merged),
                exists=self._exists,
                parsed=self._parsed,
            )
            merged.append(one.merged)
            evidence.append(one)
            self.summary.n_processes += one.n_processes
            self.summary.recorder_s += one.recorder_s
        if not evidence:
            return
        written = store.write(
            MergeBatch(
                bundles=merged,
                records=self._records(evidence),
                merged_us=self._now_us,
                file_versions={key: one.file_versions[key] for one in evidence for key in one.file_versions},
                edges=frozenset(chain.from_iterable(one.edges for one in evidence)),
                import_units=frozenset(chain.from_iterable(one.import_units for one in evidence)),
            )
        )
        summary = self.summary
        summary.n_merged += len(evidence)
        summary.n_records += written.n_records
        summary.n_superseded += written.n_superseded
        summary.n_outdated += written.n_outdated

    def _best(self, family: BundleFamily, store: EvidenceStore) -> Bundle | None:
        """The state of the outermost bundle that says most; None if the store has as much of the family."""
        best = self._fullest(family.roots, store)
        if best is None:
            return None
        stored = store.bundle(best.provenance.bundle_id)
        given = {states[0].provenance.bundle_id for states in family.children}
        if stored is not None and store.children_of(family.bundle_id) - given:
            # Less than the store was made of, though some of it may be new.
            self.summary.n_known += family.n_states
            return None
        is_news = any(not state.is_known for states in family.children for state in states)
        # With new children the same state of it says more than it did.
        if stored is not None and (_rank(stored), not is_news) > (_rank(best), False):
            self.summary.n_known += 1
            return None
        return best

    def _children(
        self, family: BundleFamily, store: EvidenceStore, merged: list[MergedBundle]
    ) -> Iterator[Bundle]:
        """Of each child the state that says most, one at a time; what they are is put down."""
        for states in family.children:
            bundle = self._fullest(states, store)
            # What is not as it was when it was looked at may be of nobody here.
            if bundle is not None and is_kin(bundle.provenance, family.roots[0].provenance):
                merged.append(merged_of(bundle))
                yield bundle

    def _fullest(self, states: list[State], store: EvidenceStore) -> Bundle | None:
        """The state of one bundle that says most, of those that can be read."""
        best: Bundle | None = None
        for state in states:
            if best is not None and not best.gaps:
                # It is whole, and states come the largest first.
                self.summary.n_known += 1
                continue
            try:
                bundle = read_bundle(state.path)
            except EvidenceError as error:
                self.add_problem(str(error))
                continue
            # Anew, for the file may have changed since it was looked at.
            bundle.provenance = self._trust.judge(bundle.provenance, bundle.digest, store)
            if best is not None:
                self.summary.n_known += 1
            if best is None or _rank(bundle) > _rank(best):
                best = bundle
        return best

    def _records(self, evidence: list[BundleEvidence]) -> Iterator[EvidenceRecord]:
        for record in heapq.merge(*(one.records() for one in evidence), key=lambda record: record.node_id):
            self.summary.n_complete += record.is_complete
            self.summary.gaps.update({gap for gap, _ in record.gaps})
            yield record

    def _exists(self, path: str) -> bool:
        known = self._is_file.get(path)
        if known is None:
            known = self._is_file[path] = is_below_root(path) and (self._root / path).is_file()
        return known


def _rank(bundle: Bundle | MergedBundle) -> tuple[bool, bool, int, str]:
    """By how much a state of a bundle says: it only grows, and its last line says that it is whole.

    What is believed of trunk comes first: nobody else may put something larger in its place.
    """
    return (needs_trust(bundle.provenance.scope), not bundle.gaps, bundle.n_bytes, bundle.digest)

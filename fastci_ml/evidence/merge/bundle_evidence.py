"""From the bundle of a recorded process, and those of its children, to the records of its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from fastci_ml.evidence.bundle.reader import Bundle
from fastci_ml.evidence.merge.block_names import simple_name
from fastci_ml.evidence.merge.bundle_parts import BundleParts
from fastci_ml.evidence.merge.processes import Processes, Window, windows_of
from fastci_ml.evidence.merge.sources_at_hand import ParsedSources, SourceReader
from fastci_ml.evidence.store.batch import MergedBundle
from fastci_ml.records.evidence import EvidenceRecord, FileSeen, ProcessFacts, RunFacts, UnitSeen
from fastci_ml.records.evidence_kinds import COMMAND_BACKEND, Gap
from fastci_ml.records.ids import split_node_id
from fastci_ml.records.outcomes import Outcome
from fastci_ml.sources.blocks.block import Block

# A test that is expected to fail stops where it fails, and one that is not to be run is never begun: what is
# behind was not seen, though it decides whether the expectation still holds.
_RAN_THROUGH = frozenset({Outcome.PASSED, Outcome.XPASSED})
# Of one kind, of which the rest is counted; and characters of each.
_MAX_DETAILS = 3
_MAX_DETAIL = 300
_MAX_PROCESSES = 20


@dataclass(slots=True)
class BundleEvidence:
    """What one bundle says, with those of the processes that were started from it.

    Attributes
    ----------
    merged : MergedBundle
        Its name and state, for the store.
    file_versions : mapping of (str, str) to tuple of Block
        By path and blob id, the blocks of each Python file that ran or was imported.
    edges : frozenset of (str, str, str)
        Lane, path of the importing and of the imported file.
    import_units : frozenset of (str, str, UnitSeen)
        Lane, path of a module, a unit that was executed while it was imported.
    n_processes : int
        Children whose bundles are at hand.
    recorder_s : float
        CPU time that recording took in those that came to their end.
    """

    merged: MergedBundle
    file_versions: Mapping[tuple[str, str], tuple[Block, ...]]
    edges: frozenset[tuple[str, str, str]]
    import_units: frozenset[tuple[str, str, UnitSeen]]
    n_processes: int
    recorder_s: float
    _records: _Records

    def records(self) -> Iterator[EvidenceRecord]:
        """A record for each test, by node id: one at a time, for together they may be large."""
        return self._records.all()


def build_records(
    bundle: Bundle,
    sources: SourceReader,
    *,
    children: Iterable[Bundle] = (),
    exists: Callable[[str], bool] | None = None,
    parsed: ParsedSources | None = None,
) -> BundleEvidence:
    """Take a bundle apart.

    Parameters
    ----------
    bundle : Bundle
        As it was read; that of an outermost process.
    sources : callable
        Content of a file by path and blob id; None where it is not at hand.
    children : iterable of Bundle
        Those of the processes that were started from it, directly or not; each is gone through once.
    exists : callable, optional
        Whether a path is a file of the repository, also if the bundle does not name it: what import
        statements may name.
    parsed : ParsedSources, optional
        What other bundles of the merge have taken apart.

    Returns
    -------
    BundleEvidence
        The same for the same bundles, sources and files.
    """
    parsed = parsed or ParsedSources()
    parts = BundleParts(bundle, sources, exists=exists, parsed=parsed)
    lane = bundle.provenance.lane
    file_versions = dict(parts.file_versions)
    edges = {(lane, *edge) for edge in parts.edges}
    import_units = {(lane, path, unit) for path, unit in parts.import_units()}
    facts: list[ProcessFacts | None] = []

    def taken_apart() -> Iterator[BundleParts]:
        for child in children:
            of_child = BundleParts(child, sources, exists=exists, parsed=parsed)
            file_versions.update(of_child.file_versions)
            edges.update((lane, *edge) for edge in of_child.edges)
            import_units.update((lane, path, unit) for path, unit in of_child.import_units())
            facts.append(child.process)
            yield of_child

    records = _Records(parts, taken_apart())
    return BundleEvidence(
        merged=merged_of(bundle),
        file_versions=file_versions,
        edges=frozenset(edges),
        import_units=frozenset(import_units),
        n_processes=len(facts),
        recorder_s=sum(one.recorder_s for one in facts if one is not None),
        _records=records,
    )


def merged_of(bundle: Bundle) -> MergedBundle:
    """Name and state of a bundle, for the store."""
    return MergedBundle(
        provenance=bundle.provenance,
        name=bundle.path.name,
        digest=bundle.digest,
        gaps=_shortened(dict.fromkeys(bundle.gaps)),
        n_bytes=bundle.n_bytes,
    )


class _Records:
    def __init__(self, parts: BundleParts, children: Iterable[BundleParts]) -> None:
        self._parts = parts
        self._bundle = parts.bundle
        runs = self._bundle.runs
        starts = [
            (label, runs[number].started_us)
            for label, numbers in parts.tests.items()
            for number in numbers
            if number in runs
        ]
        windows = list(windows_of(starts))
        self._windows: dict[str, list[Window]] = {}
        for window in windows:
            self._windows.setdefault(window.label, []).append(window)
        booked = [child for capture in self._bundle.captures.values() for child in capture.children]
        self._processes = Processes(children, windows, booked)

    def all(self) -> Iterator[EvidenceRecord]:
        for label in sorted(self._parts.tests):
            yield self._record(label, self._parts.tests[label])

    def _record(self, node_id: str, attempts: list[int]) -> EvidenceRecord:
        bundle, provenance = self._bundle, self._bundle.provenance
        path, names = split_node_id(node_id).path, split_node_id(node_id).names[-1:]
        facts, fact_gaps = self._facts(attempts)
        whole = self._parts.of_tests(attempts, self._own_roots(path))
        found = self._processes.of_test(whole.children, self._window(node_id, attempts))
        others = found.whole
        gaps = {**dict.fromkeys(bundle.gaps), **whole.gaps, **others.gaps, **fact_gaps}
        reads = set(whole.reads | others.reads)
        own_units = whole.own_units | others.units
        if provenance.backend == COMMAND_BACKEND:
            if not own_units:
                gaps[Gap.OWN_UNIT_MISSING, "none of its processes ran code of the repository"] = None
        elif facts.is_doctest or not path.endswith(".py"):
            # Text is run: it has no unit, and is compared as a file.
            reads.add(self._parts.file_by_path.get(path, FileSeen(path=path, blob=None)))
        elif not _has_own_unit(own_units, path, names):
            gaps[Gap.OWN_UNIT_MISSING, ""] = None
        readers = [
            name
            for number in attempts
            if number in bundle.runs
            for name in bundle.runs[number].native_readers
        ]
        readers += [name for one in found.facts for name in one.native_readers]
        return EvidenceRecord(
            node_id=node_id,
            lane=provenance.lane,
            scope=provenance.scope,
            commit=provenance.commit,
            recorded_us=facts.started_us,
            backend=provenance.backend,
            units=whole.units | others.units,
            reads=frozenset(reads),
            listings=whole.listings | others.listings,
            roots=whole.roots | others.roots,
            environ=whole.environ | others.environ,
            native_readers=tuple(dict.fromkeys(readers)),
            gaps=_shortened(gaps),
            facts=_with_processes(facts, found.facts, found.shown),
        )

    def _window(self, node_id: str, attempts: list[int]) -> Window | None:
        """When a test ran, from its first attempt to its last; None if one did not come to its end."""
        windows = self._windows.get(node_id, [])
        if len(windows) < len(attempts):
            return None
        return Window(node_id, windows[0].start_us, windows[-1].end_us)

    def _facts(self, attempts: list[int]) -> tuple[RunFacts, dict[tuple[Gap, str], None]]:
        """Facts of the last attempt, and what they say of completeness."""
        facts = self._bundle.runs.get(attempts[-1])
        if facts is None:
            started_us = self._bundle.provenance.started_us
            unknown = RunFacts(outcome=Outcome.UNKNOWN.value, started_us=started_us)
            return unknown, {(Gap.NO_END_MARK, "its end was not recorded"): None}
        # All attempts together hold what it touches, but only the last says what became of it.
        return facts, {} if facts.outcome in _RAN_THROUGH else {(Gap.DID_NOT_PASS, facts.outcome): None}

    def _own_roots(self, path: str) -> set[str]:
        """Module of a test, and what is loaded with it: conftests and packages of the folders around it."""
        known = self._parts.file_by_path
        found = {path} if path.endswith(".py") or path in known else set()
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            for name in ("conftest.py", "__init__.py"):
                beside = f"{folder}/{name}" if folder else name
                if beside in known:
                    found.add(beside)
        return found


def _with_processes(facts: RunFacts, others: list[ProcessFacts], shown: tuple[str, ...]) -> RunFacts:
    if not shown:
        return facts
    all_peaks = [facts.peak_rss_bytes, *(one.peak_rss_bytes for one in others)]
    peaks = [peak for peak in all_peaks if peak is not None]
    if len(shown) > _MAX_PROCESSES:
        shown = (*shown[:_MAX_PROCESSES], f"and {len(shown) - _MAX_PROCESSES} more")
    return replace(facts, peak_rss_bytes=max(peaks, default=None), processes=shown)


def _has_own_unit(units: frozenset[UnitSeen], path: str, names: tuple[str, ...]) -> bool:
    """Whether the test itself was seen: code of its module, or its function, inherited from another."""
    return any(unit.path == path or simple_name(unit.name) in names for unit in units)


def _shortened(gaps: dict[tuple[Gap, str], None]) -> tuple[tuple[Gap, str], ...]:
    """Gaps with few details of each kind: every test of a bundle holds them again."""
    details: dict[Gap, list[str]] = {}
    for gap, detail in gaps:
        details.setdefault(gap, []).append(detail)
    found = []
    for gap, all_details in details.items():
        found += [(gap, detail[:_MAX_DETAIL]) for detail in all_details[:_MAX_DETAILS]]
        if len(all_details) > _MAX_DETAILS:
            found.append((gap, f"and {len(all_details) - _MAX_DETAILS} more"))
    return tuple(found)

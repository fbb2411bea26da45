"""From one bundle to the records of its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from fastci_ml.evidence.bundle.reader import Bundle
from fastci_ml.evidence.merge.block_names import simple_name
from fastci_ml.evidence.merge.capture_sums import ENDLESS, MAX_STEPS, CaptureSum, CaptureSums, add_up
from fastci_ml.evidence.merge.code_units import CodeUnits
from fastci_ml.evidence.merge.import_evidence import ImportEvidence
from fastci_ml.evidence.merge.memo_rule import MemoRule
from fastci_ml.evidence.merge.sources_at_hand import ParsedSources, SourceReader
from fastci_ml.evidence.merge.static_imports import StaticImports
from fastci_ml.evidence.merge.worker_threads import BLIND_BACKENDS, WorkerThreadRule
from fastci_ml.evidence.store.batch import MergedBundle
from fastci_ml.records.evidence import EvidenceRecord, FileSeen, RunFacts, UnitSeen
from fastci_ml.records.evidence_kinds import CaptureKind, Gap
from fastci_ml.records.ids import split_node_id
from fastci_ml.records.outcomes import Outcome
from fastci_ml.sources.blocks.block import Block

# A test that is expected to fail stops where it fails, and one that is not to be run is never begun: what is
# behind was not seen, though it decides whether the expectation still holds.
_RAN_THROUGH = frozenset({Outcome.PASSED, Outcome.XPASSED})
# Of one kind, of which the rest is counted; and characters of each.
_MAX_DETAILS = 3
_MAX_DETAIL = 300


@dataclass(slots=True)
class BundleEvidence:
    """What one bundle says.

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
    """

    merged: MergedBundle
    file_versions: Mapping[tuple[str, str], tuple[Block, ...]]
    edges: frozenset[tuple[str, str, str]]
    import_units: frozenset[tuple[str, str, UnitSeen]]
    _records: _Records

    def records(self) -> Iterator[EvidenceRecord]:
        """A record for each test, by node id: one at a time, for together they may be large."""
        return self._records.all()


def build_records(
    bundle: Bundle,
    sources: SourceReader,
    *,
    exists: Callable[[str], bool] | None = None,
    parsed: ParsedSources | None = None,
) -> BundleEvidence:
    """Take a bundle apart.

    Parameters
    ----------
    bundle : Bundle
        As it was read.
    sources : callable
        Content of a file by path and blob id; None where it is not at hand.
    exists : callable, optional
        Whether a path is a file of the repository, also if the bundle does not name it: what import
        statements may name.
    parsed : ParsedSources, optional
        What other bundles of the merge have taken apart.

    Returns
    -------
    BundleEvidence
        The same for the same bundle, sources and files.
    """
    code_units = CodeUnits(bundle, parsed or ParsedSources(), sources)
    memos = MemoRule(code_units)
    sums = CaptureSums(code_units, memos.code_memos)
    paths = {seen.path for seen in bundle.files.values()}
    static = StaticImports(
        paths.__contains__ if exists is None else lambda path: path in paths or exists(path)
    )
    imports = ImportEvidence(code_units, sums, memos, static)
    is_blind = bundle.provenance.backend in BLIND_BACKENDS
    threads = WorkerThreadRule(code_units, static) if is_blind else None
    lane = bundle.provenance.lane
    return BundleEvidence(
        merged=MergedBundle(
            provenance=bundle.provenance,
            name=bundle.path.name,
            digest=bundle.digest,
            gaps=_shortened(dict.fromkeys(bundle.gaps)),
            n_bytes=bundle.n_bytes,
        ),
        file_versions={
            (file.seen.path, file.seen.blob): file.blocks.blocks
            for file in code_units.distinct_files
            if file.blocks is not None and file.seen.blob is not None
        },
        edges=frozenset((lane, *edge) for edge in imports.edges),
        import_units=frozenset((lane, path, unit) for path, unit in imports.units()),
        _records=_Records(bundle, sums, memos, imports, threads),
    )


class _Records:
    def __init__(
        self,
        bundle: Bundle,
        sums: CaptureSums,
        memos: MemoRule,
        imports: ImportEvidence,
        threads: WorkerThreadRule | None,
    ) -> None:
        self._bundle = bundle
        self._sums = sums
        self._memos = memos
        self._imports = imports
        self._threads = threads
        self._attempts: dict[str, list[int]] = {}
        self._file_by_path: dict[str, FileSeen] = {}
        sessions = []
        for number in sorted(bundle.captures):
            capture = bundle.captures[number]
            if capture.kind is CaptureKind.TEST:
                self._attempts.setdefault(capture.label, []).append(number)
            elif capture.kind is CaptureKind.SESSION:
                sessions.append(number)
        for _, seen in sorted(bundle.files.items()):
            self._file_by_path[seen.path] = seen
        base = add_up([*map(sums.own, sessions), sums.below(sessions)])
        # Conftests of all folders are loaded by one process; a test stands on those around it.
        roots = frozenset(path for path in base.roots if not _is_conftest(path)) | imports.plugins
        self._base = replace(base, roots=roots)

    def all(self) -> Iterator[EvidenceRecord]:
        for label in sorted(self._attempts):
            yield self._record(label, self._attempts[label])

    def _record(self, node_id: str, attempts: list[int]) -> EvidenceRecord:
        bundle, provenance = self._bundle, self._bundle.provenance
        parts = split_node_id(node_id)
        facts, fact_gaps = self._facts(attempts)
        own = add_up([self._sums.own(number) for number in attempts])
        total, imported = own, CaptureSum(gaps={ENDLESS: None})
        units, roots = own.units, own.roots | self._own_roots(parts.path)
        if self._sums.n_steps < MAX_STEPS:
            total = add_up([own, self._sums.below(attempts), self._base])
            if total.memos:
                total = add_up([total, self._memos.served(total.memos, attempts[-1])])
            units, roots = self._with_unseen(total), roots | total.roots
            imported = self._imports.behind(roots, units)
            self._sums.n_steps += len(units) + total.n_things + imported.n_things
        gaps = {**dict.fromkeys(bundle.gaps), **total.gaps, **imported.gaps, **fact_gaps}
        reads = {bundle.files[number] for number in total.reads | imported.reads}
        if facts.is_doctest or not parts.path.endswith(".py"):
            # Text is run: it has no unit, and is compared as a file.
            reads.add(self._file_by_path.get(parts.path, FileSeen(path=parts.path, blob=None)))
        elif not _has_own_unit(own.units, parts.path, parts.names[-1:]):
            gaps[Gap.OWN_UNIT_MISSING, ""] = None
        ran = [bundle.runs[number] for number in attempts if number in bundle.runs]
        return EvidenceRecord(
            node_id=node_id,
            lane=provenance.lane,
            scope=provenance.scope,
            commit=provenance.commit,
            recorded_us=facts.started_us,
            backend=provenance.backend,
            units=units,
            reads=frozenset(reads),
            listings=frozenset(bundle.files[number] for number in total.listings | imported.listings),
            roots=roots,
            environ=total.environ | imported.environ,
            native_readers=tuple(dict.fromkeys(name for one in ran for name in one.native_readers)),
            gaps=_shortened(gaps),
            facts=facts,
        )

    def _with_unseen(self, total: CaptureSum) -> frozenset[UnitSeen]:
        """Units with those that may have run on threads which nobody sees."""
        if self._threads is None:
            return total.units
        return total.units.union(*map(self._threads.of_file, total.files))

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
        found = {path} if path.endswith(".py") or path in self._file_by_path else set()
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            for name in ("conftest.py", "__init__.py"):
                beside = f"{folder}/{name}" if folder else name
                if beside in self._file_by_path:
                    found.add(beside)
        return found


def _is_conftest(path: str) -> bool:
    return path.rpartition("/")[2] == "conftest.py"


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

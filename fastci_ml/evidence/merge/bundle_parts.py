"""What captures of a bundle say, together with all that they stand on, free of its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from fastci_ml.evidence.bundle.reader import Bundle
from fastci_ml.evidence.merge.capture_sums import ENDLESS, MAX_STEPS, CaptureSum, CaptureSums, add_up
from fastci_ml.evidence.merge.code_units import CodeUnits
from fastci_ml.evidence.merge.import_evidence import ImportEvidence
from fastci_ml.evidence.merge.memo_rule import MemoRule
from fastci_ml.evidence.merge.sources_at_hand import ParsedSources, SourceReader
from fastci_ml.evidence.merge.static_imports import StaticImports
from fastci_ml.evidence.merge.worker_threads import BLIND_BACKENDS, WorkerThreadRule
from fastci_ml.records.evidence import FileSeen, UnitSeen
from fastci_ml.records.evidence_kinds import CaptureKind, Gap
from fastci_ml.sources.blocks.block import Block


@dataclass(slots=True)
class Whole:
    """What one test or process touched.

    Attributes
    ----------
    own_units : frozenset of UnitSeen
        Executed while it was the innermost capture.
    units : frozenset of UnitSeen
        All, with what is implied by rule.
    reads, listings : frozenset of FileSeen
        Files opened for reading, directories listed.
    roots : frozenset of str
        Paths that its import closure starts from.
    environ : frozenset of str
        Variables read.
    gaps : dict of (Gap, str)
        A dict for its order.
    children : dict of str to str
        Processes that may have worked for it, by name, with a detail for a person.
    """

    own_units: frozenset[UnitSeen] = frozenset()
    units: frozenset[UnitSeen] = frozenset()
    reads: frozenset[FileSeen] = frozenset()
    listings: frozenset[FileSeen] = frozenset()
    roots: frozenset[str] = frozenset()
    environ: frozenset[str] = frozenset()
    gaps: dict[tuple[Gap, str], None] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)


def unite(parts: Iterable[Whole]) -> Whole:
    """Several in one; own units are those of the first."""
    found = list(parts)
    if not found:
        return Whole()
    total = Whole(
        own_units=found[0].own_units,
        units=frozenset().union(*[part.units for part in found]),
        reads=frozenset().union(*[part.reads for part in found]),
        listings=frozenset().union(*[part.listings for part in found]),
        roots=frozenset().union(*[part.roots for part in found]),
        environ=frozenset().union(*[part.environ for part in found]),
    )
    for part in found:
        total.gaps |= part.gaps
        total.children |= part.children
    return total


class BundleParts:
    """One bundle, taken apart.

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

    Attributes
    ----------
    bundle : Bundle
        As given.
    tests : dict of str to list of int
        By label, numbers of the captures of tests: of one that was run again several.
    file_by_path : dict of str to FileSeen
        Its files; of several versions the last.
    """

    def __init__(
        self,
        bundle: Bundle,
        sources: SourceReader,
        *,
        exists: Callable[[str], bool] | None = None,
        parsed: ParsedSources | None = None,
    ) -> None:
        self.bundle = bundle
        self._code_units = CodeUnits(bundle, parsed or ParsedSources(), sources)
        self._memos = MemoRule(self._code_units)
        self._sums = CaptureSums(self._code_units, self._memos.code_memos)
        paths = {seen.path for seen in bundle.files.values()}
        static = StaticImports(
            paths.__contains__ if exists is None else lambda path: path in paths or exists(path)
        )
        self._imports = ImportEvidence(self._code_units, self._sums, self._memos, static)
        is_blind = bundle.provenance.backend in BLIND_BACKENDS
        self._threads = WorkerThreadRule(self._code_units, static) if is_blind else None
        self.tests: dict[str, list[int]] = {}
        self.sessions: list[int] = []
        for number in sorted(bundle.captures):
            capture = bundle.captures[number]
            if capture.kind is CaptureKind.TEST:
                self.tests.setdefault(capture.label, []).append(number)
            elif capture.kind is CaptureKind.SESSION:
                self.sessions.append(number)
        self.file_by_path = {seen.path: seen for _, seen in sorted(bundle.files.items())}
        base = add_up([*map(self._sums.own, self.sessions), self._sums.below(self.sessions)])
        # Conftests of all folders are loaded by one process; a test stands on those around it.
        self._session = replace(base, roots=base.roots | self._imports.plugins)
        roots = frozenset(path for path in base.roots if not _is_conftest(path)) | self._imports.plugins
        self._base = replace(base, roots=roots)

    @property
    def file_versions(self) -> Mapping[tuple[str, str], tuple[Block, ...]]:
        """By path and blob id, the blocks of each Python file that ran or was imported."""
        return {
            (file.seen.path, file.seen.blob): file.blocks.blocks
            for file in self._code_units.distinct_files
            if file.blocks is not None and file.seen.blob is not None
        }

    @property
    def edges(self) -> frozenset[tuple[str, str]]:
        """Paths of importing and imported files."""
        return self._imports.edges

    def import_units(self) -> Iterable[tuple[str, UnitSeen]]:
        """By path of a module, units that were executed while it was imported."""
        return self._imports.units()

    def of_tests(self, attempts: list[int], roots: Iterable[str]) -> Whole:
        """What a test touched in all its attempts, with the session that all stand on, from more roots."""
        own = add_up([self._sums.own(number) for number in attempts])
        return self._whole(own, [own, self._sums.below(attempts), self._base], attempts[-1], roots)

    def of_session(self) -> Whole:
        """What a process touched outside of its tests."""
        last = self.sessions[-1] if self.sessions else 0
        return self._whole(self._session, [self._session], last, ())

    def of_task(self, number: int) -> Whole:
        """What one test of a child touched, without the process around it."""
        own = self._sums.own(number)
        return self._whole(own, [own, self._sums.below([number])], number, ())

    def _whole(self, own: CaptureSum, parts: list[CaptureSum], last: int, roots: Iterable[str]) -> Whole:
        total, imported = own, CaptureSum(gaps={ENDLESS: None})
        units, all_roots = own.units, own.roots | frozenset(roots)
        if self._sums.n_steps < MAX_STEPS:
            total = add_up(parts)
            if total.memos:
                total = add_up([total, self._memos.served(total.memos, last)])
            units, all_roots = self._with_unseen(total), all_roots | total.roots
            imported = self._imports.behind(all_roots, units)
            self._sums.n_steps += len(units) + total.n_things + imported.n_things
        files = self.bundle.files
        return Whole(
            own_units=own.units,
            units=units,
            reads=frozenset([files[number] for number in total.reads | imported.reads]),
            listings=frozenset([files[number] for number in total.listings | imported.listings]),
            roots=all_roots,
            environ=total.environ | imported.environ,
            gaps={**total.gaps, **imported.gaps},
            children={**total.children, **imported.children},
        )

    def _with_unseen(self, total: CaptureSum) -> frozenset[UnitSeen]:
        """Units with those that may have run on threads which nobody sees."""
        if self._threads is None:
            return total.units
        return total.units.union(*map(self._threads.of_file, total.files))


def _is_conftest(path: str) -> bool:
    return path.rpartition("/")[2] == "conftest.py"

"""What a bundle says of imports: who imported whom, what ran and was read meanwhile, and who stands on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fastci_ml.evidence.merge.bits import bits
from fastci_ml.evidence.merge.capture_sums import CaptureSum, CaptureSums, add_up
from fastci_ml.evidence.merge.code_units import CodeUnits
from fastci_ml.evidence.merge.import_reach import ImportReach
from fastci_ml.evidence.merge.memo_rule import MemoRule
from fastci_ml.evidence.merge.static_imports import StaticImports
from fastci_ml.records.evidence import UnitSeen
from fastci_ml.records.evidence_kinds import BlockKind, CaptureKind, Gap
from fastci_ml.records.ids import node_path

_NOTHING = CaptureSum()
# Tests come in order of node id, and neighbours mostly lead to the same modules.
_N_KEPT = 32


class ImportEvidence:
    """Imports of one bundle.

    Parameters
    ----------
    code_units : CodeUnits
        What its code objects are.
    sums : CaptureSums
        What its captures hold.
    memos : MemoRule
        What its memos may have served.
    static : StaticImports
        What its import statements name.

    Attributes
    ----------
    edges : frozenset of (str, str)
        Importing and imported file. Seen while it happened, and from the text: who comes second executes
        nothing, and depends on it all the same.
    plugins : frozenset of str
        Modules that nothing of the repository is seen to import, and that are no tests: named by a setting
        or on the command line, they are loaded for every test of the process.
    """

    def __init__(
        self, code_units: CodeUnits, sums: CaptureSums, memos: MemoRule, static: StaticImports
    ) -> None:
        self._code_units = code_units
        # By path of a module, the captures of its execution, with what they stand on.
        self._captures: dict[str, list[CaptureSum]] = {}
        for number, capture in sorted(code_units.bundle.captures.items()):
            if capture.kind is CaptureKind.IMPORT:
                whole = add_up([sums.own(number), sums.below([number])])
                asked = whole.memos | memos.of_module(capture.label)
                if asked:
                    whole = add_up([whole, memos.served(asked, number)])
                self._captures.setdefault(capture.label, []).append(whole)
        self.edges = frozenset(self._edges(static))
        self.plugins = self._plugins()
        self._marked = {path: found for path, found in self._of_modules() if _matters(found)}
        self._reach = ImportReach(self.edges, self._marked)
        self._sums_by_mask: dict[int, CaptureSum] = {}

    def units(self) -> Iterator[tuple[str, UnitSeen]]:
        """By path of a module, units that were executed while it was imported, once or several times."""
        for path, captures in self._captures.items():
            for whole in captures:
                for unit in whole.units:
                    # Statements of the module itself are compared as what they are.
                    if unit.kind in (BlockKind.FUNCTION, BlockKind.FILE) or unit.path != path:
                        yield path, unit

    def behind(self, roots: Iterable[str], units: Iterable[UnitSeen]) -> CaptureSum:
        """What was read, or went wrong, while the modules behind a test were imported.

        Only files, variables and gaps are of interest; units of imports have a table of their own.
        """
        if not self._marked:
            return _NOTHING
        mask = 0
        for path in {*roots, *(unit.path for unit in units)}:
            mask |= self._reach.from_path(path)
        found = self._sums_by_mask.get(mask)
        if found is None:
            if len(self._sums_by_mask) >= _N_KEPT:
                del self._sums_by_mask[next(iter(self._sums_by_mask))]
            paths = [path for bit in bits(mask) for path in self._reach.marked_paths(bit)]
            found = self._sums_by_mask[mask] = add_up([_NOTHING, *(self._marked[path] for path in paths)])
        return found

    def _edges(self, static: StaticImports) -> Iterator[tuple[str, str]]:
        bundle = self._code_units.bundle
        for importer, imported in set(bundle.edges):
            if bundle.files[importer].path != bundle.files[imported].path:
                yield bundle.files[importer].path, bundle.files[imported].path
        for path, captures in self._captures.items():
            for whole in captures:
                yield from ((path, imported) for imported in whole.roots if imported != path)
        for file in self._code_units.distinct_files:
            yield from ((file.seen.path, imported) for imported in static.of_file(file))

    def _plugins(self) -> frozenset[str]:
        bundle = self._code_units.bundle
        known = {imported for _, imported in self.edges}
        for capture in bundle.captures.values():
            if capture.kind in (CaptureKind.TEST, CaptureKind.COLLECTOR):
                known.add(node_path(capture.label))
            if capture.kind is not CaptureKind.SESSION:
                known.update(bundle.files[file].path for file in capture.imports)
        return frozenset(
            path
            for path in self._captures
            if path not in known and path.rpartition("/")[2] not in ("conftest.py", "__init__.py")
        )

    def _of_modules(self) -> Iterator[tuple[str, CaptureSum]]:
        missing = {
            file.seen.path: (Gap.SOURCE_MISSING, file.seen.path)
            for file in self._code_units.distinct_files
            if file.blocks is None
        }
        for path in self._captures.keys() | missing.keys():
            whole = add_up([_NOTHING, *self._captures.get(path, ())])
            if path in missing:
                whole = replace(whole, gaps={**whole.gaps, missing[path]: None})
            # Of these nothing but files, variables and gaps is handed on.
            yield path, replace(whole, units=frozenset(), files=frozenset(), roots=frozenset(), memos=0)


def _matters(found: CaptureSum) -> bool:
    return bool(found.reads or found.listings or found.environ or found.gaps or found.children)

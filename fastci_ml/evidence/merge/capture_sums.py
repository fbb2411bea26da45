"""What captures hold, by themselves and with all that they stand on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fastci_ml.evidence.bundle.reader import Bundle
from fastci_ml.evidence.merge.code_units import MODULE_CODE, CodeUnits
from fastci_ml.records.evidence import Capture, UnitSeen
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

# Captures looked at and things handed on in one bundle: beyond any real one, and a minute of work.
MAX_STEPS = 50_000_000
ENDLESS = (Gap.RECORDER_FAILED, "its bundle holds more than can be followed")
# Tests come in order of node id, and neighbours mostly use the same fixtures.
_N_KEPT = 32


@dataclass(slots=True)
class CaptureSum:
    """What one capture holds, or several together.

    Attributes
    ----------
    units : frozenset of UnitSeen
        Executed.
    files : frozenset of int
        Numbers of the Python files that it executed code of.
    reads, listings : frozenset of int
        Numbers of files.
    roots : frozenset of str
        Paths of modules that it imported, or ran the code of.
    environ : frozenset of str
        Variables read.
    memos : int
        A bit for each memo that it may have been served from.
    gaps : dict of (Gap, str)
        A dict for its order.
    children : dict of str to str
        Processes that may have worked for it, by name, with a detail for a person.
    """

    units: frozenset[UnitSeen] = frozenset()
    files: frozenset[int] = frozenset()
    reads: frozenset[int] = frozenset()
    listings: frozenset[int] = frozenset()
    roots: frozenset[str] = frozenset()
    environ: frozenset[str] = frozenset()
    memos: int = 0
    gaps: dict[tuple[Gap, str], None] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)

    @property
    def n_things(self) -> int:
        """How much there is to hand on."""
        kinds = (self.units, self.files, self.reads, self.listings, self.roots, self.environ, self.gaps)
        return 1 + sum(map(len, kinds)) + len(self.children)


def add_up(sums: Iterable[CaptureSum]) -> CaptureSum:
    """Several sums in one; gaps in their order."""
    parts = list(sums)
    if len(parts) == 1:
        return parts[0]
    total = CaptureSum(
        units=frozenset().union(*[part.units for part in parts]),
        files=frozenset().union(*[part.files for part in parts]),
        reads=frozenset().union(*[part.reads for part in parts]),
        listings=frozenset().union(*[part.listings for part in parts]),
        roots=frozenset().union(*[part.roots for part in parts]),
        environ=frozenset().union(*[part.environ for part in parts]),
    )
    for part in parts:
        total.memos |= part.memos
        total.gaps |= part.gaps
        total.children |= part.children
    return total


class CaptureSums:
    """Sums of the captures of one bundle.

    Parameters
    ----------
    code_units : CodeUnits
        What its code objects are.
    code_memos : mapping of int to int
        By code number, bits of the memos that it may have been served from.

    Attributes
    ----------
    n_steps : int
        Work so far, for `MAX_STEPS`.
    """

    def __init__(self, code_units: CodeUnits, code_memos: dict[int, int]) -> None:
        self._bundle: Bundle = code_units.bundle
        self._code_units = code_units
        self._code_memos = code_memos
        self._own: dict[int, CaptureSum] = {}
        self._together: dict[frozenset[int], CaptureSum] = {}
        self.n_steps = 0

    def own(self, number: int) -> CaptureSum:
        """What a capture holds by itself."""
        found = self._own.get(number)
        if found is None:
            found = self._add_codes(number)
            if self._bundle.captures[number].kind is not CaptureKind.TEST:
                self._own[number] = found
        return found

    def _add_codes(self, number: int) -> CaptureSum:
        bundle, units = self._bundle, self._code_units
        capture = bundle.captures[number]
        modules = {
            bundle.codes[code].file for code in capture.codes if bundle.codes[code].name == MODULE_CODE
        }
        gaps = dict.fromkeys(capture.gaps)
        gaps |= dict.fromkeys(units.gaps[code] for code in sorted(capture.codes & units.gaps.keys()))
        total = CaptureSum(
            units=frozenset().union(*[units.units[code] for code in capture.codes]),
            files=frozenset([bundle.codes[code].file for code in capture.codes]),
            reads=capture.reads,
            listings=capture.listings,
            roots=frozenset(bundle.files[file].path for file in capture.imports | modules),
            environ=capture.environ,
            gaps=gaps,
            children=dict(capture.children),
        )
        for code in capture.codes & self._code_memos.keys():
            total.memos |= self._code_memos[code]
        return total

    def below(self, numbers: Iterable[int]) -> CaptureSum:
        """What captures stand on, and what that stands on.

        A capture that is not there, and work without end, are gaps. What stands on a test is a cache: where
        its misses were too many to be told apart, or ran in a thread, all of the test counts for it. What
        ran in a test while the session was open is not the session's.
        """
        captures = self._bundle.captures
        first = frozenset().union(*[self._uses(captures[number]) for number in numbers])
        if not first:
            return CaptureSum()
        known = self._together.get(first)
        if known is None:
            if len(self._together) >= _N_KEPT:
                del self._together[next(iter(self._together))]
            known = self._together[first] = self._follow(first)
        return known

    def _uses(self, capture: Capture) -> frozenset[int]:
        if capture.kind is not CaptureKind.SESSION:
            return capture.uses
        captures = self._bundle.captures
        tests = [n for n in capture.uses if n in captures and captures[n].kind is CaptureKind.TEST]
        return capture.uses.difference(tests)

    def _follow(self, first: frozenset[int]) -> CaptureSum:
        captures = self._bundle.captures
        bundle_id = self._bundle.provenance.bundle_id
        missing: set[int] = set()
        found: set[int] = set()
        todo = list(first)
        while todo and self.n_steps < MAX_STEPS:
            number = todo.pop()
            self.n_steps += 1
            if number in found:
                continue
            capture = captures.get(number)
            if capture is None:
                missing.add(number)
            else:
                found.add(number)
                todo.extend(self._uses(capture))
        if self.n_steps >= MAX_STEPS:
            return CaptureSum(gaps={ENDLESS: None})
        parts = [self.own(number) for number in sorted(found)]
        self.n_steps += sum(part.n_things for part in parts)
        if missing:
            lost = Gap.TORN_LINE, f"bundle {bundle_id}: capture {min(missing)} is missing"
            parts.append(CaptureSum(gaps={lost: None}))
        return add_up(parts)

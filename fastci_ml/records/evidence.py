"""What a test was seen to touch: the nouns of runtime evidence. No I/O, standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BlockKind(StrEnum):
    """What a piece of a Python file is."""

    FUNCTION = "function"
    """A function or method, nested ones too, with its decorators and defaults."""
    CLASS = "class"
    """The head of a class: name, bases, keywords, decorators. Its body has blocks of its own."""
    BINDING = "binding"
    """A statement of a module or class body that binds names: constant, attribute, import."""
    EFFECT = "effect"
    """A statement of a module or class body that is run for what it does: registration, set-up."""
    FILE = "file"
    """A whole file: one that does not parse, or is not Python."""


class CaptureKind(StrEnum):
    """What was going on while units were captured."""

    SESSION = "session"
    """Between collection and tests: hooks of conftest files. Every test of the process stands on it."""
    COLLECTOR = "collector"
    """Collection of one file, class or folder: tests below it stand on it."""
    IMPORT = "import"
    """Execution of one module of the repository, nested imports excluded."""
    FIXTURE = "fixture"
    """Set-up of one instance of a fixture of a wider scope than one test."""
    CACHE = "cache"
    """Misses of one cache of the repository: whoever is served from it stands on them."""
    TEST = "test"
    """One test: set-up, call and teardown."""


class Gap(StrEnum):
    """Why a record does not hold all that its test touched. Such a test is always selected."""

    NO_END_MARK = "no_end_mark"
    TORN_LINE = "torn_line"
    SLOT_LOST = "slot_lost"
    RECORDER_FAILED = "recorder_failed"
    OWN_UNIT_MISSING = "own_unit_missing"
    CHILD_WITHOUT_RECORD = "child_without_record"
    THREAD_UNSEEN = "thread_unseen"
    COMPILED_UNSEEN = "compiled_unseen"
    CACHE_UNSEEN = "cache_unseen"
    FIXTURES_UNKNOWN = "fixtures_unknown"
    SOURCE_MISSING = "source_missing"
    SOURCE_CHANGED = "source_changed"
    COPY_DIFFERS = "copy_differs"
    DID_NOT_PASS = "did_not_pass"  # noqa: S105  a reason, no password
    WEAK_SOURCE = "weak_source"
    """Imported from another tool, which does not see children, files and import-time code."""

    @property
    def meaning(self) -> str:
        """One line for a person."""
        return _MEANINGS[self]


_MEANINGS = {
    Gap.NO_END_MARK: "the process that ran it was killed, or its bundle was not copied whole",
    Gap.TORN_LINE: "a line of its bundle is damaged",
    Gap.SLOT_LOST: "another tool took the interpreter's hook while it ran",
    Gap.RECORDER_FAILED: "the recorder failed while it ran",
    Gap.OWN_UNIT_MISSING: "not even its own function was seen, so nothing was recorded",
    Gap.CHILD_WITHOUT_RECORD: "it started a process, or ran beside one, that left no record",
    Gap.THREAD_UNSEEN: "it started a thread that this interpreter's hook does not see",
    Gap.COMPILED_UNSEEN: "compiled code ran whose inlined functions are not known",
    Gap.CACHE_UNSEEN: "it was served from a cache that was filled before recording began",
    Gap.FIXTURES_UNKNOWN: "which shared fixtures it used could not be asked",
    Gap.SOURCE_MISSING: "the source of a file that it ran is not at hand, so nothing can be compared",
    Gap.SOURCE_CHANGED: "a file that it ran was changed while the tests ran",
    Gap.COPY_DIFFERS: "it ran another state of a file: an installed copy, or that of another checkout",
    Gap.DID_NOT_PASS: "it was skipped or failed, so code behind that point was never reached",
    Gap.WEAK_SOURCE: "its evidence was imported from another tool, which sees less",
}


TRUNK_SCOPE = "trunk"
DIRTY_SCOPE = "dirty"


def pull_request_scope(number: str) -> str:
    """Scope of a pull request.

    Examples
    --------
    >>> pull_request_scope("7")
    'pr:7'
    """
    return f"pr:{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a bundle comes from.

    Attributes
    ----------
    bundle_id : str
        Unique name of the bundle, of hexadecimal digits.
    session_id : str
        The same for all processes of one test session.
    lane : str
        Environment, as `detect_lane` names it.
    scope : str
        ``trunk``, ``dirty`` (the checkout differed from its commit) or ``pr:<number>``: each is kept apart.
    commit, tree : str
        Full shas; empty where git could not be asked.
    python, backend : str
        Interpreter version and what recorded: ``monitoring``, ``profile``, ``coverage``, ``testmon``.
    worker : str
        Name of the pytest-xdist worker; empty without one.
    started_us : int
        Start, microseconds since the epoch, UTC.
    """

    bundle_id: str
    session_id: str
    lane: str
    scope: str
    commit: str
    tree: str
    python: str
    backend: str
    worker: str
    started_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSeen:
    r"""One file of the repository, as it was when it was seen.

    Attributes
    ----------
    path : str
        From the repository root, with ``/``; bytes that are no UTF-8 as lone surrogates.
    blob : str or None
        Git's blob id of the content (SHA-1 over ``blob <size>\0`` and the bytes); None when it could not be
        read or is too large to hash while a test runs: then only git can tell whether it changed.
    """

    path: str
    blob: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSeen:
    """A code object that was entered: where it stands, as the interpreter names it.

    Attributes
    ----------
    file : int
        Number of its file in the bundle.
    name : str
        ``co_qualname``; ``<module>`` for a module's own code.
    line : int
        ``co_firstlineno``, which is a decorator's line where there is one.
    """

    file: int
    name: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What ran and was read in one stretch of a process; numbers are those of its bundle.

    Attributes
    ----------
    kind : CaptureKind
        What was going on.
    label : str
        Node id of a test or collector, name of a fixture or cache, path of a module.
    codes : frozenset of int
        Code objects entered.
    reads : frozenset of int
        Files opened for reading.
    listings : frozenset of int
        Directories listed; `FileSeen` with the blob of their sorted names.
    imports : frozenset of int
        Files of modules that it imported, also when they were loaded before.
    environ : frozenset of str
        Names of watched environment variables that were read.
    uses : frozenset of int
        Captures that it stands on: fixtures, caches, collectors.
    gaps : tuple of (Gap, str)
        Why it may be incomplete, each with a detail for a person.
    """

    kind: CaptureKind
    label: str
    codes: frozenset[int] = frozenset()
    reads: frozenset[int] = frozenset()
    listings: frozenset[int] = frozenset()
    imports: frozenset[int] = frozenset()
    environ: frozenset[str] = frozenset()
    uses: frozenset[int] = frozenset()
    gaps: tuple[tuple[Gap, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What else is known of one test's run."""

    outcome: str
    started_us: int
    setup_s: float | None = None
    call_s: float | None = None
    teardown_s: float | None = None
    is_doctest: bool = False
    native_readers: tuple[str, ...] = ()
    """Libraries, loaded by then, that read files past the interpreter's audit hook."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSeen:
    """One block that a test executed, as it was.

    Attributes
    ----------
    path : str
        File, from the repository root.
    name : str
        Name of the block.
    kind : BlockKind
        What it is.
    fingerprint : str
        Of the block when it ran.
    """

    path: str
    name: str
    kind: BlockKind
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRecord:
    """What one test touched in one lane: the unit of merge, storage and selection.

    Attributes
    ----------
    node_id : str
        Test, as pytest named it from the repository root.
    lane, scope, commit : str
        Where it comes from; see `Provenance`.
    recorded_us : int
        Start of the test, microseconds since the epoch, UTC.
    backend : str
        What recorded it.
    units : frozenset of UnitSeen
        Blocks executed, owners of nested functions and what is implied by rule included.
    reads, listings : frozenset of FileSeen
        Files opened for reading, directories listed.
    roots : frozenset of str
        Paths that its import closure starts from: its module, its conftests, what it imported while running.
    environ : frozenset of str
        Watched environment variables that it read.
    native_readers : tuple of str
        Libraries, loaded by then, that read files unseen.
    gaps : tuple of (Gap, str)
        Why it is not complete; empty for a complete record.
    facts : RunFacts
        Outcome and times.
    """

    node_id: str
    lane: str
    scope: str
    commit: str
    recorded_us: int
    backend: str
    units: frozenset[UnitSeen]
    reads: frozenset[FileSeen]
    listings: frozenset[FileSeen]
    roots: frozenset[str]
    environ: frozenset[str]
    native_readers: tuple[str, ...]
    gaps: tuple[tuple[Gap, str], ...]
    facts: RunFacts

    @property
    def is_complete(self) -> bool:
        """Whether it may narrow a selection."""
        return not self.gaps

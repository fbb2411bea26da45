"""What a test was seen to touch: the nouns of runtime evidence. No I/O, standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from fastci_ml.records.evidence_kinds import BlockKind, CaptureKind, Gap


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
    job : str
        CI job that ran it, as `detect_job` names it; empty outside of CI.
    parent : str
        Of a process that a recorded one started, directly or not: the bundle of the outermost of those.
        Empty for that one itself.
    process : str
        What the process is called by who starts it, see `Capture.children`; empty where it cannot be told.
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
    job: str = ""
    parent: str = ""
    process: str = ""


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
    children : tuple of (str, str)
        Processes that may have worked for it, each with a detail for a person: those that it started, and
        those that lived beside it. A process is called by its id and the time of its start in clock ticks
        since the start of the system, with a blank between: no other one ever has that name on a machine.
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
    children: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """What a process that a recorded one started says of itself, when it ends.

    Attributes
    ----------
    command : str
        For a person, without folders.
    rank, world_size : int or None
        As ``RANK`` and ``WORLD_SIZE`` had them last; None where they were not set.
    cpu_s : float
        User and system time, its own and that of the children that it waited for.
    recorder_s : float
        Of that, what recording took at the start and the end, in the process alone.
    peak_rss_bytes : int or None
        Most memory that it held at one time.
    native_readers : tuple of str
        As in `RunFacts`.
    ended_us : int or None
        When it said so, microseconds since the epoch, UTC.
    """

    command: str
    rank: int | None = None
    world_size: int | None = None
    cpu_s: float = 0.0
    recorder_s: float = 0.0
    peak_rss_bytes: int | None = None
    native_readers: tuple[str, ...] = ()
    ended_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What else is known of one test's run. None is "not known"; zero is only said where it was seen.

    Attributes
    ----------
    outcome : str
        As `Outcome` has it.
    started_us : int
        Microseconds since the epoch, UTC.
    setup_s, call_s, teardown_s : float or None
        Wall time of its phases.
    is_doctest : bool
        Whether it is one.
    native_readers : tuple of str
        Libraries, loaded by then, that read files past the interpreter's audit hook.
    notes : tuple of str
        For a person.
    cpu_s : float or None
        User and system time of the test's process and of the children that it waited for.
    peak_rss_bytes : int or None
        Most memory that any of its processes held at one time.
    n_gpus, gpu_s, gpu_peak_bytes : int, float, int or None
        Devices held, seconds times part of a device held, most memory held on all of them together.
    gpu_by : str
        How the GPU figures were tied to the test, as `Attribution` has it; empty without any.
    processes : tuple of str
        Those that recorded themselves for it, for a person: commands, with rank and world size.
    """

    outcome: str
    started_us: int
    setup_s: float | None = None
    call_s: float | None = None
    teardown_s: float | None = None
    is_doctest: bool = False
    native_readers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cpu_s: float | None = None
    peak_rss_bytes: int | None = None
    n_gpus: int | None = None
    gpu_s: float | None = None
    gpu_peak_bytes: int | None = None
    gpu_by: str = ""
    processes: tuple[str, ...] = ()


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

"""What evidence is called: kinds of blocks and captures, reasons why a record is not complete, scopes.

Apart from the nouns that use them: every recorded process loads this, and few load `dataclasses`.
"""

from __future__ import annotations

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
    Gap.NO_END_MARK: "a process that ran for it was killed or lives on, or its bundle was not copied whole",
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


# How the detail of a process begins that was not started by who books it, but lived beside it.
LIVES_ON = "lives on: "

# Of a bundle whose one test is a command: all that it touches was touched by its processes.
COMMAND_BACKEND = "command"

# Scopes: whose code ran. `TRUNK_SCOPE` alone may leave a test out; of all others a plan can only grow.
TRUNK_SCOPE = "trunk"
DIRTY_SCOPE = "dirty"
UNTRUSTED_SCOPE = "untrusted"
"""What a merge with a key or a list of digests makes of bundles that claim more than they can show."""
COVERAGE_SCOPE = "coverage"
TESTMON_SCOPE = "testmon"
IMPORTED_SCOPES = (COVERAGE_SCOPE, TESTMON_SCOPE)
"""Scopes that hold nothing but imported records; each is named as the tool."""
_PULL_REQUEST = "pr:"


def pull_request_scope(number: str) -> str:
    """Scope of a pull request.

    Examples
    --------
    >>> pull_request_scope("7")
    'pr:7'
    """
    return f"{_PULL_REQUEST}{number}"


def may_narrow(scope: str) -> bool:
    """Whether evidence of a scope may leave a test out; that of all other scopes only adds tests.

    A scope of an unknown name narrows nothing.

    Examples
    --------
    >>> [scope for scope in ("trunk", "pr:7", "dirty", "untrusted", "coverage", "mine") if may_narrow(scope)]
    ['trunk']
    """
    return scope == TRUNK_SCOPE


def needs_trust(scope: str) -> bool:
    """Whether a bundle has to show where it comes from before it is stored under a scope.

    All but the scopes that by their name only add tests: somebody may ask for any other by name.

    Examples
    --------
    >>> [scope for scope in ("trunk", "pr:7", "dirty", "untrusted", "coverage", "mine") if needs_trust(scope)]
    ['trunk', 'mine']
    """
    return scope not in (DIRTY_SCOPE, UNTRUSTED_SCOPE, *IMPORTED_SCOPES) and not is_pull_request(scope)


def is_pull_request(scope: str) -> bool:
    """Whether a scope is that of a pull request.

    Examples
    --------
    >>> is_pull_request("pr:unknown"), is_pull_request("trunk")
    (True, False)
    """
    return scope.startswith(_PULL_REQUEST)

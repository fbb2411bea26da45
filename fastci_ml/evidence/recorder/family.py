"""What the processes of one recorded session have in common, and how those that are started learn of it."""

from __future__ import annotations

import sys
from os import environ, fsdecode, fsencode, fstat, putenv, unsetenv, urandom
from os.path import basename, join
from time import time_ns

from fastci_ml.evidence.bundle.source_pack_writer import (
    COUNT_SUFFIX,
    PROCESSES_SUFFIX,
    SHARED_SUFFIX,
    SharedSources,
)
from fastci_ml.evidence.bundle.writer import BundleWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# Set while tests are recorded; without it the start-up hook does nothing. Programs do not see it: it is in
# the environment that the system hands on, and not in `os.environ`.
VARIABLE = "FASTCI_CHILDREN"
_MARK = VARIABLE.encode()
# Set by `fastci-ml record --id`: the test that a command is.
TEST_VARIABLE = "FASTCI_TEST"
# Of these one at least is in each copy of the environment of a test; the first two are pytest's.
_COPIED = (b"PYTEST_CURRENT_TEST=", b"PYTEST_VERSION=", b"FASTCI_TEST=")
_FORM = "1"
# Printed by `env` and read line by line: nothing that anybody takes for the end of one.
_BETWEEN = ";"
_BETWEEN_ITEMS = ","
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-:+@=* ")
_TEXTS = ("top", "project", "bundles", "session_id", "lane", "scope", "commit", "tree", "job", "parent")
_LISTS = ("outside", "environ_prefixes", "skipped", "trusted", "flushed")
_TEST = "PYTEST_CURRENT_TEST"
_open, _putenv, _unsetenv = open, putenv, unsetenv


class Begin:
    """What `Provenance` is, for a child."""

    __slots__ = (
        "backend",
        "bundle_id",
        "commit",
        "job",
        "lane",
        "parent",
        "process",
        "python",
        "scope",
        "session_id",
        "started_us",
        "tree",
        "worker",
    )

    def __init__(self, **given: Any) -> None:
        for name in self.__slots__:
            setattr(self, name, given[name])


class Family:
    """What a recorded process hands on to those that it starts.

    Parameters
    ----------
    **given
        The attributes below.

    Attributes
    ----------
    top, bundles : str
        Top of the repository, and folder of bundles.
    project : str
        Folder of pytest's root from the top of the repository; empty for the top itself.
    session_id, lane, scope, commit, tree, job, parent : str
        As in `Provenance`; `parent` is the bundle of the outermost process.
    outside, environ_prefixes : tuple of str
        Folders that no test is about; beginnings of names of watched variables.
    skipped : tuple of str
        Patterns of commands that are not recorded.
    trusted : tuple of str
        Patterns of commands that are no Python, and start none but what records.
    flushed : tuple of str
        Patterns of commands that complete their bundles at SIGTERM.
    limit : int
        Of one test so many processes record; 0 for all.
    """

    def __init__(self, **given: Any) -> None:
        self.top: str = given["top"]
        self.project: str = given["project"]
        self.bundles: str = given["bundles"]
        self.session_id: str = given["session_id"]
        self.lane: str = given["lane"]
        self.scope: str = given["scope"]
        self.commit: str = given["commit"]
        self.tree: str = given["tree"]
        self.job: str = given["job"]
        self.parent: str = given["parent"]
        self.outside: tuple[str, ...] = given["outside"]
        self.environ_prefixes: tuple[str, ...] = given["environ_prefixes"]
        self.skipped: tuple[str, ...] = given["skipped"]
        self.trusted: tuple[str, ...] = given["trusted"]
        self.flushed: tuple[str, ...] = given["flushed"]
        self.limit: int = given["limit"]

    def as_text(self) -> str:
        """Value of `VARIABLE`."""
        lists = [_BETWEEN_ITEMS.join(map(_quoted, getattr(self, name))) for name in _LISTS]
        texts = [_quoted(getattr(self, name)) for name in _TEXTS]
        return _BETWEEN.join([_FORM, str(self.limit), *texts, *lists])

    @classmethod
    def from_text(cls, text: str) -> Family:
        """Inverse of `as_text`; raises ValueError for anything else, another release's among it."""
        parts = text.split(_BETWEEN)
        if len(parts) != 2 + len(_TEXTS) + len(_LISTS) or parts[0] != _FORM:
            raise ValueError(f"{VARIABLE} is not of this release of fastci-ml")
        texts = dict(zip(_TEXTS, map(_unquoted, parts[2:]), strict=False))
        lists = {
            name: tuple(map(_unquoted, part.split(_BETWEEN_ITEMS))) if part else ()
            for name, part in zip(_LISTS, parts[2 + len(_TEXTS) :], strict=True)
        }
        return cls(limit=int(parts[1]), **texts, **lists)

    def shared_sources(self) -> SharedSources:
        """Sources that any process of the session keeps."""
        return SharedSources(join(self.bundles, self.parent + SHARED_SUFFIX))

    def new_writer(self, backend: str, process: str) -> BundleWriter:
        """The bundle of this process; raises OSError where none can be written."""
        started_ns = time_ns()
        begin = Begin(
            bundle_id=urandom(16).hex(),
            session_id=self.session_id,
            lane=self.lane,
            scope=self.scope,
            commit=self.commit,
            tree=self.tree,
            python=".".join(map(str, sys.version_info[:3])),
            backend=backend,
            worker="",
            started_us=started_ns // 1000,
            job=self.job,
            parent=self.parent,
            process=process,
        )
        writer = BundleWriter(self.bundles, begin, shared=self.shared_sources())  # type: ignore[arg-type]
        with _open(self._processes_file, "ab", buffering=0) as stream:
            stream.write(b"%b\n" % process.encode("ascii"))
        return writer

    @property
    def _processes_file(self) -> str:
        return join(self.bundles, self.parent + PROCESSES_SUFFIX)

    def new_processes(self, place: int) -> tuple[list[str], int]:
        """Names of the processes that began to record since this was last asked, and where to go on.

        Parameters
        ----------
        place : int
            0 at first.
        """
        try:
            with _open(self._processes_file, "rb") as stream:
                stream.seek(place)
                lines = stream.read().rpartition(b"\n")[0]
        except OSError:
            return [], place
        return lines.decode("ascii", "replace").split("\n"), place + len(lines) + 1 if lines else place

    def takes(self, command: str) -> bool:
        """Whether a process of this command, this one, is to record itself."""
        if matches(command, self.skipped):
            return False
        if not self.limit:
            return True
        # One byte a process, in a file of its test: whoever finds it too long stays out.
        path = join(self.bundles, f"{self.parent}-{hash_of(environ.get(_TEST, ''))}{COUNT_SUFFIX}")
        try:
            with _open(path, "ab", buffering=0) as stream:
                stream.write(b"+")
                return fstat(stream.fileno()).st_size <= self.limit
        except OSError:
            return True


def _quoted(text: str) -> str:
    """In printable ASCII without the marks between; to load `urllib.parse` would take too long."""
    return "".join(c if c in _PLAIN else "".join(f"%{byte:02x}" for byte in fsencode(c)) for c in text)


def _unquoted(text: str) -> str:
    first, *rest = text.split("%")
    parts = [bytes.fromhex(part[:2]) + fsencode(part[2:]) for part in rest]
    return fsdecode(b"".join([fsencode(first), *parts]))


def hand_on(text: str) -> None:
    """Let processes that are started from now on find it; empty to let them find none."""
    if text:
        _putenv(VARIABLE, text)
    else:
        _unsetenv(VARIABLE)


def take_variable() -> str:
    """Its value, which no program sees any more; it is handed on as before."""
    held = getattr(environ, "_data", None)
    if isinstance(held, dict) and _MARK in held:
        return fsdecode(held.pop(_MARK))
    return environ.get(VARIABLE, "")


def with_variable(text: str, entries: Sequence[bytes]) -> list[bytes] | None:
    """Environment of a child, given as a copy of that of its parent, as it would have been handed on.

    None for all others: whoever says what a process is to find wants it to find that alone.
    """
    if any(entry.startswith(_MARK + b"=") for entry in entries) or not any(
        entry.startswith(_COPIED) for entry in entries
    ):
        return None
    return [*entries, _MARK + b"=" + fsencode(text)]


def is_copy(mapping: Mapping[Any, Any]) -> bool:
    """The same of an environment as a mapping, by which `posix_spawn` takes it: whether it is such a copy."""
    names = {name if isinstance(name, bytes) else fsencode(name) for name in mapping}
    return _MARK not in names and any(entry[:-1] in names for entry in _COPIED)


def test_of(value: str) -> str:
    """Node id in a value of ``PYTEST_CURRENT_TEST``.

    Examples
    --------
    >>> test_of("tests/test_a.py::test_x[(call)] (setup)"), test_of("")
    ('tests/test_a.py::test_x[(call)]', '')
    """
    return value[: value.rfind(" (")] if value.endswith(")") and " (" in value else value


def current_test(mapping: Mapping[str, str] = environ) -> str:
    """Test that a process was started for, as its environment says."""
    return test_of(mapping.get(_TEST, "")) or mapping.get(TEST_VARIABLE, "")


def own_command() -> str:
    """Command of this process, as patterns are compared with: its program without folders, then the rest."""
    words = getattr(sys, "orig_argv", sys.argv)
    return " ".join([basename(words[0]) if words else "", *words[1:]])


def matches(command: str, patterns: Sequence[str]) -> bool:
    """Whether a command is named by one of the patterns, which are those of a shell.

    Examples
    --------
    >>> matches("bash run.sh --fast", ("make *", "bash run*"))
    True
    """
    if not patterns:
        return False
    # It loads `re`: only for who has patterns.
    from fnmatch import fnmatchcase

    return any(fnmatchcase(command, pattern) for pattern in patterns)


def hash_of(text: str) -> str:
    """A short name for a text, the same in all processes."""
    from zlib import crc32

    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"

"""The open captures of this process: what runs, is read or goes wrong is booked on the innermost one."""

from __future__ import annotations

import sys
from _thread import get_ident
from time import process_time

from fastci_ml.evidence.recorder.backend import identity
from fastci_ml.evidence.recorder.captures import ClosedCapture, OpenCapture
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType

    from fastci_ml.evidence.bundle.writer import BundleWriter
    from fastci_ml.evidence.recorder.interfaces import Backend, Watch
    from fastci_ml.evidence.recorder.project_files import ProjectFiles
    from fastci_ml.records.evidence import RunFacts

# Programs that generate code may bring any number of names of files.
_MAX_LEFT_OUT = 100_000


class Collector:
    """The stack of open captures, and the way from one to the bundle.

    Only the thread that made it may open and close captures. Watches book on `top` from any thread.

    Parameters
    ----------
    backend : Backend
        Started already.
    files : ProjectFiles
        What belongs to the repository.
    writer : BundleWriter
        Where ended captures go.

    Attributes
    ----------
    top : OpenCapture
        The innermost open capture; from start to end there is one, of the session at the least.
    is_active : bool
        False before `start` and after `finish`.
    is_child : bool
        Whether this process was started by a recorded one: all of it is one capture, and in it those of the
        tests that it was told of.
    watches : list of Watch
        Asked when a capture ends.
    is_fork : bool
        Whether it is a child that began as a fork.
    session_label : str
        Of a child: the test that it was started for.
    recorder_s : float
        CPU time that recording took at the start of a child.
    before_end : list of callable
        Called when a child ends, to say what is known by then.
    """

    def __init__(self, backend: Backend, files: ProjectFiles, writer: BundleWriter) -> None:
        self.backend = backend
        self.files = files
        self.writer = writer
        self.watches: list[Watch] = []
        self.before_end: list[Callable[[], None]] = []
        self.is_active = False
        self.is_child = False
        self.is_fork = False
        self.session_label = ""
        self.recorder_s = 0.0
        # Captures that are being ended, and whether one could not be.
        self._n_working = 0
        self._is_torn = False
        self._owner = get_ident()
        self._stack: list[OpenCapture] = []
        # Numbers of code objects of the repository, by identity.
        self._codes: dict[int, int] = {}
        self._held: list[CodeType] = []
        # Files of other projects: what runs in them is not looked at any more.
        self._left_out: set[str] = set()
        self._file_numbers: dict[tuple[str, str | None], int] = {}
        self._edges: set[tuple[int, int]] = set()
        # Files of other projects that a watch looks for.
        self._kept: set[str] = set()
        self._failure = ""

    @property
    def top(self) -> OpenCapture:
        """The innermost open capture."""
        return self._stack[-1]

    def start(self) -> None:
        """Open the session's capture and let the watches begin."""
        self.is_active = True
        self.push(CaptureKind.SESSION, self.session_label)
        for watch in self.watches:
            self.guard(watch.install)

    def finish(self) -> None:
        """End whatever is open, and close the bundle.

        Without an end mark where something was lost on the way, or is about to be: a signal may call this in
        the midst of a capture's end.
        """
        began_s = process_time()
        if self._n_working:
            self.is_active = False
            self.writer.flush()
            return
        if not self.is_child:
            # A child ends with what it has of ours.
            for watch in reversed(self.watches):
                self.guard(watch.remove)
        while self._stack:
            self.pop(self.top)
        self.is_active = False
        self.backend.stop()
        self.recorder_s += process_time() - began_s
        for say in self.before_end:
            say()
        if self._failure and not self.is_child:
            _warn(self._failure)
        # Nothing waits for a child but what it is to do; what the system has is not lost with the process.
        if self._is_torn:
            self.writer.flush()
        else:
            self.writer.close(wait=not self.is_child)

    def stay(self) -> None:
        """Say that this process was not replaced by another program."""
        self.writer.add_stay()
        self.writer.flush()

    def leave(self) -> None:
        """Do nothing any more: this process is a fork that nobody is to record."""
        if self.is_active:
            self.is_active = False
            self.backend.stop()

    def begin_again(self, writer: BundleWriter) -> None:
        """Record this process, a fork of the one that was recorded, for itself."""
        self.writer = writer
        self.files.sources = writer.sources
        self.is_child = self.is_fork = True
        self._owner = get_ident()
        # New ones, and the old kept: to let go of what they hold would copy each page that it lies on.
        self._of_parent = (self._stack, self._codes, self._held, self._file_numbers, self._edges)
        self._stack, self._codes, self._held, self._file_numbers, self._edges = [], {}, [], {}, set()
        self._failure = ""
        self.before_end.clear()
        self.recorder_s = 0.0
        self._n_working, self._is_torn = 0, False
        self.backend.begin_again()
        for watch in self.watches:
            self.guard(watch.begin_again)
        capture = self.push(CaptureKind.SESSION, self.session_label)
        # What is going on goes on in here.
        self._add_running(capture)

    def checkpoint(self) -> bool:
        """Hand to the system all that was seen so far; whether that was possible, in the midst of nothing."""
        if len(self._stack) != 1 or not self.may_push:
            return False
        number = self.top.number
        self.pop(self.top)
        self.push(CaptureKind.SESSION, self.session_label).number = number
        self.writer.flush()
        return True

    @property
    def may_push(self) -> bool:
        """Whether a capture can be opened here: not in another thread, not after the end."""
        return self.is_active and get_ident() == self._owner

    def push(self, kind: CaptureKind, label: str) -> OpenCapture:
        """Open a capture."""
        if self._stack:
            for watch in self.watches:
                self.guard(watch.opening)
        capture = OpenCapture(kind, label, self.writer.new_capture())
        if kind is CaptureKind.TEST:
            self._add_running(capture)
        self.backend.push()
        self._stack.append(capture)
        return capture

    def pop(self, capture: OpenCapture, *, add_to: int | None = None) -> int:
        """End the innermost capture and write it.

        Parameters
        ----------
        capture : OpenCapture
            What `push` gave. Captures inside that were left open, by an exception, end with it.
        add_to : int, optional
            Number of an earlier capture that it is one with, in place of its own.

        Returns
        -------
        int
            Its number in the bundle; -1 if it was begun before this process was forked.
        """
        if capture not in self._stack:
            return -1
        self._n_working += 1
        try:
            return self._pop(capture, add_to)
        except BaseException:
            # Ours or an interrupt: what it held is not in the bundle.
            self._is_torn = True
            raise
        finally:
            self._n_working -= 1

    def _pop(self, capture: OpenCapture, add_to: int | None) -> int:
        while self._stack[-1] is not capture:
            self.pop(self._stack[-1])
        # What runs in one of these is not the doing of what is around it.
        is_apart = capture.kind in (CaptureKind.IMPORT, CaptureKind.COLLECTOR)
        capture.codes.update(self.backend.pop(is_apart=is_apart))
        # Still the innermost: what goes wrong from here on is a gap of it.
        lost = self.backend.lost()
        # The session ends last: each test that the loss can have hidden something of has said so itself.
        if lost and (self.is_child or capture.kind is not CaptureKind.SESSION):
            self.gap(Gap.SLOT_LOST, lost)
        if capture.kind in (CaptureKind.TEST, CaptureKind.SESSION):
            # A profile hook does not tell of functions that have not returned yet.
            self._add_running(capture)
        for watch in self.watches:
            self.guard(watch.closing, capture)
        self._stack.pop()
        number = capture.number if add_to is None else add_to
        self.writer.add_capture(number, self._closed(capture))
        # A session does not stand on its tests.
        if self._stack and not is_apart and capture.kind is not CaptureKind.TEST:
            self.top.uses.add(number)
        return number

    def add_run(self, number: int, facts: RunFacts) -> None:
        """Say that the test of an ended capture has ended, and hand all to the system."""
        self.writer.add_run(number, facts)
        self.writer.flush()

    def add_edge(self, importer: str, imported: str) -> None:
        """Say that one file of the repository imported another, by paths from its root."""
        edge = self._file_number(importer), self._file_number(imported)
        if edge not in self._edges:
            self._edges.add(edge)
            self.writer.add_edge(*edge)

    def keep(self, filename: str) -> None:
        """Go on being told of the code of a file that is not the repository's: a watch looks for it."""
        self._kept.add(filename)
        self._left_out.discard(filename)
        self.backend.take_in(filename)

    def gap(self, gap: Gap, detail: str) -> None:
        """Say of everything that is open why it may be incomplete.

        Of the session only what happens outside of all other captures: every test stands on it.
        """
        for capture in self._stack[1:] or self._stack:
            capture.gaps[gap, detail] = None

    def book_child(self, name: str, detail: str, inherited: Iterable[int]) -> None:
        """Book a process on everything that is open, as in `gap`, and what it has from here."""
        for capture in self._stack[1:] or self._stack:
            capture.children.setdefault(name, detail)
            capture.uses.update(inherited)

    def failed(self, error: BaseException) -> None:
        """Say that we failed, in the bundle and at the end in the log; never by raising.

        Not in the log at once: the test that is running may look at what is logged.
        """
        detail = f"{type(error).__name__}: {error}"
        self.gap(Gap.RECORDER_FAILED, detail)
        if not self._failure:
            self._failure = _as_text(error)

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        """Call something of ours that may fail; then the evidence is incomplete, and nothing else happens."""
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
            self.failed(error)

    def _add_running(self, capture: OpenCapture) -> None:
        """Count what is running as entered: it makes no event any more."""
        codes = capture.codes
        for frame in sys._current_frames().values():  # noqa: SLF001  the documented way to ask for all threads
            running = frame
            while running is not None:
                code = running.f_code
                if code.co_filename not in self._left_out:
                    codes[identity(code)] = code
                running = running.f_back  # type: ignore[assignment]
        # Our own frame is one of them: it would hold itself, and all below it, until the next collection.
        del frame

    def _closed(self, capture: OpenCapture) -> ClosedCapture:
        files = self.files
        codes = self._code_numbers(capture)
        reads = self._data_numbers(capture.reads)
        listings = self._data_numbers(capture.listings)
        imports = {
            self._file_number(path) for name in capture.imports if (path := files.relative(name)) is not None
        }
        if files.changed or files.differing:
            self._book_files(capture)
        return ClosedCapture(
            capture.kind,
            capture.label,
            codes=codes,
            reads=reads,
            listings=listings,
            imports=frozenset(imports),
            environ=frozenset(capture.environ),
            uses=frozenset(capture.uses),
            gaps=tuple(capture.gaps),
            children=tuple(capture.children.items()),
        )

    def _code_numbers(self, capture: OpenCapture) -> frozenset[int]:
        known = self._codes
        codes = capture.codes
        # Nearly all were met before, and cost one look each here and below.
        for key in [key for key in codes if key not in known]:
            code = codes[key]
            path = self.files.relative(code.co_filename)
            if path is None:
                self._leave_out(code.co_filename)
            else:
                file = self._file_number(path)
                known[key] = self.writer.add_code(file, code.co_qualname, code.co_firstlineno)
                # Held, so that its identity is not given to another.
                self._held.append(code)
        return frozenset(map(known.__getitem__, codes.keys() & known.keys()))

    def _leave_out(self, filename: str) -> None:
        if filename in self._kept or filename in self._left_out:
            return
        if len(self._left_out) < _MAX_LEFT_OUT:
            self._left_out.add(filename)
            self.backend.leave_out(filename)

    def _book_files(self, capture: OpenCapture) -> None:
        """Gaps of files that are not what ran."""
        ran = {code.co_filename for code in capture.codes.values()} | capture.imports
        for path in sorted(filter(None, map(self.files.relative, ran))):
            if path in self.files.changed:
                capture.gaps[Gap.SOURCE_CHANGED, path] = None
            if path in self.files.differing:
                capture.gaps[Gap.COPY_DIFFERS, path] = None

    def _data_numbers(self, names: Iterable[str]) -> frozenset[int]:
        numbers = set()
        for name in names:
            path = self.files.relative(name)
            if path is not None:
                numbers.add(self._numbered(path, self.files.data_blob(path)))
        return frozenset(numbers)

    def _file_number(self, path: str) -> int:
        """Number of a Python file that ran."""
        return self._numbered(path, self.files.source_blob(path))

    def _numbered(self, path: str, blob: str | None) -> int:
        key = (path, blob)
        number = self._file_numbers.get(key)
        if number is None:
            number = self._file_numbers[key] = self.writer.add_file(path, blob)
        return number


def _as_text(error: BaseException) -> str:
    """An error with its traceback; not as an object, for its frames hold what the tests made."""
    from traceback import format_exception

    return "".join(format_exception(error)).rstrip()


def _warn(failure: str) -> None:
    import logging

    logging.getLogger(__name__).warning("recording failed, and tests went on: %s", failure)

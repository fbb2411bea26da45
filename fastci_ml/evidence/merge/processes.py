"""Which processes worked for which test, and what they touched: the other bundles of a recorded session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fastci_ml.evidence.merge.bundle_parts import BundleParts, Whole, unite
from fastci_ml.records.evidence import ProcessFacts
from fastci_ml.records.evidence_kinds import LIVES_ON, Gap

# Microseconds since the epoch that do not come.
_NEVER = 1 << 62
# Tests beside the same processes come one after the other.
_N_KEPT = 32


@dataclass(frozen=True, slots=True)
class Window:
    """When a test ran, and which.

    Attributes
    ----------
    label : str
        Node id.
    start_us, end_us : int
        Microseconds since the epoch, UTC; the end is when the next test began.
    """

    label: str
    start_us: int
    end_us: int

    def holds(self, label: str, start_us: int, end_us: int) -> bool:
        """Whether a task of that name lies within."""
        return self.label == label and self.start_us <= start_us and end_us <= self.end_us


@dataclass(frozen=True, slots=True)
class _Task:
    label: str
    start_us: int
    end_us: int
    whole: Whole


class _Process:
    """One bundle of a child, without what is only needed to take it apart."""

    def __init__(self, parts: BundleParts) -> None:
        bundle = parts.bundle
        self.bundle_id = bundle.provenance.bundle_id
        self.name = bundle.provenance.process
        self.started_us = bundle.provenance.started_us
        self.facts: ProcessFacts | None = bundle.process
        self.became = bundle.became
        self.session = parts.of_session()
        self.gaps = dict.fromkeys(bundle.gaps)
        self.tasks: list[_Task] = []
        for label, numbers in parts.tests.items():
            for number in numbers:
                ran = bundle.runs.get(number)
                whole = parts.of_task(number)
                if ran is None:
                    # It was not ended: whatever it was for, it counts as done outside of tasks.
                    self.session = unite([self.session, whole])
                else:
                    end_us = ran.started_us + round(1e6 * (ran.call_s or 0.0))
                    self.tasks.append(_Task(label, ran.started_us, end_us, whole))
        # By test, what was done for it; and what was done in the name of tests that did not run then.
        self.tasks_by_label: dict[str, list[Whole]] = {}
        self.loose = Whole()
        # What was done up to here is on the disk, whatever became of the process.
        self.known_until_us = max([task.end_us for task in self.tasks], default=0)

    def sort_tasks(self, windows: dict[str, list[Window]]) -> None:
        """Tell tasks of tests that ran then from those of which it cannot be told what they were for."""
        loose = []
        for task in self.tasks:
            fits = any(
                window.holds(task.label, task.start_us, task.end_us) for window in windows.get(task.label, ())
            )
            if fits:
                self.tasks_by_label.setdefault(task.label, []).append(task.whole)
            else:
                loose.append(task.whole)
        self.loose = unite(loose)

    @property
    def shown(self) -> str:
        """For a person."""
        if self.became is not None:
            return f"a process that became {self.became or 'another program'}"
        if self.facts is None:
            return "a process that did not come to its end"
        rank = "" if self.facts.rank is None else f", rank {self.facts.rank}"
        world = f" of {self.facts.world_size}" if rank and self.facts.world_size is not None else ""
        return f"{self.facts.command}{rank}{world}"


@dataclass(slots=True)
class Found:
    """What processes did for one test.

    Attributes
    ----------
    whole : Whole
        All of them together.
    facts : list of ProcessFacts
        What those say of themselves that came to their end.
    shown : tuple of str
        Each for a person, sorted.
    """

    whole: Whole
    facts: list[ProcessFacts]
    shown: tuple[str, ...]


class Processes:
    """All processes of one recorded session but the outermost.

    Parameters
    ----------
    children : iterable of BundleParts
        Their bundles, each looked at once and not kept.
    windows : list of Window
        When the tests of the outermost process ran.
    booked : iterable of (str, str)
        Processes that the outermost one knows of, as in `Capture.children`.
    """

    def __init__(
        self, children: Iterable[BundleParts], windows: list[Window], booked: Iterable[tuple[str, str]]
    ) -> None:
        self._by_name: dict[str, list[_Process]] = {}
        of_root = list(booked)
        known = {name for name, _ in of_root}
        # The outermost process knows of these in which tests they were started, and in which they lived on:
        # they are nothing to who is only beside the fork server that made them.
        self._started = {name for name, detail in of_root if not detail.startswith(LIVES_ON)}
        processes = []
        for parts in children:
            process = _Process(parts)
            processes.append(process)
            self._by_name.setdefault(process.name, []).append(process)
            known.update(process.session.children)
            known.update(name for task in process.tasks for name in task.whole.children)
        # Those that nobody knows of: a shell started them, say, and who started the shell does not know whom.
        # A fixture may have, so they count for all that comes after.
        self._orphans = [process for process in processes if not process.name or process.name not in known]
        labels: dict[str, list[Window]] = {}
        for window in windows:
            labels.setdefault(window.label, []).append(window)
        for process in processes:
            process.sort_tasks(labels)
        self._kept: dict[tuple[frozenset[str], str], Found] = {}

    def of_test(self, names: dict[str, str], window: Window | None) -> Found:
        """What processes did for a test.

        Parameters
        ----------
        names : dict of str to str
            Those that the test knows of, with details for a person.
        window : Window or None
            When it ran; None where its end is not known.
        """
        orphans = [
            process for process in self._orphans if window is None or process.started_us <= window.end_us
        ]
        if not names and not orphans:
            return Found(Whole(), [], ())
        key = frozenset([*names, *(process.bundle_id for process in orphans)]), window.label if window else ""
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _N_KEPT:
                del self._kept[next(iter(self._kept))]
            found = self._kept[key] = self._find(names, orphans, window)
        return found

    def _find(self, names: dict[str, str], orphans: list[_Process], window: Window | None) -> Found:
        parts: list[Whole] = []
        processes: dict[str, _Process] = {}
        gaps: dict[tuple[Gap, str], None] = {}
        todo = [(process, self._parts_of(process, window)) for process in orphans]
        ahead = dict(names)
        seen: set[str] = set()
        while todo or ahead:
            while todo:
                process, its_parts = todo.pop()
                if process.bundle_id in processes:
                    continue
                processes[process.bundle_id] = process
                parts += its_parts
                gaps |= self._gaps_of(process, window)
                for part in its_parts:
                    ahead |= {
                        name: detail
                        for name, detail in part.children.items()
                        if name not in seen and name not in self._started
                    }
            while ahead:
                name, detail = ahead.popitem()
                seen.add(name)
                bundles = self._by_name.get(name, [])
                if not bundles:
                    gaps[Gap.CHILD_WITHOUT_RECORD, detail] = None
                elif all(process.became is not None for process in bundles):
                    # Each of them says that it went on as another program.
                    last = max(bundles, key=lambda process: process.started_us)
                    if last.became:
                        gaps[Gap.CHILD_WITHOUT_RECORD, last.became] = None
                todo += [(process, self._parts_of(process, window)) for process in bundles]
        whole = unite(parts)
        whole.gaps = {**gaps, **whole.gaps}
        return Found(
            whole=whole,
            facts=[process.facts for process in processes.values() if process.facts is not None],
            shown=tuple(sorted(process.shown for process in processes.values())),
        )

    def _parts_of(self, process: _Process, window: Window | None) -> list[Whole]:
        """What a process did outside of tasks, for this test, and for nobody who can be told."""
        own = process.tasks_by_label.get(window.label, []) if window is not None else []
        return [process.session, process.loose, *own]

    def _gaps_of(self, process: _Process, window: Window | None) -> dict[tuple[Gap, str], None]:
        """Gaps of its bundle, but for an end that came when the test was over."""
        is_over = window is not None and window.end_us <= process.known_until_us
        return {
            (gap, detail): None for gap, detail in process.gaps if not (gap is Gap.NO_END_MARK and is_over)
        }


def windows_of(tests: Iterable[tuple[str, int]]) -> Iterator[Window]:
    """When tests ran, from their labels and starts: one process runs one after the other."""
    ordered = sorted(tests, key=lambda test: test[1])
    for place, (label, start_us) in enumerate(ordered):
        end_us = ordered[place + 1][1] if place + 1 < len(ordered) else _NEVER
        yield Window(label, start_us, end_us)

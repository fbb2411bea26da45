"""Bundles of processes merged with that of the tests which started them: late, twice, torn, of others."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from bundle_makers import STARTED_US, Recording, gap_kinds, names

from fastci_ml.evidence.merge.merge import MergeSummary, merge_bundles
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import EvidenceRecord, ProcessFacts, RunFacts
from fastci_ml.records.evidence_kinds import LIVES_ON, CaptureKind

TEST_FILE = "import mod\n\ndef test_x():\n    mod.f()\n\ndef test_y():\n    mod.f()\n"
MODULE = "def f():\n    return 1\n\ndef g():\n    return 2\n\ndef h():\n    return 3\n"
FIRST, SECOND = "test_a.py::test_x", "test_a.py::test_y"
WORKER = "7 100"


def root_bundle(folder: Path, *, first: Any = (WORKER, "python w.py"), second: Any = None) -> Path:
    """Two tests, each with the process that it knows of: by default the first has started one."""
    recording = Recording(folder, "00ab")
    recording.source("test_a.py", TEST_FILE)
    recording.source("mod.py", MODULE)
    recording.test(FIRST, recording.code("test_a.py", "test_x"), children=() if first is None else (first,))
    recording.test(
        SECOND, recording.code("test_a.py", "test_y"), children=() if second is None else (second,)
    )
    recording.capture(CaptureKind.SESSION, "")
    recording.close()
    return recording.path


def child_bundle(
    folder: Path,
    bundle_id: str = "00cd",
    *codes: str,
    process: str = WORKER,
    is_closed: bool = True,
    tasks: dict[str, tuple[str, int]] | None = None,
    children: tuple[tuple[str, str], ...] = (),
    **changes: Any,
) -> Path:
    """A process of the session; tasks by test: a function, and microseconds after the session's start."""
    given = {"parent": "00ab", "process": process, "started_us": STARTED_US + 500, **changes}
    recording = Recording(folder, bundle_id, **given)
    recording.source("mod.py", MODULE)
    for test, (code, after_us) in (tasks or {}).items():
        ran = RunFacts(outcome="unknown", started_us=STARTED_US + after_us, call_s=1e-6)
        recording.test(test, recording.code("mod.py", code), facts=ran)
    held = [recording.code("mod.py", code) for code in codes]
    recording.capture(CaptureKind.SESSION, "", *held, children=children)
    recording.writer.add_process(
        ProcessFacts(command="python w.py", rank=0, world_size=2, ended_us=STARTED_US)
    )
    if is_closed:
        recording.close()
    else:
        recording.cut()
    return recording.path


@pytest.fixture
def store(tmp_path):
    return tmp_path / "evidence.sqlite"


def merge(store: Path, *paths: Path) -> MergeSummary:
    return merge_bundles(paths, store, root=store.parent / "no working tree")


def record(store: Path, test: str = FIRST) -> EvidenceRecord:
    with EvidenceStore.open(store, read_only=True) as opened:
        (found,) = opened.records_of(test)
    return found


def test_what_a_process_ran_is_its_test_s(tmp_path, store):
    summary = merge(store, root_bundle(tmp_path), child_bundle(tmp_path, "00cd", "g"))
    assert (summary.n_merged, summary.n_processes, summary.n_waiting) == (1, 1, 0)
    assert names(record(store)) == {"test_a.py::test_x", "mod.py::g"}
    assert gap_kinds(record(store)) == []
    assert record(store).facts.processes == ("python w.py, rank 0 of 2",)
    assert names(record(store, SECOND)) == {"test_a.py::test_y"}


def test_process_without_a_bundle_is_a_gap(tmp_path, store):
    merge(store, root_bundle(tmp_path))
    assert gap_kinds(record(store)) == ["child_without_record"]
    assert gap_kinds(record(store, SECOND)) == []


def test_late_bundle_completes_its_test(tmp_path, store):
    root, child = root_bundle(tmp_path), child_bundle(tmp_path, "00cd", "g")
    merge(store, root)
    # Alone it says nothing, and waits.
    assert merge(store, child).n_waiting == 1
    assert gap_kinds(record(store)) == ["child_without_record"]
    assert merge(store, root, child).n_merged == 1
    assert gap_kinds(record(store)) == []
    assert merge(store, child, root).n_known == 2


def test_less_than_was_merged_before_takes_nothing_away(tmp_path, store):
    root = root_bundle(tmp_path, first=(WORKER, "a"), second=("8 100", "b"))
    first = child_bundle(tmp_path, "00cd", "g")
    second = child_bundle(tmp_path, "00ef", "h", process="8 100")
    merge(store, root, first)
    merge(store, root, second)
    assert gap_kinds(record(store)) == []
    assert "mod.py::g" in names(record(store))
    merge(store, root, first, second)
    assert gap_kinds(record(store, SECOND)) == []


def test_order_and_copies_do_not_matter(tmp_path, store):
    paths = [root_bundle(tmp_path), child_bundle(tmp_path, "00cd", "g")]
    copy = tmp_path / "copy.fastci-bundle"
    copy.write_bytes(paths[1].read_bytes())
    for number, order in enumerate(itertools.permutations([*paths, copy])):
        one = tmp_path / f"{number}.sqlite"
        merge(one, *order)
        assert record(one) == record(tmp_path / "0.sqlite")


def test_bundle_without_an_end_is_a_gap_of_its_tests(tmp_path, store):
    root = root_bundle(tmp_path, second=None)
    merge(store, root, child_bundle(tmp_path, "00cd", "g", is_closed=False))
    assert gap_kinds(record(store)) == ["no_end_mark"]
    assert gap_kinds(record(store, SECOND)) == []


def test_damaged_bundle_is_a_gap_of_its_tests(tmp_path, store):
    root, child = root_bundle(tmp_path), child_bundle(tmp_path, "00cd", "g")
    lines = child.read_bytes().split(b"\n")
    child.write_bytes(b"\n".join([*lines[:3], b"0" + lines[3][1:], *lines[4:]]))
    merge(store, root, child)
    assert "torn_line" in gap_kinds(record(store))


@pytest.mark.parametrize(
    "changes",
    [{"lane": "other"}, {"scope": "pr:7"}, {"commit": "e" * 40}, {"session_id": "else"}, {"parent": "00ff"}],
)
def test_bundle_of_others_closes_no_gap(tmp_path, store, changes):
    merge(store, root_bundle(tmp_path), child_bundle(tmp_path, "00cd", "g", **changes))
    assert gap_kinds(record(store)) == ["child_without_record"]
    assert "mod.py::g" not in names(record(store))


def test_grandchildren_are_followed_and_circles_end(tmp_path, store):
    paths = [
        root_bundle(tmp_path),
        child_bundle(tmp_path, "00cd", "g", children=(("8 100", "inner"), (WORKER, "itself"))),
        child_bundle(tmp_path, "00ef", "h", process="8 100", children=((WORKER, "outer"),)),
    ]
    merge(store, *paths)
    assert names(record(store)) == {"test_a.py::test_x", "mod.py::g", "mod.py::h"}
    assert gap_kinds(record(store)) == []


def test_grandchild_without_a_bundle_is_a_gap(tmp_path, store):
    child = child_bundle(tmp_path, "00cd", "g", children=(("8 100", "inner"),))
    merge(store, root_bundle(tmp_path), child)
    assert [detail for _, detail in record(store).gaps] == ["inner"]


def test_process_that_lived_on_counts_for_who_ran_beside_it(tmp_path, store):
    root = root_bundle(tmp_path, second=(WORKER, LIVES_ON + "python w.py"))
    merge(store, root, child_bundle(tmp_path, "00cd", "g"))
    assert "mod.py::g" in names(record(store, SECOND))


def test_task_within_its_test_is_that_test_s_alone(tmp_path, store):
    root = root_bundle(tmp_path, second=(WORKER, LIVES_ON + "python w.py"))
    child = child_bundle(tmp_path, "00cd", "f", tasks={FIRST: ("g", 1_200), SECOND: ("h", 2_200)})
    merge(store, root, child)
    assert names(record(store)) == {"test_a.py::test_x", "mod.py::f", "mod.py::g"}
    assert names(record(store, SECOND)) == {"test_a.py::test_y", "mod.py::f", "mod.py::h"}


def test_task_named_after_a_test_that_did_not_run_then_counts_for_all(tmp_path, store):
    root = root_bundle(tmp_path, second=(WORKER, LIVES_ON + "python w.py"))
    merge(store, root, child_bundle(tmp_path, "00cd", tasks={FIRST: ("g", 2_200)}))
    assert "mod.py::g" in names(record(store))
    assert "mod.py::g" in names(record(store, SECOND))


def test_end_that_came_after_a_test_is_no_gap_of_it(tmp_path, store):
    root = root_bundle(tmp_path, second=(WORKER, LIVES_ON + "python w.py"))
    # Its last task was for the second test: what it did for the first is all there.
    child = child_bundle(tmp_path, "00cd", tasks={SECOND: ("h", 2_200)}, is_closed=False)
    merge(store, root, child)
    assert gap_kinds(record(store)) == []
    assert gap_kinds(record(store, SECOND)) == ["no_end_mark"]


def test_process_that_nobody_started_counts_for_what_comes_after(tmp_path, store):
    root = root_bundle(tmp_path, first=None)
    late = child_bundle(tmp_path, "00cd", "g", process="9 100", started_us=STARTED_US + 2_500)
    merge(store, root, late)
    assert "mod.py::g" not in names(record(store))
    assert "mod.py::g" in names(record(store, SECOND))

"""Merging: each bundle once, in any order and any number of calls, and the store says the same."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from bundle_makers import STARTED_US, Recording, store_content
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.lines import SUFFIX
from fastci_ml.evidence.bundle.source_pack import pack_of
from fastci_ml.evidence.merge import merge
from fastci_ml.evidence.merge.merge import merge_bundles
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import RunFacts
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

MODULE = "def f():\n    return g()\n\n\ndef g():\n    return {}\n"
TESTS = "from pkg.mod import f\n\n\ndef test_f():\n    f()\n\n\ndef test_g():\n    pass\n"
TEST = "tests/test_mod.py"
F, G = f"{TEST}::test_f", f"{TEST}::test_g"
NOW_US = STARTED_US + 10**9


def _record(
    directory: Path, number: int, *, text: str = "1", is_closed: bool = True, **changes: object
) -> Path:
    """A bundle of one process: some import, one test that passes and one that does not."""
    started_us = STARTED_US + number * 1_000_000
    recording = Recording(directory, f"{number:04x}", started_us=started_us, **changes)
    recording.source("pkg/mod.py", MODULE.format(text))
    recording.source(TEST, TESTS)
    recording.capture(
        CaptureKind.IMPORT,
        "pkg/mod.py",
        recording.code("pkg/mod.py", "<module>"),
        recording.code("pkg/mod.py", "g"),
    )
    recording.test(F, recording.code(TEST, "test_f"), recording.code("pkg/mod.py", "f"))
    failed = RunFacts(outcome="failed", started_us=started_us + 5_000, call_s=1.0)
    recording.test(G, recording.code(TEST, "test_g"), facts=failed)
    if is_closed:
        recording.writer.close()
    else:
        recording.writer.flush()
    return recording.path


def _merge(paths: list[Path], store: Path, **options: object) -> merge.MergeSummary:
    return merge_bundles(paths, store, root=store.parent / "no tree", now_us=NOW_US, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Bundles of several commits, scopes and lanes; one in three states, one damaged, a copy, no bundles."""
    directory = tmp_path_factory.mktemp("pool")
    paths = [
        _record(directory, 1, commit="f" * 40),
        _record(directory, 2, text="2", commit="e" * 40),
        _record(directory, 3, text="3", scope="pr:7"),
        _record(directory, 4, lane="py3.12-cpu"),
        _record(directory, 5, worker="gw0"),
        _record(directory, 6, is_closed=False),
    ]
    whole = paths[4].read_bytes()
    lines = whole.splitlines(keepends=True)
    for name, content in (
        ("cut", b"".join(lines[:-1])),
        ("cut short", b"".join(lines[:-2])),
        ("damaged", whole + b"more\n"),
        ("copy", paths[0].read_bytes()),
        ("no bundle", b"\x00\x01"),
        ("empty", b""),
    ):
        (directory / f"{name}{SUFFIX}").write_bytes(content)
        paths.append(directory / f"{name}{SUFFIX}")
    return paths


@pytest.fixture(scope="module")
def expected(pool: list[Path], tmp_path_factory: pytest.TempPathFactory) -> object:
    store = tmp_path_factory.mktemp("expected") / "evidence.sqlite"
    _merge(pool, store)
    return store_content(store)


@settings(max_examples=12)
@given(data=st.data())
def test_order_and_number_of_calls_and_repeats_do_not_matter(
    pool: list[Path], expected: object, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(pool + data.draw(st.lists(st.sampled_from(pool), max_size=4))))
    store = tmp_path_factory.mktemp("store") / "evidence.sqlite"
    while order:
        n_now = data.draw(st.integers(1, len(order)))
        now, order = order[:n_now], order[n_now:]
        _merge(now, store)
    assert store_content(store) == expected
    with EvidenceStore.open(store) as opened:
        assert opened.check() == []


def test_the_store_says_what_was_recorded(pool: list[Path], expected: object, tmp_path: Path) -> None:
    store = tmp_path / "evidence.sqlite"
    summary = _merge(pool, store)
    assert (summary.n_files, summary.n_merged, summary.n_known) == (12, 6, 4)
    assert len(summary.problems) == 2
    assert all("expected a begin mark" in problem for problem in summary.problems)
    # The passing test of five whole bundles; the sixth has no end.
    assert summary.n_complete == 5
    assert summary.gaps == Counter({Gap.DID_NOT_PASS: 6, Gap.NO_END_MARK: 2})
    with EvidenceStore.open(store, read_only=True) as opened:
        records = opened.records_of(F, lane="py3.11-cpu", scope="trunk")
        # The newest complete one, and the newer one of a process that was killed.
        assert [record.recorded_us for record in records] == [STARTED_US + 6_001_000, STARTED_US + 5_001_000]
        assert {f"{unit.path}::{unit.name}" for unit in records[0].units} == {F, "pkg/mod.py::f"}
        assert [path for path, _ in opened.import_units("py3.12-cpu")] == ["pkg/mod.py"]
        assert opened.edges("py3.11-cpu") == [(TEST, "pkg/mod.py")]
        stored = opened.bundle("0005")
        assert stored is not None
        assert (stored.provenance.worker, stored.gaps) == ("gw0", ())
        assert not (store.parent / "no tree").exists()


def test_merging_again_changes_nothing(pool: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "evidence.sqlite"
    _merge(pool, store)
    before = store.read_bytes()
    again = _merge(pool, store)
    assert (again.n_merged, again.n_records) == (0, 0)
    assert store.read_bytes() == before


@pytest.mark.parametrize("is_whole_first", [False, True])
def test_a_bundle_merged_while_it_was_written_is_merged_anew(tmp_path: Path, is_whole_first: bool) -> None:
    path = _record(tmp_path / "bundles", 1)
    whole = path.read_bytes()
    part = whole[: whole.rindex(b"\n", 0, -1) + 1]
    store = tmp_path / "evidence.sqlite"
    for content in (whole, part) if is_whole_first else (part, whole):
        path.write_bytes(content)
        summary = _merge([path], store)
        with EvidenceStore.open(store, read_only=True) as opened:
            is_whole = content == whole or is_whole_first
            (record,) = opened.records_of(F)
            assert record.is_complete is is_whole
            (other,) = opened.records_of(G)
            assert (Gap.NO_END_MARK in dict(other.gaps)) is not is_whole
    assert summary.n_merged == (0 if is_whole_first else 1)


def test_a_file_that_is_no_bundle_is_named_and_left_and_the_others_are_merged(tmp_path: Path) -> None:
    bundles = tmp_path / "bundles"
    good = [_record(bundles, number) for number in (1, 2)]
    later = bundles / f"later{SUFFIX}"
    later.write_bytes(good[0].read_bytes().replace(b"fastci.bundle/1", b"fastci.bundle/9"))
    os.mkfifo(bundles / f"pipe{SUFFIX}")
    (bundles / f"folder{SUFFIX}").mkdir()
    (bundles / f"evil\n{SUFFIX}").write_bytes(b"x" * 5_000)
    summary = _merge([bundles, tmp_path / "absent"], tmp_path / "evidence.sqlite")
    assert summary.n_merged == 2
    assert len(summary.problems) == 5
    for part in ("later", "a pipe", "a folder", "evil\\n", "absent"):
        assert sum(part in problem for problem in summary.problems) == 1, part
    assert all("\n" not in problem and len(problem) <= 1_000 for problem in summary.problems)
    assert later.exists()


def test_a_folder_without_bundles_is_said_and_makes_no_store(tmp_path: Path) -> None:
    summary = _merge([tmp_path], tmp_path / "evidence.sqlite")
    assert summary.problems == [f"{tmp_path}: no bundle found"]
    assert not (tmp_path / "evidence.sqlite").exists()


def test_a_store_that_is_none_is_an_error_and_stays(tmp_path: Path) -> None:
    path = _record(tmp_path / "bundles", 1)
    store = tmp_path / "evidence.sqlite"
    store.write_bytes(b"something else entirely, and long enough for a header of SQLite ....." * 20)
    before = store.read_bytes()
    with pytest.raises(EvidenceError, match=str(store)):
        _merge([path], store)
    assert store.read_bytes() == before


def test_bundles_of_different_commits_are_never_in_one_transaction(tmp_path: Path) -> None:
    for number in range(3):
        _record(tmp_path / "bundles", number, text=str(number % 2), commit="ab"[number % 2] * 40)
    store = tmp_path / "evidence.sqlite"
    _merge([tmp_path / "bundles"], store)
    with EvidenceStore.open(store, read_only=True) as opened:
        for sources in opened.sources(lane="py3.11-cpu", scopes=["trunk"]):
            assert all(len(blobs) == 1 for blobs in sources.versions.values())


@pytest.mark.parametrize(("limit", "value"), [("_MAX_BUNDLES", 2), ("_MAX_BYTES", 3_000)])
def test_transactions_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    for number in range(5):
        _record(tmp_path / "bundles", number)
    whole = tmp_path / "whole.sqlite"
    _merge([tmp_path / "bundles"], whole)
    monkeypatch.setattr(merge, limit, value)
    calls: list[tuple[str, int, int]] = []
    parts = tmp_path / "parts.sqlite"
    _merge([tmp_path / "bundles"], parts, progress=lambda *call: calls.append(call))
    assert calls == [("merge", done, 5) for done in (0, 2, 4, 5)]
    assert store_content(parts) == store_content(whole)


def test_sources_lie_beside_each_bundle_or_in_the_tree(tmp_path: Path) -> None:
    paths = [_record(tmp_path / f"worker{number}", number) for number in range(2)]
    pack_of(paths[1]).unlink()
    store = tmp_path / "evidence.sqlite"
    _merge([paths[1]], store)
    with EvidenceStore.open(store, read_only=True) as opened:
        (record,) = opened.records_of(F)
    assert Gap.SOURCE_MISSING in dict(record.gaps)
    for name, text in (("pkg/mod.py", MODULE.format("1")), (TEST, TESTS)):
        file = tmp_path / "tree" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    other = tmp_path / "other.sqlite"
    assert merge_bundles([paths[1]], other, root=tmp_path / "tree").n_complete == 1

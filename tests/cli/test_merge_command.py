"""`fastci-ml merge`: bundles and data of other tools into the store, and what is old out of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import time
import zipfile
from pathlib import Path

import pytest
from bundle_makers import PROVENANCE, provenance, write_small_bundle
from measured_project import load, measure, write_project

from fastci_ml.cli import app
from fastci_ml.evidence.bundle.blob_id import blob_id
from fastci_ml.evidence.bundle.reader import find_bundles
from fastci_ml.evidence.bundle.source_pack import SourcePack, pack_of
from fastci_ml.evidence.bundle.source_pack_writer import PACK_SUFFIX
from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.evidence.seal_key import SealKey
from fastci_ml.evidence.seals import SEAL_SUFFIX, read_seal, seal_bundles
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import Capture, RunFacts
from fastci_ml.records.evidence_kinds import CaptureKind

RECORDINGS = Path(__file__).parents[1] / "evidence" / "recordings"
DAY_US = 86_400_000_000
KEY = "0123456789abcdef of trunk"
SOURCE = b"def test_x():\n    pass\n"


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FASTCI_LANE", "here")
    monkeypatch.delenv("FASTCI_EVIDENCE_KEY", raising=False)
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "fastci.toml").write_text("")
    monkeypatch.chdir(folder)
    return folder


def add_bundle(
    folder: Path, name: str, test: str, *, age_days: float = 0.0, source=SOURCE, **changes
) -> Path:
    """A bundle of one test that ran one function, with its source beside it."""
    started_us = time.time_ns() // 1000 - int(age_days * DAY_US)
    writer = BundleWriter(folder, provenance(name, started_us=started_us, **changes))
    writer.sources.put(blob_id(source), source)
    file = writer.add_file(test.partition("::")[0], blob_id(source))
    code = writer.add_code(file, "test_x", 1)
    number = writer.new_capture()
    writer.add_capture(number, Capture(kind=CaptureKind.TEST, label=test, codes=frozenset({code})))
    writer.add_run(number, RunFacts(outcome="passed", started_us=started_us))
    writer.close()
    return writer.path


def bundles_of(root: Path) -> Path:
    return root / ".fastci" / "bundles"


def store_of(root: Path) -> Path:
    return root / ".fastci" / "evidence.sqlite"


def stored_tests(path: Path) -> set[tuple[str, str]]:
    with EvidenceStore.open(path, read_only=True) as store:
        return {(head.node_id, head.scope) for head in store.records()}


def merge_json(capsys, *words: str) -> dict:
    assert app.main(["merge", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_bundles_of_the_settings_are_merged_by_default(root, capsys):
    add_bundle(bundles_of(root), "01", "test_a.py::test_x")
    add_bundle(bundles_of(root), "02", "test_b.py::test_x")
    assert app.main(["merge"]) == 0
    shown = capsys.readouterr()
    assert "bundles         2 merged, 0 known before\n" in shown.out
    assert "tests recorded  2, 100.0% of them complete\n" in shown.out
    assert "merge: 2/2" in shown.err
    assert stored_tests(store_of(root)) == {("test_a.py::test_x", "trunk"), ("test_b.py::test_x", "trunk")}


def test_merging_again_is_nothing(root, capsys):
    add_bundle(bundles_of(root), "01", "test_a.py::test_x")
    merge_json(capsys)
    again = merge_json(capsys)
    assert again["schema"] == "fastci.merge/1"
    assert (again["bundles"]["n_merged"], again["bundles"]["n_known"]) == (0, 1)


def test_bundle_that_cannot_be_read_is_named_and_the_rest_is_merged(root, capsys):
    add_bundle(bundles_of(root), "01", "test_a.py::test_x")
    bad = bundles_of(root) / "bad.fastci-bundle"
    bad.write_text("rubbish")
    assert app.main(["merge"]) == 0
    shown = capsys.readouterr()
    assert "1 merged, 0 known before, 1 left out" in shown.out
    assert f"left out: {bad}" in shown.err
    assert bad.exists()


def test_reasons_of_incomplete_tests_are_given_in_words(root, capsys):
    write_small_bundle(bundles_of(root))
    assert app.main(["merge"]) == 0
    shown = capsys.readouterr().out
    assert "0.0% of them complete" in shown
    assert "1: the source of a file that it ran is not at hand" in shown


def test_nothing_to_merge_is_unusable_data(root, capsys):
    assert app.main(["merge"]) == 3
    shown = capsys.readouterr().err
    assert "no bundle found" in shown
    assert "hint: fastci-ml record -- pytest" in shown
    assert not store_of(root).exists()


def test_only_unreadable_bundles_is_unusable_data(root, capsys):
    bundles_of(root).mkdir(parents=True)
    (bundles_of(root) / "bad.fastci-bundle").write_text("rubbish")
    assert app.main(["merge"]) == 3
    assert "nothing could be merged: " in capsys.readouterr().err


def test_paths_and_store_are_those_that_were_given(root, tmp_path, capsys):
    path = add_bundle(tmp_path / "from-ci", "01", "test_a.py::test_x")
    figures = merge_json(capsys, str(path), "--evidence", str(tmp_path / "e.sqlite"))
    assert figures["evidence"] == str(tmp_path / "e.sqlite")
    assert stored_tests(tmp_path / "e.sqlite") == {("test_a.py::test_x", "trunk")}


def test_store_of_another_program_is_left_as_it_is(root, capsys):
    add_bundle(bundles_of(root), "01", "test_a.py::test_x")
    connection = sqlite3.connect(store_of(root))
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    before = store_of(root).read_bytes()
    assert app.main(["merge"]) == 3
    assert store_of(root).read_bytes() == before


@pytest.mark.parametrize("days", ["-1", "nan", "1e9"])
def test_senseless_retention_is_a_usage_error(root, capsys, days):
    assert app.main(["merge", f"--retain-days={days}"]) == 2
    assert "--retain-days 30" in capsys.readouterr().err


def test_retention_removes_what_is_merged_and_old_and_nothing_else(root, capsys):
    folder = bundles_of(root)
    old = add_bundle(folder, "01", "test_a.py::test_x", age_days=40, source=b"def test_x():\n    old = 1\n")
    young = add_bundle(folder, "02", "test_b.py::test_x", age_days=20)
    dirty = add_bundle(folder, "03", "test_c.py::test_x", age_days=40, scope="dirty")
    pull = add_bundle(folder, "04", "test_d.py::test_x", age_days=40, scope="pr:7")
    merge_json(capsys)
    torn = add_bundle(folder, "05", "test_e.py::test_x", age_days=40)
    torn.write_bytes(b"torn" + torn.read_bytes())
    age(folder, days=40)
    figures = merge_json(capsys, "--retain-days", "30")
    assert [path.exists() for path in (old, young, dirty, pull, torn)] == [False, True, False, False, True]
    assert figures["removed"]["n_bundles"] == 3
    assert figures["removed"]["n_records"] == 2
    # The newest record of a test of trunk stays, whatever its age.
    assert stored_tests(store_of(root)) == {("test_a.py::test_x", "trunk"), ("test_b.py::test_x", "trunk")}


def test_retention_keeps_sources_of_bundles_that_stay(root, capsys):
    folder = bundles_of(root)
    gone = add_bundle(folder, "01", "test_a.py::test_x", age_days=40)
    kept = add_bundle(folder, "02", "test_b.py::test_x", age_days=20)
    merge_json(capsys)
    age(folder, days=40)
    assert merge_json(capsys, "--retain-days", "30")["removed"]["n_sources"] == 1
    assert not pack_of(gone).exists()
    assert SourcePack(pack_of(kept)).get(blob_id(SOURCE)) == SOURCE


def test_retention_keeps_sources_of_what_is_recording_or_bears_another_name(root, capsys):
    folder = bundles_of(root)
    merge_json(capsys, str(add_bundle(folder, "01", "test_a.py::test_x", age_days=40)))
    recording = BundleWriter(folder, provenance("02", started_us=time.time_ns() // 1000))
    recording.sources.put(blob_id(b"x"), b"x")
    renamed = add_bundle(folder, "03", "test_b.py::test_x", age_days=40)
    pack_of(renamed).rename(pack_of(renamed.rename(folder / "any.name")))
    age(folder, days=40)
    # Made by a process that has begun just now: its bundle comes next.
    (folder / f"9-04{PACK_SUFFIX}").touch()
    assert merge_json(capsys, "--retain-days", "30")["removed"]["n_sources"] == 1
    assert len(list(folder.glob(f"*{PACK_SUFFIX}"))) == 3


def test_retention_keeps_what_is_not_merged(root, tmp_path, capsys):
    add_bundle(tmp_path / "a", "01", "test_a.py::test_x", age_days=40)
    merge_json(capsys, str(tmp_path / "a"))
    waiting = add_bundle(bundles_of(root), "02", "test_b.py::test_x", age_days=40)
    assert merge_json(capsys, str(tmp_path / "a"), "--retain-days", "0")["removed"]["n_bundles"] == 1
    assert waiting.exists()


def test_upkeep_alone_needs_no_bundles(root, capsys):
    add_bundle(bundles_of(root), "01", "test_a.py::test_x")
    merge_json(capsys)
    shutil.rmtree(bundles_of(root))
    before = stored_tests(store_of(root))
    assert merge_json(capsys, "--compact")["problems"] == []
    assert merge_json(capsys, "--retain-days", "30")["removed"]["n_bundles"] == 0
    assert stored_tests(store_of(root)) == before


def test_upkeep_without_a_store_says_so(root, capsys):
    assert app.main(["merge", "--compact"]) == 3
    assert "no evidence yet" in capsys.readouterr().err


def test_data_of_coverage_stands_beside_what_was_recorded(root, capsys):
    pytest.importorskip("pytest_cov")
    write_project(root)
    measure(root, "-k", "test_f", COVERAGE_CORE="ctrace")
    add_bundle(bundles_of(root), "01", "tests/test_lib.py::test_f", lane="here")
    figures = merge_json(capsys, "--coverage", ".coverage")
    assert figures["bundles"]["n_merged"] == 1
    assert figures["imported"] == [{"path": ".coverage", "backend": "coverage", "n_tests": 2, "refused": []}]
    test = "tests/test_lib.py::test_f"
    assert stored_tests(store_of(root)) >= {(test, "trunk"), (test, "coverage")}
    with EvidenceStore.open(store_of(root), read_only=True) as store:
        record = store.record(test, lane="here", scope="coverage")
        assert record is not None
        assert not record.is_complete


def test_data_that_is_known_to_be_wrong_is_refused_with_its_reason(root, capsys):
    write_project(root)
    load(RECORDINGS / "sysmon.sql", root / ".coverage")
    assert app.main(["merge", "--coverage", ".coverage"]) == 3
    shown = capsys.readouterr().err
    assert "sysmon core" in shown
    assert "COVERAGE_CORE=ctrace" in shown
    assert not store_of(root).exists()


def test_one_bad_file_keeps_no_other_from_being_imported(root, capsys):
    write_project(root)
    add_bundle(bundles_of(root), "01", "test_a.py::test_x")
    figures = merge_json(capsys, "--coverage", "nowhere", "--testmon", "fastci.toml")
    assert figures["bundles"]["n_merged"] == 1
    assert figures["imported"] == []
    assert len(figures["problems"]) == 2


def age(folder: Path, *, days: float) -> None:
    then = time.time() - days * 86_400
    for path in (*folder.rglob(f"*{PACK_SUFFIX}"), *folder.rglob(f"*{SEAL_SUFFIX}")):
        os.utime(path, (then, then))


def zip_folder(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.rglob("*"):
            archive.write(file, file.relative_to(folder))
    return path


def seal(*bundles: Path) -> Path:
    path = seal_bundles(bundles, bundles[0].parent, SealKey(KEY.encode()))
    assert path is not None
    return path


def test_zip_is_merged_and_kept_and_its_problems_name_it(root, tmp_path, capsys):
    add_bundle(tmp_path / "ci", "01", "test_a.py::test_x")
    (tmp_path / "ci" / "bad.fastci-bundle").write_text("rubbish")
    given = zip_folder(tmp_path / "ci", tmp_path / "a.zip")
    figures = merge_json(capsys, str(given), "--retain-days", "0")
    assert figures["bundles"]["n_merged"] == 1
    assert len(figures["problems"]) == 1
    assert figures["problems"][0].startswith(f"{given}: bad.fastci-bundle: no bundle")
    assert figures["removed"]["n_bundles"] == 0
    assert given.exists()
    assert sorted(path.name for path in (root / ".fastci").iterdir()) == ["evidence.sqlite"]


def test_zips_in_the_folder_of_the_settings_are_merged_by_default(root, tmp_path, capsys):
    add_bundle(tmp_path / "ci", "01", "test_a.py::test_x")
    bundles_of(root).mkdir(parents=True)
    zip_folder(tmp_path / "ci", bundles_of(root) / "a.zip")
    assert merge_json(capsys)["bundles"]["n_merged"] == 1


def test_what_is_neither_sealed_nor_listed_is_said_and_only_adds(root, monkeypatch, capsys):
    path = add_bundle(bundles_of(root), "01", "test_a.py::test_x")
    monkeypatch.setenv("FASTCI_EVIDENCE_KEY", KEY)
    assert app.main(["merge"]) == 0
    shown = capsys.readouterr()
    assert "untrusted       1 neither sealed nor listed: they can only add tests to a plan\n" in shown.out
    assert KEY not in shown.out + shown.err
    assert stored_tests(store_of(root)) == {("test_a.py::test_x", "untrusted")}
    # It was taken out, so that no git or other child has it.
    assert "FASTCI_EVIDENCE_KEY" not in os.environ
    seal(path)
    monkeypatch.setenv("FASTCI_EVIDENCE_KEY", KEY)
    assert merge_json(capsys)["bundles"]["n_untrusted"] == 0
    assert stored_tests(store_of(root)) == {("test_a.py::test_x", "trunk")}


def test_seals_in_zips_count(root, tmp_path, monkeypatch, capsys):
    seal(add_bundle(tmp_path / "ci", "01", "test_a.py::test_x"))
    monkeypatch.setenv("FASTCI_EVIDENCE_KEY", KEY)
    figures = merge_json(capsys, str(zip_folder(tmp_path / "ci", tmp_path / "a.zip")))
    assert (figures["bundles"]["n_merged"], figures["bundles"]["n_untrusted"]) == (1, 0)


def test_seals_apart_from_bundles_count(root, tmp_path, monkeypatch, capsys):
    path = seal(add_bundle(tmp_path / "ci", "01", "test_a.py::test_x"))
    (tmp_path / "seals").mkdir()
    path.rename(tmp_path / "seals" / path.name)
    given = zip_folder(tmp_path / "ci", tmp_path / "a.zip")
    monkeypatch.setenv("FASTCI_EVIDENCE_KEY", KEY)
    figures = merge_json(capsys, str(given), str(tmp_path / "seals" / path.name))
    assert (figures["bundles"]["n_untrusted"], figures["problems"]) == (0, [])


def test_listed_digests_are_trusted_and_others_are_not(root, tmp_path, capsys):
    path = add_bundle(bundles_of(root), "01", "test_a.py::test_x")
    add_bundle(bundles_of(root), "02", "test_b.py::test_x")
    listed = tmp_path / "digests"
    listed.write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}\n")
    assert merge_json(capsys, "--trusted-digests", str(listed))["bundles"]["n_untrusted"] == 1
    assert stored_tests(store_of(root)) == {
        ("test_a.py::test_x", "trunk"),
        ("test_b.py::test_x", "untrusted"),
    }


def test_bad_key_is_a_usage_error_that_does_not_show_it(root, monkeypatch, capsys):
    add_bundle(bundles_of(root), "01", "test_a.py::test_x")
    monkeypatch.setenv("FASTCI_EVIDENCE_KEY", "short one")
    assert app.main(["merge"]) == 2
    shown = capsys.readouterr().err
    assert "openssl rand -hex 32" in shown
    assert "short one" not in shown


def test_url_without_fsspec_is_a_usage_error(root, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    assert app.main(["merge", "s3://bucket/a.zip"]) == 2
    assert "hint: pip install 'fastci-ml[remote]'" in capsys.readouterr().err


def test_retention_removes_seals_whose_bundles_are_gone_and_no_others(root, capsys):
    folder = bundles_of(root)
    old, young = (
        add_bundle(folder, name, f"test_{name}.py::test_x", age_days=days)
        for name, days in (("a1", 40), ("a2", 20))
    )
    gone, kept = seal(old), seal(old, young)
    damaged = folder / f"damaged{SEAL_SUFFIX}"
    damaged.write_text("{}")
    merge_json(capsys)
    waiting = seal(add_bundle(folder, "03", "test_c.py::test_x", age_days=40))
    age(folder, days=40)
    fresh = folder / f"fresh{SEAL_SUFFIX}"
    shutil.copyfile(gone, fresh)
    unread = folder / "unread.fastci-bundle"
    unread.write_text("rubbish")
    # `--compact` and a path of its own: nothing new is merged.
    store_path = store_of(root)
    with EvidenceStore.open(store_path) as store:
        from fastci_ml.evidence.retention import remove_merged

        limit_us = time.time_ns() // 1000 - 30 * DAY_US
        assert remove_merged([folder], store, older_than_us=limit_us).n_seals == 0
        unread.unlink()
        assert remove_merged([folder], store, older_than_us=limit_us).n_seals == 1
    assert not old.exists()
    assert [path.exists() for path in (gone, kept, damaged, waiting, fresh)] == [
        False,
        True,
        True,
        True,
        True,
    ]
    assert len(read_seal(waiting).digests) == 1
    assert merge_json(capsys, "--retain-days", "30")["removed"]["n_seals"] == 1


def test_small_bundle_of_the_helpers_is_what_find_bundles_finds(root):
    path = write_small_bundle(bundles_of(root))
    assert find_bundles([bundles_of(root)]) == [path]
    assert PROVENANCE.bundle_id in path.name

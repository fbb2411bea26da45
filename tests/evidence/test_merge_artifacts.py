"""Artifacts of CI: what is in zips is merged as what is in folders, and no zip does harm."""

from __future__ import annotations

import functools
import http.server
import io
import os
import stat
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from bundle_makers import STARTED_US, Recording, store_content
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.errors import EvidenceError, UsageError
from fastci_ml.evidence.bundle.lines import SUFFIX
from fastci_ml.evidence.bundle.source_pack import pack_of
from fastci_ml.evidence.merge import archives, staging
from fastci_ml.evidence.merge.artifacts import merge_artifacts
from fastci_ml.evidence.merge.merge import MergeSummary, merge_bundles
from fastci_ml.evidence.merge.remote import without_secrets
from fastci_ml.evidence.store.store import EvidenceStore

TEST = "tests/test_a.py"
TEXT = "def test_a():\n    pass\n"
NODE = f"{TEST}::test_a"


def bundle(folder: Path, number: int = 1, *, is_closed: bool = True, **changes: Any) -> Path:
    """A bundle of one test, with its sources."""
    recording = Recording(folder, f"{number:04x}", started_us=STARTED_US + number, **changes)
    recording.source(TEST, TEXT)
    recording.test(NODE, recording.code(TEST, "test_a"))
    if is_closed:
        recording.writer.close()
    else:
        recording.writer.flush()
    return recording.path


def pack_zip(path: Path, members: Iterable[tuple[str | zipfile.ZipInfo, bytes]]) -> Path:
    """A zip of these members, of one name twice if so given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def both(path: Path, at: str = "") -> list[tuple[str, bytes]]:
    """A bundle and its sources as members."""
    return [(at + file.name, file.read_bytes()) for file in (path, pack_of(path))]


def merge(tmp_path: Path, *given: Path | str, store: str = "evidence.sqlite") -> MergeSummary:
    """Merge; whatever it did, nothing is left where it staged, and nothing lies beside."""
    summary = merge_artifacts(
        [str(path) for path in given],
        tmp_path / store,
        root=tmp_path / "no tree",
        staging_dir=tmp_path / "state" / "staging",
        now_us=STARTED_US + 10**9,
    )
    assert not (tmp_path / "state" / "staging").exists()
    return summary


def one_problem(summary: MergeSummary, *parts: str) -> None:
    (problem,) = summary.problems
    for part in parts:
        assert part in problem, problem
    assert "state/staging" not in problem


def test_zip_and_folders_of_zips_are_merged_as_the_bundles_in_them(tmp_path):
    paths = [bundle(tmp_path / "plain", number, scope=f"pr:{number}") for number in range(4)]
    pack_zip(tmp_path / "ci" / "a.zip", both(paths[0], "deep/below/"))
    pack_zip(tmp_path / "ci" / "sub" / "b.ZIP", [*both(paths[1]), ("readme.txt", b"x"), ("c/", b"")])
    inner = pack_zip(tmp_path / "inner.zip", both(paths[2]))
    outer = pack_zip(tmp_path / "outer.zip", [("artifacts/inner.zip", inner.read_bytes())])
    (tmp_path / "ci" / paths[3].name).write_bytes(paths[3].read_bytes())
    (tmp_path / "ci" / pack_of(paths[3]).name).write_bytes(pack_of(paths[3]).read_bytes())
    summary = merge(tmp_path, tmp_path / "ci", outer)
    assert (summary.n_merged, summary.n_complete, summary.problems) == (4, 4, [])
    merge_bundles(
        [tmp_path / "plain"], tmp_path / "plain.sqlite", root=tmp_path / "no", now_us=STARTED_US + 10**9
    )
    assert store_content(tmp_path / "evidence.sqlite") == store_content(tmp_path / "plain.sqlite")


def test_zip_without_its_suffix_is_told_by_its_beginning(tmp_path):
    given = pack_zip(tmp_path / "download", both(bundle(tmp_path / "plain")))
    assert merge(tmp_path, given).n_complete == 1


def test_several_of_one_name_in_different_folders_are_all_merged(tmp_path):
    members = []
    for number in range(3):
        path = bundle(tmp_path / str(number), number)
        members += [(f"shard{number}/x{file.suffix}", file.read_bytes()) for file in (path, pack_of(path))]
    summary = merge(tmp_path, pack_zip(tmp_path / "a.zip", members))
    assert (summary.n_merged, summary.n_complete, summary.problems) == (3, 3, [])


def test_member_without_sources_and_sources_without_bundle_are_no_problem(tmp_path):
    first, second = (bundle(tmp_path / "plain", number) for number in range(2))
    members = [(first.name, first.read_bytes()), (pack_of(second).name, pack_of(second).read_bytes())]
    summary = merge(tmp_path, pack_zip(tmp_path / "a.zip", members))
    assert (summary.n_merged, summary.n_complete, summary.problems) == (1, 0, [])


def test_torn_late_repeated_and_foreign_bundles_are_as_in_folders(tmp_path):
    path = bundle(tmp_path / "plain")
    whole = path.read_bytes()
    torn = whole[: whole.rindex(b"\n", 0, -1) + 1]
    foreign = whole.replace(b"fastci.bundle/1", b"fastci.bundle/9")
    early = pack_zip(
        tmp_path / "early.zip", [(path.name, torn), (pack_of(path).name, pack_of(path).read_bytes())]
    )
    summary = merge(tmp_path, early)
    assert (summary.n_merged, summary.n_complete) == (1, 0)
    late = pack_zip(
        tmp_path / "late.zip",
        [*both(path, "a/"), *both(path, "b/"), ("c/x" + SUFFIX, foreign), ("c/y" + SUFFIX, b"rubbish")],
    )
    summary = merge(tmp_path, late, early)
    assert (summary.n_merged, summary.n_known, summary.n_complete) == (1, 2, 1)
    assert len(summary.problems) == 2
    assert all(line.startswith(f"{late}: c/") for line in summary.problems)
    assert merge(tmp_path, early, late).n_merged == 0
    with EvidenceStore.open(tmp_path / "evidence.sqlite", read_only=True) as store:
        assert [record.is_complete for record in store.records_of(NODE)] == [True]


def linked(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (f"../../evil{SUFFIX}", "leads out"),
        (f"/etc/evil{SUFFIX}", "leads out"),
        (f"C:/evil{SUFFIX}", "leads out"),
        (f"a\\..\\..\\evil{SUFFIX}", "leads out"),
        (linked(f"evil{SUFFIX}"), "a link"),
        (linked("evil.zip"), "a link"),
    ],
    ids=str,
)
def test_member_with_a_bad_name_is_named_and_the_rest_is_merged(tmp_path, member, reason):
    members = [(member, b"/etc/passwd"), *both(bundle(tmp_path / "plain"))]
    before = set(tmp_path.rglob("*"))
    given = pack_zip(tmp_path / "a.zip", members)
    summary = merge(tmp_path, given)
    assert summary.n_complete == 1
    one_problem(summary, f"{given}: ", "evil", reason)
    new = {path.name for path in set(tmp_path.rglob("*")) - before}
    assert new == {"a.zip", "evidence.sqlite", "state"}


def test_second_member_of_one_name_is_named_and_the_first_is_merged(tmp_path):
    path = bundle(tmp_path / "plain")
    with pytest.warns(UserWarning, match="Duplicate name"):
        given = pack_zip(tmp_path / "a.zip", [*both(path), (path.name, b"rubbish")])
    summary = merge(tmp_path, given)
    assert summary.n_complete == 1
    one_problem(summary, f"{given}: {path.name}: another file of that name came before it")


def patched(path: Path, at: str, offset: int, value: bytes) -> Path:
    """A zip with bytes of a member's entry in the list at the end put in place of others."""
    content = bytearray(path.read_bytes())
    place = content.rindex(at.encode()) - 46 + offset
    assert content[place - offset :][:4] == b"PK\x01\x02"
    content[place : place + len(value)] = value
    path.write_bytes(bytes(content))
    return path


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (8, struct.pack("<H", 1), "encrypted"),
        (10, struct.pack("<H", 12), "packed by method 12"),
        (10, struct.pack("<H", 14), "packed by method 14"),
        (16, b"\0\0\0\0", "cannot be unpacked"),
        (24, struct.pack("<L", 5), "cannot be unpacked"),
        (24, struct.pack("<L", 0xFFFFFFF0), "more than 536,870,912 bytes"),
        (42, struct.pack("<L", 7), "cannot be unpacked"),
        (42, struct.pack("<L", 0xFFFFFF), "cannot be unpacked"),
    ],
)
def test_member_that_cannot_be_unpacked_is_named_and_the_rest_is_merged(tmp_path, offset, value, reason):
    members = [*both(bundle(tmp_path / "plain")), (f"bad{SUFFIX}", b"x" * 1000)]
    given = patched(pack_zip(tmp_path / "a.zip", members), f"bad{SUFFIX}", offset, value)
    summary = merge(tmp_path, given)
    assert summary.n_complete == 1
    one_problem(summary, f"{given}: bad{SUFFIX}", reason)


def test_names_that_are_no_utf_8(tmp_path):
    path = bundle(tmp_path / "plain")
    given = pack_zip(tmp_path / "a.zip", both(path, "caf_/"))
    given.write_bytes(given.read_bytes().replace(b"caf_/", b"caf\xe9/"))
    assert merge(tmp_path, given).n_complete == 1
    other = pack_zip(tmp_path / "b.zip", both(bundle(tmp_path / "plain", 2), "caf\xe9\xe9/"))
    other.write_bytes(other.read_bytes().replace("\xe9\xe9".encode(), b"\xc3\xff\xfe\xfd"))
    summary = merge(tmp_path, other, given)
    assert summary.n_known == 1
    one_problem(summary, str(other), "no UTF-8")


def test_bundle_and_sources_of_an_odd_name_stay_together(tmp_path):
    path = bundle(tmp_path / "plain")
    stem = "-rf *\n\x1b[31m é" + "x" * 300
    members = [(stem + file.suffix, file.read_bytes()) for file in (path, pack_of(path))]
    summary = merge(tmp_path, pack_zip(tmp_path / "a.zip", members))
    assert (summary.n_complete, summary.problems) == (1, [])


def test_bombs_are_refused_by_what_they_say_and_by_what_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "_MAX_FILE_BYTES", 100_000)
    monkeypatch.setattr(staging, "_MAX_BYTES", 250_000)
    good = both(bundle(tmp_path / "plain"))
    one = pack_zip(tmp_path / "one.zip", [*good, (f"bomb{SUFFIX}", b"\0" * 100_001)])
    summary = merge(tmp_path, one)
    assert summary.n_complete == 1
    one_problem(summary, f"{one}: bomb{SUFFIX}: more than 100,000 bytes")
    members = [(f"{number}{SUFFIX}", b"\0" * 90_000) for number in range(5)]
    many = pack_zip(tmp_path / "many.zip", [*good, *members])
    summary = merge(tmp_path, many)
    assert summary.n_known == 1
    assert sum("more than 250,000 bytes in all" in line for line in summary.problems) == 3
    # What a zip says of its size is not what comes out of it, and a nested one counts too.
    nested = pack_zip(tmp_path / "nested.zip", [("inner.zip", b"\0" * 100_001), *good])
    one_problem(merge(tmp_path, nested), f"{nested}: inner.zip: more than")


def test_what_comes_is_counted_whatever_was_declared(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "_MAX_FILE_BYTES", 10)
    with staging.Staging(tmp_path / "staging") as place:
        folder = place.new_folder()
        with pytest.raises(staging.RefusedError, match="more than 10 bytes"):
            place.put(folder, f"a{SUFFIX}", "a", io.BytesIO(b"x" * 11).read, n_declared=1)
        assert list(folder.iterdir()) == []
    assert not (tmp_path / "staging").exists()


def test_number_of_files_and_of_problems_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "_MAX_FILES", 3)
    monkeypatch.setattr(staging, "_MAX_PROBLEMS", 5)
    members = [(f"{number}/x{SUFFIX}", b"rubbish") for number in range(50)]
    given = pack_zip(tmp_path / "a.zip", members)
    summary = merge(tmp_path, given)
    assert summary.n_files == 3
    assert len(summary.problems) == 3 + 5 + 1
    assert "more of the kind" in summary.problems[5]


def test_huge_list_of_members_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_MAX_DIRECTORY_BYTES", 70_000)
    given = pack_zip(tmp_path / "a.zip", [(f"{number}.txt", b"") for number in range(2_000)])
    summary = merge(tmp_path, given, bundle(tmp_path / "plain"))
    assert summary.n_complete == 1
    one_problem(summary, f"{given}: its list of members takes more than 70,000 bytes")


def test_zip_in_a_zip_in_a_zip_is_named_and_left(tmp_path):
    path = bundle(tmp_path / "plain")
    inmost = pack_zip(tmp_path / "inmost.zip", both(path))
    inner = pack_zip(tmp_path / "inner.zip", [("inmost.zip", inmost.read_bytes())])
    outer = pack_zip(tmp_path / "outer.zip", [("inner.zip", inner.read_bytes()), *both(path)])
    summary = merge(tmp_path, outer)
    assert summary.n_complete == 1
    one_problem(summary, f"{outer}: inner.zip: inmost.zip: a zip in a zip in a zip")


@pytest.mark.parametrize("kind", ["rubbish", "empty", "without bundles", "absent", "pipe", "folder"])
def test_what_is_no_zip_of_bundles_is_named_and_the_rest_is_merged(tmp_path, kind):
    given = tmp_path / "ci" / "a.zip"
    given.parent.mkdir()
    if kind == "rubbish":
        given.write_bytes(b"PK\x03\x04" + b"rubbish" * 100)
    elif kind == "empty":
        given.touch()
    elif kind == "without bundles":
        pack_zip(given, [("a.txt", b"x")])
    elif kind == "pipe":
        os.mkfifo(given)
    elif kind == "folder":
        bundle(given, 2)
    summary = merge(tmp_path, given, bundle(tmp_path / "plain"))
    assert summary.n_complete == 1 + (kind == "folder")
    if kind != "folder":
        one_problem(summary, str(given))


@settings(max_examples=60)
@given(data=st.data())
def test_no_damage_to_a_zip_breaks_a_merge(tmp_path_factory, data):
    tmp_path = tmp_path_factory.mktemp("damage")
    good = bundle(tmp_path / "plain", 1)
    given_zip = pack_zip(tmp_path / "a.zip", both(bundle(tmp_path / "other", 2), "x/"))
    content = bytearray(given_zip.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(
            st.integers(0, len(content) - 1) | st.integers(max(0, len(content) - 260), len(content) - 1)
        )
        content[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    given_zip.write_bytes(bytes(content))
    summary = merge(tmp_path, given_zip, good)
    assert summary.n_merged >= 1
    with EvidenceStore.open(tmp_path / "evidence.sqlite", read_only=True) as store:
        assert store.has_bundle("0001")
        assert store.check() == []
    found = {path.name for path in tmp_path.iterdir()} - {"state"}
    assert found == {"plain", "other", "a.zip", "evidence.sqlite"}


def test_what_a_killed_merge_left_is_removed_by_the_next_and_that_of_a_running_one_stays(tmp_path):
    folder = tmp_path / "state" / "staging"
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom fastci_ml.evidence.merge.staging import Staging\n"
        "place = Staging(Path(sys.argv[1]))\nprint(place.new_folder(), flush=True)\n"
        "sys.stdin.read(1)\nos._exit(9)\n"
    )
    command = [sys.executable, "-c", script, str(folder)]
    given = pack_zip(tmp_path / "a.zip", both(bundle(tmp_path / "plain")))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        left = Path(running.stdout.readline().strip())
        assert left.is_dir()
        summary = merge_artifacts([str(given)], tmp_path / "e.sqlite", root=tmp_path, staging_dir=folder)
        assert summary.n_merged == 1
        assert left.is_dir()
        assert len(list(folder.iterdir())) == 2
        running.kill()
    (left / "link").symlink_to(tmp_path / "plain")
    assert merge(tmp_path, given, store="e.sqlite").n_known == 1
    assert any((tmp_path / "plain").iterdir())


def test_merges_of_the_same_zips_at_once_are_as_one(tmp_path):
    given = [
        str(
            pack_zip(
                tmp_path / f"{number}.zip", both(bundle(tmp_path / "plain", number, scope=f"pr:{number}"))
            )
        )
        for number in range(4)
    ]
    (tmp_path / "fastci.toml").write_text("")
    command = [sys.executable, "-m", "fastci_ml", "merge", *given]
    running = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    outputs = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], outputs
    assert [path.name for path in (tmp_path / ".fastci").iterdir()] == ["evidence.sqlite"]
    with EvidenceStore.open(tmp_path / ".fastci" / "evidence.sqlite", read_only=True) as store:
        assert store.check() == []
        assert len(store.records_of(NODE)) == 4


def test_nothing_is_left_after_an_error(tmp_path):
    given = pack_zip(tmp_path / "a.zip", both(bundle(tmp_path / "plain")))
    (tmp_path / "evidence.sqlite").write_text("no database " * 200)
    with pytest.raises(EvidenceError, match=r"evidence\.sqlite"):
        merge(tmp_path, given)
    assert not (tmp_path / "state" / "staging").exists()


def test_link_in_place_of_the_staging_folder_is_not_followed(tmp_path):
    given = pack_zip(tmp_path / "a.zip", both(bundle(tmp_path / "plain")))
    victim = tmp_path / "victim"
    (victim / ("a" * 32)).mkdir(parents=True)
    (victim / f"{'a' * 32}.lock").touch()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "staging").symlink_to(victim)
    with pytest.raises(EvidenceError, match="found a link"):
        merge(tmp_path, given)
    assert len(list(victim.iterdir())) == 2


def test_locks_of_others_and_what_they_lock_stay(tmp_path):
    given = pack_zip(tmp_path / "a.zip", both(bundle(tmp_path / "plain")))
    folder = tmp_path / "state" / "staging"
    (folder / "poetry").mkdir(parents=True)
    (folder / "poetry.lock").touch()
    merge_artifacts([str(given)], tmp_path / "e.sqlite", root=tmp_path, staging_dir=folder)
    assert {path.name for path in folder.iterdir()} == {"poetry", "poetry.lock"}


def test_place_that_cannot_be_written_is_an_error_with_a_hint(tmp_path):
    given = pack_zip(tmp_path / "a.zip", both(bundle(tmp_path / "plain")))
    (tmp_path / "state").write_text("a file")
    with pytest.raises(EvidenceError, match="cannot be unpacked here") as caught:
        merge(tmp_path, given)
    assert "unzip" in (caught.value.hint or "")


def test_plain_bundles_stage_nothing(tmp_path):
    assert merge(tmp_path, bundle(tmp_path / "plain")).n_complete == 1
    assert not (tmp_path / "state").exists()


def test_url_without_fsspec_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UsageError, match="fsspec has to be installed") as caught:
        merge(tmp_path, "s3://key:secret@bucket/a.zip?sig=secret", bundle(tmp_path / "plain"))
    assert caught.value.hint == "pip install 'fastci-ml[remote]'"
    assert "secret" not in str(caught.value)


class SilentHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def fsspec():
    return pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'fastci-ml[remote]'")


def test_zip_bundle_and_folder_by_url(tmp_path, fsspec):
    first, second, third = (bundle(tmp_path / str(number), number) for number in range(3))
    memory = fsspec.filesystem("memory")
    memory.pipe("/ci/1/a.zip", pack_zip(tmp_path / "a.zip", both(first)).read_bytes())
    memory.pipe("/ci/2/notes.txt", b"x")
    for file in (second, pack_of(second)):
        memory.pipe(f"/ci/2/deep/{file.name}", file.read_bytes())
    try:
        summary = merge(tmp_path, "memory://ci", third.as_uri())
        assert (summary.n_merged, summary.n_complete, summary.problems) == (3, 3, [])
        assert merge(tmp_path, "memory://ci/1/a.zip").n_known == 1
    finally:
        memory.rm("/ci", recursive=True)


def test_inside_of_a_zip_by_url(tmp_path, fsspec):
    given = pack_zip(tmp_path / "a.zip", both(bundle(tmp_path / "plain"), "deep/"))
    assert merge(tmp_path, f"zip://::file://{given}").n_complete == 1


def test_page_is_fetched_and_not_searched_for_links(tmp_path, monkeypatch, fsspec):
    pytest.importorskip("aiohttp", reason="fsspec needs it for http")
    served = tmp_path / "served"
    pack_zip(served / "77" / "zip", both(bundle(tmp_path / "plain")))
    monkeypatch.setattr("fsspec.implementations.http.HTTPFileSystem._isdir", None)
    handler = functools.partial(SilentHandler, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            summary = merge(
                tmp_path, f"http://user:secret@127.0.0.1:{server.server_port}/77/zip?token=secret"
            )
        finally:
            server.shutdown()
    assert (summary.n_complete, summary.problems) == (1, [])


def test_one_file_that_fails_keeps_no_other_from_being_merged(tmp_path, monkeypatch, fsspec):
    class StrangeError(Exception):
        pass

    first, second = (bundle(tmp_path / "plain", number) for number in range(2))
    system = type(fsspec.filesystem("file"))
    whole = system.open

    def open_some(self: object, path: str, *words: Any) -> object:
        if path.endswith(first.name):
            raise StrangeError("no, https://user:secret@ci?token=secret")
        return whole(self, path, *words)

    monkeypatch.setattr(system, "open", open_some)
    summary = merge(tmp_path, (tmp_path / "plain").as_uri())
    assert (summary.n_merged, summary.n_complete) == (1, 1)
    one_problem(summary, first.name, "StrangeError: no, https://...@ci?...")
    assert second.exists()


def test_what_cannot_be_fetched_is_named_and_the_rest_is_merged(tmp_path, fsspec):
    urls = ["memory://nowhere/a.zip", "nonsense://a", "https://", "memory://empty?token=secret"]
    summary = merge(tmp_path, *urls, bundle(tmp_path / "plain"))
    assert summary.n_complete == 1
    assert len(summary.problems) == 4
    for url, line in zip(urls, summary.problems, strict=True):
        assert line.startswith(without_secrets(url))
    assert "secret" not in "".join(summary.problems)


def test_fsspec_is_not_loaded_for_files(tmp_path):
    given = pack_zip(tmp_path / "a.zip", both(bundle(tmp_path / "plain")))
    code = (
        "import sys\nfrom fastci_ml.cli import app\n"
        f"assert app.main(['merge', {str(given)!r}]) == 0\n"
        "assert 'fsspec' not in sys.modules\n"
    )
    (tmp_path / "fastci.toml").write_text("")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)

"""Folders of strangers: pipes, sockets, devices, links, names, packed files, files that change meanwhile."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from ci_folders import ids, ingest, outcomes, write_junit, write_run

from fastci_ml.errors import ReportError
from fastci_ml.records.frames import EXECUTIONS, RUNS
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.ingest import ingest as ingest_module
from fastci_ml.sources.ingest.report_files import list_reports
from fastci_ml.sources.ingest.run_file import RunInfo, read_run_file
from fastci_ml.sources.regular_files import read_regular
from fastci_ml.sources.reports import Report


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # names of sockets have a hundred letters at most
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path.name)
    finally:
        os.chdir(before)


def _device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero: reading it has no end
    except PermissionError:
        path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _long_loop(path: Path) -> None:
    other = path.with_name("other")
    other.symlink_to(path)
    path.symlink_to(other)


_PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "a pipe, expected a regular file"),
    "socket": (_socket, "a socket, expected a regular file"),
    "device": (_device, "a device, expected a regular file"),
    "link to a device": (lambda path: path.symlink_to("/dev/zero"), "a device, expected a regular file"),
    "empty folder": (lambda path: path.mkdir(), "a folder, expected a"),
    "link to itself": (_loop, "a link that leads back to itself"),
    "links in a circle": (_long_loop, "a link that leads back to itself"),
    "link to nothing": (lambda path: path.symlink_to("nothing"), "a link to a file that is not there"),
    "empty file": (lambda path: path.touch(), "empty: the run that was to write it did not get that far"),
    "zip": (lambda path: zipfile.ZipFile(path, "w").close(), "packed (zip"),
    "gzip": (lambda path: path.write_bytes(gzip.compress(b"<testsuite/>")), "packed (gzip)"),
}


@pytest.mark.parametrize(("make", "words"), _PLACES.values(), ids=_PLACES)
def test_what_stands_in_the_place_of_a_report_costs_one_line(
    tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    logs = tmp_path / "logs"
    write_run(logs / "r1", selected=ids("test_a"))
    write_junit(logs / "r2" / "junit.xml", ["test_a"])
    make(logs / "r1" / "junit.xml")
    report = ingest(tmp_path / "history", logs)
    assert len(report.problems) == 1
    assert report.problems[0].startswith(f"{logs}/r1/junit.xml: {words}")
    # The run is known to have been, and its test to have no result; the other run is in.
    assert report.n_missing == 1
    assert len(HistoryStore(tmp_path / "history").read(RUNS)) == 2


@pytest.mark.parametrize(("make", "words"), _PLACES.values(), ids=_PLACES)
def test_the_same_named_on_the_command_line_costs_one_line(
    tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    path = tmp_path / "junit.xml"
    make(path)
    report = ingest(tmp_path / "history", path)
    assert len(report.problems) == 1
    if not path.is_dir():
        assert report.problems[0].startswith(f"{path}: {words}")


@pytest.mark.parametrize(
    "make", [make for make, words in _PLACES.values() if "packed" not in words], ids=lambda make: ""
)
def test_what_stands_in_the_place_of_a_run_json_does_not_let_the_one_above_speak(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    logs = tmp_path / "logs"
    write_run(logs, run_id="above")
    write_junit(logs / "sub" / "junit.xml", ["test_a"])
    write_junit(logs / "other" / "junit.xml", ["test_b"])
    make(logs / "sub" / "run.json")
    report = ingest(tmp_path / "history", logs)
    assert len(report.problems) == 1
    assert report.problems[0].startswith(f"{logs}/sub/run.json: ")
    assert "the reports that it speaks for are left out" in report.problems[0]
    assert outcomes(tmp_path / "history") == {("test_b", 0): "passed"}


def test_folders_that_are_named_like_a_report_are_looked_into(tmp_path: Path) -> None:
    write_junit(tmp_path / "logs" / "junit.xml" / "deep" / "real.xml", ["test_a"])
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert (report.problems, report.n_executions) == ([], 1)


def test_links_to_folders_are_not_followed_and_lead_nowhere_silently_only_inside(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_junit(logs / "r1" / "junit.xml", ["test_a"])
    write_junit(tmp_path / "outside" / "junit.xml", ["test_b"])
    (logs / "latest").symlink_to("r1")
    (logs / "up").symlink_to("..")
    (logs / "loop").symlink_to(".")
    (logs / "root").symlink_to("/")
    (logs / "out").symlink_to("../outside")
    report = ingest(tmp_path / "history", logs)
    assert (report.n_files, report.problems) == (1, [])
    assert sorted(line.split(": ")[0] for line in report.warnings) == [
        str(logs / name) for name in ("out", "root", "up")
    ]
    # The place itself may be a link.
    assert ingest(tmp_path / "other", logs / "out").n_executions == 1


_AS_NOBODY = """
import sys
from pathlib import Path
sys.path.insert(0, {support!r})
from ci_folders import ingest
import os
# What is loaded on first use may lie where nobody may read.
ingest(Path({history!r}) / "warm", Path({logs!r}) / "good")
os.setuid(65534)
report = ingest(Path({history!r}) / "real", Path({logs!r}))
print(report.n_executions)
print("\\n".join(report.problems))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_files_and_folders_that_may_not_be_read_are_named(tmp_path: Path) -> None:
    """As another user in another process: root may read everything."""
    logs = tmp_path / "logs"
    write_junit(logs / "good" / "junit.xml", ["test_a"])
    (write_junit(logs / "junit.xml", ["test_b"])).chmod(0)
    (logs / "report.txt").write_text("could be a report log")
    (logs / "report.txt").chmod(0)
    write_junit(logs / "closed" / "junit.xml", ["test_c"])
    write_junit(logs / "unsearchable" / "junit.xml", ["test_d"])
    (logs / "closed").chmod(0)
    (logs / "unsearchable").chmod(0o444)
    (write_run(logs / "run")).chmod(0)
    write_junit(logs / "run" / "junit.xml", ["test_e"])
    history = tmp_path / "history"
    history.mkdir()
    history.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents[:-1]):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    program = _AS_NOBODY.format(
        support=str(Path(__file__).parents[1] / "support"), history=str(history), logs=str(logs)
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    n_executions, *problems = done.stdout.splitlines()
    assert n_executions == "1"
    assert sorted(line.split(": ")[0] for line in problems) == sorted(
        str(logs / name)
        for name in ("closed", "junit.xml", "report.txt", "run/run.json", "unsearchable/junit.xml")
    )


def test_names_of_any_bytes_are_one_line_and_one_source(tmp_path: Path) -> None:
    names = [
        b"a\nb.xml",
        b"bad\xff.xml",
        b"esc\x1b[31m.xml",
        b"tab\there.xml",
        "é.xml".encode(),
        b"-x.xml",
        b" .xml",
    ]
    for place, name in enumerate(names):
        for kind in ("good", "torn"):
            path = tmp_path / "logs" / kind / os.fsdecode(name)
            write_junit(path, [f"test_{place}"], second=place)
            if kind == "torn":
                path.write_text(path.read_text()[:-20])
    report = ingest(tmp_path / "history", tmp_path / "logs", run=RunInfo(run_id="7"))
    assert report.n_executions == len(names)
    assert len(report.problems) == len(names)
    assert all(line.isprintable() for line in report.problems)
    assert any("bad\\xff.xml" in line for line in report.problems)
    assert any("a\\nb.xml" in line for line in report.problems)
    assert any("é.xml" in line for line in report.problems)
    assert json.loads(json.dumps(report.problems)) == report.problems


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no readable JSON: the file is empty"),
        (b"  \n", "no readable JSON: the file is empty"),
        (b"[" * 1_000_000, "no readable JSON"),
        (b'{"schema": ' * 100_000, "no readable JSON"),
        (b'{"schema": "fastci.run/1", "run_id": "\xff"}', "no readable JSON"),
        (b'{"schema": "fastci.run/1", "run_id": ' + b"9" * 10_000 + b"}", "no readable JSON"),
        (b'{"schema": "fastci.run/1", "run_id": "' + b"a" * 10_000 + b'"}', "run_id has 10,000 letters"),
        (b'{"schema": "' + b"a" * 1_000_000 + b'"}', "schema aaa"),
        (b"\x00" * 5_000, "no readable JSON"),
        (b"\x1f\x8b packed", "no readable JSON"),
    ],
    ids=range(10),
)
def test_a_run_json_that_is_none_is_one_short_line(tmp_path: Path, content: bytes, words: str) -> None:
    logs = tmp_path / "logs"
    write_junit(logs / "bad" / "junit.xml", ["test_a"])
    (logs / "bad" / "run.json").write_bytes(content)
    write_junit(logs / "good" / "junit.xml", ["test_b"])
    report = ingest(tmp_path / "history", logs)
    assert len(report.problems) == 1
    assert report.problems[0].startswith(f"{logs}/bad/run.json: {words}")
    assert len(report.problems[0]) <= 1000
    assert outcomes(tmp_path / "history") == {("test_b", 0): "passed"}


def test_a_huge_run_json_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of holes
    with pytest.raises(ReportError, match="more than 67,108,864 bytes: refused"):
        read_run_file(path)
    with pytest.raises(ReportError, match="more than 3 bytes"):
        read_regular(path, 3)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"attempt": 0}, "attempt is 0, expected a whole number from 1"),
        ({"attempt": True}, "attempt is True"),
        ({"attempt": "2"}, "attempt is '2'"),
        ({"attempt": 10**9}, "attempt is 1000000000"),
        ({"n_shards": -1}, "n_shards is -1"),
        ({"n_shards": 2.0}, "n_shards is 2.0"),
        ({"project": "/etc"}, "project '/etc', expected a path from the top"),
        ({"project": "a/../../b"}, "project 'a/../../b'"),
        ({"selected": 7}, "selected is int"),
        ({"selected": ["a::b", 7]}, "selected has 7, expected node ids"),
        ({"selected": "/etc/passwd"}, "selected is '/etc/passwd', expected the name of a file beside it"),
        ({"selected": "../secret.txt"}, "selected is '../secret.txt'"),
        ({"selected": "a\0b"}, "selected is"),
        ({"started_at": "9" * 2000}, "started_at has 2,000 letters"),
    ],
)
def test_keys_that_make_no_sense_are_named(tmp_path: Path, told: dict[str, object], words: str) -> None:
    path = write_run(tmp_path, **told)
    with pytest.raises(ReportError) as caught:
        read_run_file(path)
    assert f"{path}: {words}" in str(caught.value)


def test_packed_files_are_named_where_a_report_may_be_in_them(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_junit(logs / "junit.xml", ["test_a"])
    for name in ("junit.xml.gz", "out.jsonl.gz", "notes.txt.gz"):
        (logs / name).write_bytes(gzip.compress(b"x"))
    with zipfile.ZipFile(logs / "artifact.zip", "w") as packed:
        packed.write(logs / "junit.xml")
    with tarfile.open(logs / "artifact.tar", "w") as packed_too:
        packed_too.add(logs / "junit.xml")
    with tarfile.open(logs / "artifact.tar.gz", "w:gz") as packed_too:
        packed_too.add(logs / "junit.xml")
    report = ingest(tmp_path / "history", logs)
    assert report.problems == [
        f"{logs}/{name}: packed (gzip): unpack it first" for name in ("junit.xml.gz", "out.jsonl.gz")
    ]
    assert report.warnings == [
        f"{logs}/artifact.tar: packed (tar): unpack it first",
        f"{logs}/artifact.tar.gz: packed (gzip): unpack it first",
        f"{logs}/artifact.zip: packed (zip): unpack it first",
    ]
    named = ingest(tmp_path / "other", logs / "notes.txt.gz")
    assert named.problems == [f"{logs}/notes.txt.gz: packed (gzip): unpack it first"]


def test_files_that_go_away_after_they_were_listed_cost_one_line_each(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for place in range(4):
        write_run(logs / str(place))
        write_junit(logs / str(place) / "junit.xml", ["test_a"], second=place)
    bare = write_junit(tmp_path / "bare.xml", ["test_a"], second=9)

    def progress(what: str, step: int, total: int) -> None:
        if step == 0:
            shutil.rmtree(logs / "2")
            bare.unlink()

    store = HistoryStore(tmp_path / "history")
    options = ingest_module.IngestOptions(lane="cpu")
    report = ingest_module.ingest_paths(store, [logs, bare], options, progress)
    assert len(report.problems) == 2
    assert all("cannot be read" in line for line in report.problems)
    # Its run.json had been read: run 2 has been, and left no report.
    sources = store.read(RUNS).set_index("run_id").source
    assert sources.to_dict() == {**dict.fromkeys("013", "junit junit.xml"), "2": "no report"}


@pytest.mark.parametrize("how", ["grows", "shrinks", "is replaced", "goes away"])
def test_a_file_that_changes_while_it_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    logs = tmp_path / "logs"
    good = write_junit(logs / "a.xml", ["test_a"])
    path = write_junit(logs / "b.xml", ["test_b"], second=1)
    whole = path.read_bytes()
    real = ingest_module.read_junit

    def read(file: Path, *rest: object) -> Report:
        report = real(file, *rest)  # type: ignore[arg-type]
        if file == path:
            if how == "grows":
                file.write_bytes(whole + b"<!-- more -->")
            elif how == "shrinks":
                os.truncate(file, 40)
            elif how == "is replaced":
                shutil.copy(good, file.with_suffix(".new"))
                file.with_suffix(".new").rename(file)
            else:
                file.unlink()
        return report

    monkeypatch.setattr(ingest_module, "read_junit", read)
    report = ingest(tmp_path / "history", logs, run=RunInfo(run_id="7"))
    assert len(report.problems) == 1
    assert report.problems[0].startswith(f"{path}: ")
    assert "while it was read" in report.problems[0]
    assert outcomes(tmp_path / "history") == {("test_a", 0): "passed"}
    # Written to its end, it goes in.
    monkeypatch.undo()
    path.write_bytes(whole)
    assert ingest(tmp_path / "history", logs, run=RunInfo(run_id="7")).problems == []
    assert len(outcomes(tmp_path / "history")) == 2


@pytest.mark.parametrize("link", [os.link, os.symlink, shutil.copy], ids=["hard link", "link", "copy"])
def test_one_file_by_two_paths_is_ingested_once(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    path = write_junit(tmp_path / "logs" / "a.xml", ["test_a"])
    link(path, tmp_path / "logs" / "b.xml")
    for run in (RunInfo(run_id="7"), RunInfo()):
        history = tmp_path / f"history-{run.run_id}"
        again = path.parent / ".." / "logs" / "a.xml"
        report = ingest(history, tmp_path / "logs", path, again, run=run)
        assert (report.n_runs, report.n_executions) == (1, 1)
        assert len(HistoryStore(history).read(EXECUTIONS)) == 1


def test_a_listing_comes_in_one_order(tmp_path: Path) -> None:
    names = [f"{letter}/{number}.xml" for letter in "ba" for number in (10, 9)]
    for name in names:
        write_junit(tmp_path / name, ["test_a"])
    listing = list_reports([tmp_path], has_mapping=False)
    assert [str(file.path.relative_to(tmp_path)) for file in listing.files] == sorted(names)

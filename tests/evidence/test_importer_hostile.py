"""Files that claim to be data of another tool: whatever they are, the answer is an error that says so."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_project import DATA, SOURCES, make_data, write_project

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.importers.coverage_data import import_coverage
from fastci_ml.evidence.importers.imported import ImportedEvidence
from fastci_ml.evidence.importers.testmon_data import import_testmon
from fastci_ml.records.evidence import EvidenceRecord

IMPORTERS = [import_coverage, import_testmon]
Importer = Callable[..., ImportedEvidence]

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.fixture
def project(tmp_path) -> Path:
    write_project(tmp_path)
    return tmp_path


def make(root: Path, *scripts: str) -> Path:
    return make_data(root / "data", *scripts)


def test_the_sound_file_that_the_others_are_made_of_is_read(project):
    found = import_coverage(make(project, DATA), root=project, lane="l")
    assert [record.node_id for record in found.records] == [
        "tests/test_lib.py::test_f",
        "tests/test_lib.py::test_g",
    ]


@pytest.mark.parametrize("importer", IMPORTERS)
def test_missing_file_is_named(tmp_path, importer):
    with pytest.raises(EvidenceError, match="nowhere"):
        importer(tmp_path / "nowhere", root=tmp_path, lane="l")


@pytest.mark.parametrize("importer", IMPORTERS)
def test_folder_is_refused(tmp_path, importer):
    with pytest.raises(EvidenceError, match="a folder, expected a regular file"):
        importer(tmp_path, root=tmp_path, lane="l")


@pytest.mark.parametrize("importer", IMPORTERS)
def test_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path, importer):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EvidenceError, match="a pipe"):
        importer(tmp_path / "pipe", root=tmp_path, lane="l")


@pytest.mark.parametrize("importer", IMPORTERS)
@pytest.mark.parametrize("content", [b"", b"hello\n", b"SQLite format 3", b"\0" * 4096])
def test_what_is_no_database_is_refused(tmp_path, importer, content):
    path = tmp_path / "data"
    path.write_bytes(content)
    with pytest.raises(EvidenceError, match=r"begins with b.*expected data of"):
        importer(path, root=tmp_path, lane="l")


def test_data_of_coverage_before_5_is_told_by_its_name(tmp_path):
    path = tmp_path / "data"
    path.write_text("!coverage.py: This is a private format, don't read it directly!{}")
    with pytest.raises(EvidenceError, match="before 5"):
        import_coverage(path, root=tmp_path, lane="l")


@pytest.mark.parametrize("importer", IMPORTERS)
def test_database_of_another_program_is_refused(tmp_path, importer):
    path = make(tmp_path, "CREATE TABLE t (x)")
    with pytest.raises(EvidenceError, match=r"no table 'coverage_schema'|schema 0, expected 13 or 14"):
        importer(path, root=tmp_path, lane="l")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE coverage_schema SET version = 8", "schema 8, expected 7"),
        ("DELETE FROM coverage_schema", "schema none, expected 7"),
        ("INSERT INTO coverage_schema VALUES (7)", "schema 7, 7, expected 7"),
        ("DROP TABLE arc", "no table 'arc'"),
        ("ALTER TABLE file RENAME COLUMN path TO name", "no plain column 'path'"),
        ("UPDATE file SET path = x'00' WHERE id = 1", "damaged"),
        ("UPDATE context SET context = x'00' WHERE id = 2", "damaged"),
        ("UPDATE line_bits SET numbits = 'text'", "a set of lines is no blob"),
        ("UPDATE line_bits SET numbits = 7", "a set of lines is no blob"),
        ("UPDATE line_bits SET numbits = zeroblob(40000000)", "no blob, or too long"),
        ("UPDATE line_bits SET numbits = zeroblob(90000000)", "cannot be read|no blob, or too long"),
        ("UPDATE line_bits SET context_id = 77", "a row of file 1 and context 77"),
        ("UPDATE line_bits SET file_id = 'x'", "a row of file 'x'"),
        ("INSERT INTO arc VALUES (1, 2, 1, 9000000000000000000)", "a branch to line 9000000000000000000"),
        ("INSERT INTO arc VALUES (1, 2, 'x', 1)", "a branch to line x"),
    ],
)
def test_rows_that_coverage_does_not_write_are_refused(project, statement, message):
    path = make(project, DATA, statement)
    with pytest.raises(EvidenceError, match=message):
        import_coverage(path, root=project, lane="l")


@pytest.mark.parametrize(
    "script",
    [
        # Each stands behind the name of a table, and would be run by reading it.
        "DROP TABLE line_bits;"
        f"CREATE VIEW line_bits AS {ENDLESS} SELECT 1 file_id, 2 context_id, i numbits FROM n;",
        "DROP TABLE file; CREATE TABLE file (id integer, path text AS (hex(zeroblob(400000000))));",
        "DROP TABLE file; CREATE VIRTUAL TABLE file USING fts5(id, path);",
    ],
    ids=["endless view", "computed column", "virtual table"],
)
def test_what_only_looks_like_a_table_is_not_read(project, script):
    try:
        path = make(project, DATA, script)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite cannot make it: {error}")
    with pytest.raises(EvidenceError, match="no plain"):
        import_coverage(path, root=project, lane="l")


@pytest.mark.parametrize("is_unfinished", [False, True])
def test_views_triggers_and_conditions_beside_the_rows_change_nothing(project, is_unfinished):
    extra = (
        f"CREATE VIEW other AS {ENDLESS} SELECT i FROM n;"
        "CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM file; END;"
        # Looking whether these hold would compute what a stranger wrote, for every row.
        "PRAGMA ignore_check_constraints = ON;"
        "CREATE TABLE costly (x, CHECK (hex(zeroblob(x)) = 'never')); INSERT INTO costly VALUES (100);"
        "ALTER TABLE arc ADD COLUMN more TEXT CHECK (0);"
        "INSERT INTO arc VALUES (1, 2, 8, 9, 'x');"
    )
    path = make(project, DATA, extra)
    if is_unfinished:
        # Then a copy is opened, for writing, and SQLite takes in more of what the file says.
        path.with_name("data-journal").write_bytes(bytes(512))
    assert len(import_coverage(path, root=project, lane="l").records) == 2


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside.py", "link.py", "a\0b.py", ""])
def test_file_outside_of_the_repository_is_never_read(project, target):
    outside = project.parent / "outside.py"
    outside.write_text(project.joinpath("pkg/lib.py").read_text())
    (project / "link.py").symlink_to(outside)
    path = make(project, DATA)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE file SET path = ? WHERE id = 1", (target,))
    connection.close()
    found = import_coverage(path, root=project, lane="l")
    assert all("lib.py" not in key[0] or key[0].startswith("tests/") for key in found.file_versions)
    assert not any(unit.name == "f" for record in found.records for unit in record.units)


def test_context_of_any_text_is_a_name_and_nothing_else(project):
    odd = "tests/test_lib.py::test_f[$(touch x); '\"\n\x1b[0m../../é]|run"
    path = make(project, DATA)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE context SET context = ? WHERE id = 2", (odd,))
    connection.close()
    found = import_coverage(path, root=project, lane="l")
    assert odd.removesuffix("|run") in {record.node_id for record in found.records}


def test_file_that_does_not_parse_is_left_out_and_named(project):
    path = make(project, DATA)
    lib = project / "pkg" / "lib.py"
    lib.write_text("def broken(:\n")
    os.utime(lib, (1, 1))
    (line,) = import_coverage(path, root=project, lane="l").refused
    assert line == "pkg/lib.py: is no Python that this interpreter reads"


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("sound")
    write_project(root)
    make(root, DATA)
    return root


@given(st.data())
def test_damage_anywhere_is_an_error_or_harmless(sound, data):
    content = bytearray((sound / "data").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(16, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.sampled_from([len(content), len(content) - 1, 4096, 5000, 100]))]
    path = sound / "damaged"
    path.write_bytes(content)
    records: tuple[EvidenceRecord, ...] = ()
    # No other error; a changed bit of a value cannot be told.
    with suppress(EvidenceError):
        records = import_coverage(path, root=sound, lane="l").records
    # What comes is weak, and of files of this repository.
    assert not any(record.is_complete for record in records)
    assert {unit.path for record in records for unit in record.units} <= SOURCES.keys()


@given(st.binary(max_size=200))
def test_random_bytes_behind_the_right_beginning_are_an_error(tmp_path_factory, tail):
    path = tmp_path_factory.getbasetemp() / "random"
    path.write_bytes(b"SQLite format 3\0" + tail)
    for importer in IMPORTERS:
        with pytest.raises(EvidenceError):
            importer(path, root=path.parent, lane="l")

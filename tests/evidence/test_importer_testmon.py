"""Evidence from databases of pytest-testmon: what testmon itself wrote is read, file by file."""

from __future__ import annotations

import random
import sqlite3
import zlib
from pathlib import Path

import pytest
from measured_project import SOURCES, run_tests, write_project

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.importers.imported import ImportedEvidence
from fastci_ml.evidence.importers.testmon_blocks import file_hashes, read_testmon_blocks
from fastci_ml.evidence.importers.testmon_data import import_testmon
from fastci_ml.records.evidence import EvidenceRecord
from fastci_ml.records.evidence_kinds import Gap

process_code = pytest.importorskip("testmon.process_code")
PACKAGE = Path(__file__).parents[2] / "fastci_ml"


def run_testmon(root: Path, *arguments: str) -> Path:
    # testmon asks for an option of the cache provider, so that one stays.
    run_tests(root, "pytest", "-q", "-p", "pytest-testmon", "--testmon", *arguments)
    return root / ".testmondata"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("recorded")
    write_project(root)
    run_testmon(root)
    return root


@pytest.fixture
def copied(recorded, tmp_path) -> Path:
    write_project(tmp_path)
    # What testmon wrote last lies beside its file, and stays there: a copy has to take it along.
    source = sqlite3.connect(recorded / ".testmondata")
    target = sqlite3.connect(tmp_path / ".testmondata")
    source.backup(target)
    target.execute("PRAGMA journal_mode = DELETE")
    target.close()
    source.close()
    return tmp_path


def change(root: Path, *statements: str) -> None:
    connection = sqlite3.connect(root / ".testmondata")
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def read(root: Path, **options) -> ImportedEvidence:
    return import_testmon(root / ".testmondata", root=root, lane="l", **options)


def by_test(found: ImportedEvidence) -> dict[str, EvidenceRecord]:
    return {record.node_id: record for record in found.records}


def names(record: EvidenceRecord) -> set[str]:
    return {f"{unit.path}::{unit.name}" for unit in record.units}


def test_units_are_the_functions_that_each_test_ran(recorded):
    records = by_test(read(recorded))
    test = "tests/test_lib.py::"
    assert {node_id.removeprefix(test): names(record) for node_id, record in records.items()} == {
        "test_f": {f"{test}test_f", "pkg/lib.py::f"},
        "test_f_large": {f"{test}test_f_large", "pkg/lib.py::f"},
        "test_g": {f"{test}test_g", "pkg/lib.py::f", "pkg/lib.py::g"},
        "test_shared": {f"{test}test_shared", "tests/conftest.py::shared", "pkg/lib.py::f", "pkg/lib.py::g"},
        "test_shared_again": {f"{test}test_shared_again"},
        "test_step": {
            f"{test}test_step", "tests/conftest.py::step", "pkg/lib.py::Step.width", "pkg/lib.py::one",
        },
        "test_p[1]": {
            f"{test}test_p", "pkg/lib.py::f", "pkg/lib.py::pairs", "pkg/lib.py::outer",
            "pkg/lib.py::outer.<locals>.inner",
        },
        **{
            f"test_p[{n}]": {f"{test}test_p", "pkg/lib.py::f", "pkg/lib.py::pairs"}
            for n in ("2", "9", "a|b", "a::b")
        },
        "TestGroup::test_inside": {f"{test}TestGroup.test_inside", "pkg/lib.py::f"},
        "Case::test_case": {f"{test}Case.setUp", f"{test}Case.test_case", "pkg/lib.py::f", "pkg/lib.py::one"},
        "test_child": {f"{test}test_child"},
    }  # fmt: skip


def test_files_that_a_test_touched_are_roots_of_its_closure(recorded):
    assert by_test(read(recorded))["tests/test_lib.py::test_g"].roots == {
        "tests/test_lib.py", "tests/conftest.py", "pkg/lib.py",
    }  # fmt: skip


def test_no_record_is_complete_and_each_says_where_it_comes_from(recorded):
    for record in read(recorded).records:
        assert record.gaps[0] == (Gap.WEAK_SOURCE, ".testmondata of pytest-testmon, schema 14")
        assert (record.lane, record.scope, record.backend, record.commit) == ("l", "testmon", "testmon", "")
        assert record.facts.call_s is not None


def test_failing_test_has_its_outcome(tmp_path):
    write_project(tmp_path)
    (tmp_path / "tests" / "test_bad.py").write_text(
        "from pkg.lib import f\n\ndef test_bad():\n    assert f(1) == 3\n"
    )
    with pytest.raises(AssertionError, match="1 failed"):
        run_testmon(tmp_path)
    record = by_test(read(tmp_path))["tests/test_bad.py::test_bad"]
    assert record.facts.outcome == "failed"
    assert Gap.DID_NOT_PASS in {gap for gap, _ in record.gaps}
    assert "pkg/lib.py::f" in names(record)


def test_file_of_another_version_is_left_out_and_named(copied):
    lib = copied / "pkg" / "lib.py"
    lib.write_text(SOURCES["pkg/lib.py"].replace("return 1", "return 2"))
    found = read(copied)
    assert found.refused == ("pkg/lib.py: is another version than the one that was recorded",)
    record = by_test(found)["tests/test_lib.py::test_f"]
    assert (Gap.SOURCE_CHANGED, "pkg/lib.py") in record.gaps
    assert names(record) == {"tests/test_lib.py::test_f"}


def test_tests_of_two_ages_each_have_the_files_that_still_are_as_they_were(copied):
    lib = copied / "pkg" / "lib.py"
    lib.write_text(SOURCES["pkg/lib.py"].replace("return self.size", "return self.size + 0"))
    # Only what stands on the changed method is run again.
    run_testmon(copied)
    found = by_test(read(copied))
    assert "pkg/lib.py::Step.width" in names(found["tests/test_lib.py::test_step"])
    assert (Gap.SOURCE_CHANGED, "pkg/lib.py") in found["tests/test_lib.py::test_f"].gaps


def test_test_that_was_never_run_has_no_record(copied):
    never = zlib.crc32(b"0match").to_bytes(4, "little").hex()
    change(
        copied,
        "INSERT INTO file_fp (id, filename, method_checksums, fsha) "
        f"VALUES (999, 'tests/test_lib.py', x'{never}', NULL)",
        "INSERT INTO test_execution VALUES (999, 1, 'tests/test_lib.py::test_new', NULL, 0, 0)",
        "INSERT INTO test_execution_file_fp VALUES (999, 999)",
    )
    records = by_test(read(copied))
    assert "tests/test_lib.py::test_new" not in records
    assert "tests/test_lib.py::test_f" in records


@pytest.mark.parametrize("schema", [0, 12, 15, 999])
def test_other_schema_is_refused(copied, schema):
    change(copied, f"PRAGMA user_version = {schema}")
    with pytest.raises(EvidenceError, match=f"schema {schema}, expected 13 or 14"):
        read(copied)


def test_schema_of_the_release_before_is_read(copied):
    change(copied, "PRAGMA user_version = 13")
    assert read(copied).records


def test_data_of_another_release_of_python_is_refused(copied):
    change(copied, "UPDATE environment SET python_version = '3.10.4'")
    with pytest.raises(EvidenceError, match=r"recorded by Python 3\.10\.4"):
        read(copied)


def test_environment_of_another_release_is_left_out_and_named(copied):
    change(
        copied,
        "INSERT INTO environment VALUES (9, 'old', '', '3.10.4')",
        "INSERT INTO test_execution VALUES (999, 9, 'tests/test_lib.py::test_old', 1.0, 0, 0)",
        "INSERT INTO test_execution_file_fp VALUES (999, 1)",
    )
    found = read(copied)
    assert "tests/test_lib.py::test_old" not in by_test(found)
    assert found.refused[0].startswith("environment 'old': recorded by Python 3.10.4")


def test_later_environment_of_the_same_release_takes_the_place_of_the_earlier(copied):
    change(
        copied,
        "INSERT INTO environment SELECT 9, 'newer', '', python_version FROM environment WHERE id = 1",
        "INSERT INTO test_execution VALUES (999, 9, 'tests/test_lib.py::test_f', 9.0, 1, 0)",
        "INSERT INTO test_execution_file_fp SELECT 999, fingerprint_id FROM test_execution_file_fp f "
        "JOIN test_execution e ON e.id = f.test_execution_id WHERE test_name = 'tests/test_lib.py::test_g'",
    )
    found = read(copied)
    assert len([record for record in found.records if record.node_id == "tests/test_lib.py::test_f"]) == 1
    record = by_test(found)["tests/test_lib.py::test_f"]
    assert (record.facts.outcome, record.facts.call_s) == ("failed", 9.0)
    assert "pkg/lib.py::g" in names(record)


def test_checksum_that_no_block_has_leaves_the_file_out(copied):
    change(copied, "UPDATE file_fp SET method_checksums = zeroblob(4 * id) WHERE filename = 'pkg/lib.py'")
    assert read(copied).refused == ("pkg/lib.py: has blocks that this release of Python does not make of it",)


def test_node_ids_and_paths_start_at_the_top_of_the_repository(tmp_path):
    project = tmp_path / "services" / "a"
    write_project(project)
    data = run_testmon(project)
    found = import_testmon(data, root=tmp_path, lane="l", project="services/a")
    assert "services/a/pkg/lib.py::f" in names(by_test(found)["services/a/tests/test_lib.py::test_f"])


def test_path_that_leads_out_of_the_repository_is_refused_by_name(copied):
    change(copied, "UPDATE file_fp SET filename = '../../etc/passwd' WHERE filename = 'pkg/lib.py'")
    assert read(copied).refused == ("../../etc/passwd: lies outside of the repository",)


def test_what_a_killed_writer_left_is_seen(copied):
    data = copied / ".testmondata"
    connection = sqlite3.connect(data)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    with connection:
        connection.execute(
            "UPDATE test_execution SET failed = 1 WHERE test_name = 'tests/test_lib.py::test_f'"
        )
    # As it lies there while the writer lives, or after it was killed: not in the file itself yet.
    kept = {path: path.read_bytes() for path in copied.glob(".testmondata*")}
    connection.close()
    for path, content in kept.items():
        path.write_bytes(content)
    assert by_test(read(copied))["tests/test_lib.py::test_f"].facts.outcome == "failed"
    assert {path: path.read_bytes() for path in copied.glob(".testmondata*")} == kept


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = 1",
        "def f():\n    pass\n",
        "class A:\n    def f(self):\n        def g(): return 1\n        return g\n    async def h(s): ...\n",
        "@d\n@e(1)\ndef f(a=lambda: 1, *b, **c) -> 'x':\n    '''doc'''\n    yield 1\n",
        "def f():\n    s = '''a\n   \n  b'''\n    return s\n",
        "\f\ndef f():\r\n    return 'é'\r\n",
        "# -*- coding: latin-1 -*-\nx = 'é'\n",
        "if True:\n    def f():\n        return 1\nelse:\n    def f():\n        return 2\n",
    ],
)
def test_checksums_and_hashes_are_those_of_testmon(source):
    content = source.encode()
    text, own = process_code.bytes_to_string_and_fsha(content)
    assert own in file_hashes(content)
    for given in (text, None):
        module = process_code.Module(source_code=given, fs_fsha=own, filename="x.py", rootdir=".")
        if given is None:
            module._source_code = text  # as it reads a file that git has told the hash of
        expected = {checksum & 0xFFFFFFFF for checksum in module.checksums}
        assert expected <= {block.checksum for block in read_testmon_blocks(content)}


def test_checksums_are_those_of_testmon_on_our_own_sources():
    paths = sorted(PACKAGE.rglob("*.py"))
    for path in random.Random(7).sample(paths, 40):
        content = path.read_bytes()
        text, own = process_code.bytes_to_string_and_fsha(content)
        module = process_code.Module(source_code=text, fs_fsha=own, filename=path.name, rootdir=".")
        found = read_testmon_blocks(content)
        assert {block.checksum for block in found} >= {value & 0xFFFFFFFF for value in module.checksums}, path
        named = {block.name.rpartition(".")[2] for block in found} - {""}
        assert {block.name for block in module.blocks} - {"<module>", "unknown"} <= named, path

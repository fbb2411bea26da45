"""Evidence from data files of coverage.py: what coverage itself wrote is read, what is wrong is refused."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import pytest
from measured_project import PYTEST_COV, SOURCES, age, load, measure, run_tests, write_project

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.importers.coverage_data import import_coverage
from fastci_ml.evidence.importers.imported import ImportedEvidence
from fastci_ml.evidence.store.batch import MergeBatch
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import EvidenceRecord
from fastci_ml.records.evidence_kinds import Gap
from fastci_ml.sources.blocks.reader import read_blocks

pytest.importorskip("coverage")
pytest.importorskip("pytest_cov")

RECORDINGS = Path(__file__).parent / "recordings"
# Before 3.12 there is no sysmon core, and what is asked for is overruled with a warning on stderr.
CORE = "ctrace"


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """The project, with its data in `.coverage`."""
    root = tmp_path_factory.mktemp("measured")
    write_project(root)
    measure(root, COVERAGE_CORE=CORE)
    return root


@pytest.fixture
def copied(measured, tmp_path) -> Path:
    """The same, for a test that spoils it."""
    write_project(tmp_path)
    content = (measured / ".coverage").read_bytes()
    (tmp_path / ".coverage").write_bytes(content)
    with sqlite3.connect(tmp_path / ".coverage") as connection:
        connection.execute("UPDATE file SET path = replace(path, ?, ?)", (str(measured), str(tmp_path)))
    connection.close()
    return tmp_path


def change(data: Path, *statements: str) -> None:
    connection = sqlite3.connect(data)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def read(root: Path, **options) -> ImportedEvidence:
    return import_coverage(root / ".coverage", root=root, lane="l", **options)


def by_test(found: ImportedEvidence) -> dict[str, EvidenceRecord]:
    return {record.node_id: record for record in found.records}


def names(record: EvidenceRecord) -> set[str]:
    return {f"{unit.path}::{unit.name}" for unit in record.units}


OUTSIDE = {"pkg/registry.py::register", "pkg/registry.py::register.<locals>.keep"}


def test_units_are_the_functions_that_each_test_ran(measured):
    records = by_test(read(measured))
    test = "tests/test_lib.py::"
    assert {
        node_id.removeprefix(test): names(record) - OUTSIDE for node_id, record in records.items()
    } == {
        "test_f": {f"{test}test_f", "pkg/lib.py::f"},
        "test_f_large": {f"{test}test_f_large", "pkg/lib.py::f"},
        "test_g": {f"{test}test_g", "pkg/lib.py::f", "pkg/lib.py::g"},
        "test_shared": {f"{test}test_shared", "tests/conftest.py::shared", "pkg/lib.py::f", "pkg/lib.py::g"},
        # A shared fixture is set up in the first test, and coverage knows no other.
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


def test_fingerprints_are_those_of_the_working_tree(measured):
    found = read(measured)
    for (path, _), blocks in found.file_versions.items():
        assert blocks == read_blocks((measured / path).read_bytes()).blocks
    blocks = read_blocks(SOURCES["pkg/lib.py"].encode()).by_name
    (unit,) = (
        unit for unit in by_test(found)["tests/test_lib.py::test_f"].units if unit.path == "pkg/lib.py"
    )
    assert (unit.name, unit.fingerprint) == ("f", blocks["f"].fingerprint)


def test_no_record_is_complete_and_each_says_where_it_comes_from(measured):
    for record in read(measured).records:
        assert not record.is_complete
        assert record.gaps[0][0] is Gap.WEAK_SOURCE
        assert record.gaps[0][1].startswith(".coverage of coverage.py ")
        assert (record.lane, record.scope, record.backend, record.commit) == ("l", "coverage", "coverage", "")
        assert record.facts.outcome == ""
        assert record.recorded_us == (measured / ".coverage").stat().st_mtime_ns // 1000


def test_roots_are_the_module_of_the_test_and_its_conftests(measured):
    for record in read(measured).records:
        assert record.roots == {"tests/test_lib.py", "tests/conftest.py"}


def test_what_ran_outside_of_tests_counts_for_all_of_them_and_is_named(measured):
    for record in read(measured).records:
        assert names(record) >= OUTSIDE
        assert any("2 functions ran outside of any test" in detail for _, detail in record.gaps)


def test_what_a_child_ran_without_a_context_counts_for_all_tests(tmp_path):
    write_project(tmp_path)
    measure(tmp_path, settings="patch = subprocess\n", COVERAGE_CORE=CORE)
    records = by_test(read(tmp_path))
    assert all("pkg/lib.py::only_child" in names(record) for record in records.values())
    assert not any("pkg/lib.py::unused" in names(record) for record in records.values())


def test_branches_say_the_same_as_lines(measured, tmp_path):
    write_project(tmp_path)
    measure(tmp_path, settings="branch = true\n", COVERAGE_CORE=CORE)
    assert {r.node_id: names(r) for r in read(tmp_path).records} == {
        r.node_id: names(r) for r in read(measured).records
    }


def test_xdist_says_the_same_as_one_process(measured, tmp_path):
    pytest.importorskip("xdist")
    write_project(tmp_path)
    measure(tmp_path, "-p", "xdist", "-n2", "--dist=loadfile", COVERAGE_CORE=CORE)
    assert {r.node_id: names(r) for r in read(tmp_path).records} == {
        r.node_id: names(r) for r in read(measured).records
    }


def test_relative_paths_start_at_the_folder_of_the_project(tmp_path):
    project = tmp_path / "services" / "a"
    write_project(project)
    data = measure(project, settings="relative_files = true\n", COVERAGE_CORE=CORE)
    found = import_coverage(data, root=tmp_path, lane="l", project="services/a")
    record = by_test(found)["services/a/tests/test_lib.py::test_f"]
    assert "services/a/pkg/lib.py::f" in names(record)
    assert "services/a/tests/conftest.py" in record.roots


def test_static_contexts_stand_aside(tmp_path):
    write_project(tmp_path)
    measure(tmp_path, settings="context = py3|cpu\n", COVERAGE_CORE=CORE)
    assert "tests/test_lib.py::test_p[a|b]" in by_test(read(tmp_path))
    assert all(record.node_id.startswith("tests/test_lib.py::") for record in read(tmp_path).records)


def test_dynamic_context_of_functions_is_mapped_without_parameters(tmp_path):
    write_project(tmp_path)
    settings = "dynamic_context = test_function\nsource = .\n"
    run_tests(
        tmp_path, "coverage", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider", settings=settings,
        COVERAGE_CORE=CORE,
    )  # fmt: skip
    records = by_test(read(tmp_path))
    assert "tests/test_lib.py::TestGroup::test_inside" in records
    merged = records["tests/test_lib.py::test_p"]
    assert names(merged) >= {"pkg/lib.py::outer", "pkg/lib.py::pairs"}
    assert (Gap.WEAK_SOURCE, "its parameters were not told apart") in merged.gaps


def test_dotted_name_of_two_files_is_refused_by_name(tmp_path):
    write_project(tmp_path)
    settings = "dynamic_context = test_function\nsource = .\n"
    run_tests(
        tmp_path, "coverage", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider", settings=settings,
        COVERAGE_CORE=CORE,
    )  # fmt: skip
    other = tmp_path / "more" / "test_lib.py"
    other.parent.mkdir()
    other.write_text("def test_f():\n    pass\n")
    found = read(tmp_path)
    assert "tests/test_lib.py::test_f" not in by_test(found)
    assert "tests/test_lib.py::test_g" in by_test(found)
    assert [line for line in found.refused if "may stand in" in line] == [
        "test_lib.test_f: may stand in more/test_lib.py, tests/test_lib.py"
    ]


@pytest.mark.parametrize("name", ["sysmon", "sysmon-two-workers"])
def test_recorded_data_of_the_sysmon_core_is_refused(tmp_path, name):
    write_project(tmp_path)
    load(RECORDINGS / f"{name}.sql", tmp_path / ".coverage")
    with pytest.raises(EvidenceError, match="sysmon") as caught:
        read(tmp_path)
    assert "COVERAGE_CORE=ctrace" in str(caught.value.hint)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the core needs sys.monitoring")
@pytest.mark.parametrize("arguments", [(), ("-p", "xdist", "-n2")])
def test_data_of_the_sysmon_core_is_refused(tmp_path, arguments):
    write_project(tmp_path)
    measure(tmp_path, *arguments, COVERAGE_CORE="sysmon")
    with pytest.raises(EvidenceError, match="sysmon"):
        read(tmp_path)


def test_data_in_which_each_line_is_booked_once_is_refused(copied):
    # What the sysmon core does, done to data of another: whoever comes later goes without.
    connection = sqlite3.connect(copied / ".coverage")
    seen: dict[int, int] = {}
    with connection:
        for rowid, file, bits in connection.execute(
            "SELECT rowid, file_id, numbits FROM line_bits ORDER BY context_id"
        ).fetchall():
            lines = int.from_bytes(bits, "little") & ~seen.get(file, 0)
            seen[file] = seen.get(file, 0) | lines
            blob = lines.to_bytes((lines.bit_length() + 7) // 8, "little")
            connection.execute("UPDATE line_bits SET numbits = ? WHERE rowid = ?", (blob, rowid))
    connection.close()
    with pytest.raises(EvidenceError, match=r"sysmon"):
        read(copied)


def test_code_that_goes_on_in_a_later_test_is_no_sign_of_the_sysmon_core(tmp_path):
    # A generator, a function made in one test and called in the next, a thread: each is entered once.
    (tmp_path / "lib.py").write_text(
        "import threading\n\ndone = threading.Event()\n\n\n"
        "def numbers():\n    start = 1\n    yield start\n    yield start + 1\n    yield start + 2\n\n\n"
        "def make():\n    step = 2\n    return lambda: (\n        step\n    )\n\n\n"
        "def serve():\n    n = 0\n    while not done.wait(0.001):\n        n += 1\n    return n\n"
    )
    (tmp_path / "test_later.py").write_text(
        "import threading\nimport time\n\nimport lib\n\n"
        "GOING = {}\n\n\n"
        "def test_1():\n    GOING['numbers'] = lib.numbers()\n    GOING['made'] = lib.make()\n"
        "    GOING['thread'] = threading.Thread(target=lib.serve)\n    GOING['thread'].start()\n"
        "    assert next(GOING['numbers']) == 1\n    time.sleep(0.05)\n\n\n"
        "def test_2():\n    assert next(GOING['numbers']) == 2\n    assert GOING['made']() == 2\n"
        "    time.sleep(0.05)\n\n\n"
        "def test_3():\n    assert next(GOING['numbers']) == 3\n    assert GOING['made']() == 2\n"
        "    time.sleep(0.05)\n    lib.done.set()\n    GOING['thread'].join()\n"
    )
    age(tmp_path)
    measure(tmp_path, COVERAGE_CORE=CORE)
    assert len(read(tmp_path).records) == 3


def test_two_tests_that_share_no_line_at_all_are_refused(copied):
    change(
        copied / ".coverage",
        "DELETE FROM line_bits WHERE context_id NOT IN "
        "(SELECT id FROM context WHERE context LIKE '%test_f|run' OR context LIKE '%test_step|run')",
    )
    with pytest.raises(EvidenceError, match="no line is held by two contexts, of 2 tests"):
        read(copied)


def test_one_test_alone_can_have_lost_nothing(copied):
    change(
        copied / ".coverage",
        "DELETE FROM line_bits WHERE context_id NOT IN "
        "(SELECT id FROM context WHERE context LIKE '%test_f|run')",
    )
    assert list(by_test(read(copied))) == ["tests/test_lib.py::test_f"]


def test_data_without_contexts_is_refused(tmp_path):
    write_project(tmp_path)
    run_tests(tmp_path, *PYTEST_COV, COVERAGE_CORE=CORE)
    with pytest.raises(EvidenceError, match="only the empty context") as caught:
        read(tmp_path)
    assert "--cov-context=test" in str(caught.value.hint)


def test_data_with_static_contexts_alone_is_refused(tmp_path):
    write_project(tmp_path)
    run_tests(tmp_path, *PYTEST_COV, settings="context = nightly\n", COVERAGE_CORE=CORE)
    with pytest.raises(EvidenceError, match="contexts nightly, expected one for each test"):
        read(tmp_path)


def test_data_combined_of_runs_with_and_without_contexts_is_refused(tmp_path):
    write_project(tmp_path)
    measure(tmp_path, "-k", "test_f", COVERAGE_CORE=CORE)
    run_tests(tmp_path, *PYTEST_COV, "--cov-append", "-k", "test_g", COVERAGE_CORE=CORE)
    with pytest.raises(EvidenceError, match=r"1 tests ran without a context: tests/test_lib\.py::test_g"):
        read(tmp_path)


def test_data_that_is_not_combined_yet_is_refused(copied):
    (copied / ".coverage.host.4711.XabcdefX").write_bytes(b"")
    with pytest.raises(EvidenceError, match=r"not combined: \.coverage\.host\.4711") as caught:
        read(copied)
    assert caught.value.hint == "coverage combine --append"


def test_settings_beside_the_data_are_no_data(measured):
    assert (measured / ".coveragerc").exists()
    assert read(measured).records


def test_file_changed_after_the_data_is_left_out_and_named(copied):
    lib = copied / "pkg" / "lib.py"
    later = (copied / ".coverage").stat().st_mtime + 10
    os.utime(lib, (later, later))
    found = read(copied)
    assert found.refused == ("pkg/lib.py: changed after it was measured",)
    record = by_test(found)["tests/test_lib.py::test_f"]
    assert (Gap.SOURCE_CHANGED, "pkg/lib.py") in record.gaps
    assert not any(unit.path == "pkg/lib.py" for unit in record.units)
    child = by_test(found)["tests/test_lib.py::test_child"]
    assert Gap.SOURCE_CHANGED not in {gap for gap, _ in child.gaps}


def test_file_that_the_lines_do_not_fit_is_left_out_whatever_its_time(copied):
    lib = copied / "pkg" / "lib.py"
    lib.write_text("# a new line\n\n\n" + SOURCES["pkg/lib.py"])
    os.utime(lib, (1, 1))
    (line,) = read(copied).refused
    assert line.startswith("pkg/lib.py: lines were measured that hold no code")


def test_file_that_is_gone_is_left_out_and_named(copied):
    (copied / "pkg" / "registry.py").unlink()
    assert read(copied).refused == ("pkg/registry.py: is not there",)


def test_nothing_usable_is_an_error(copied):
    for path in copied.rglob("*.py"):
        path.unlink()
    with pytest.raises(EvidenceError, match="no file that it speaks of can be used"):
        read(copied)


def test_data_of_another_checkout_is_refused_with_the_way_out(measured, tmp_path):
    with pytest.raises(EvidenceError, match="none of its 5 files lies in") as caught:
        import_coverage(measured / ".coverage", root=tmp_path, lane="l")
    assert "relative_files" in str(caught.value.hint)


def test_reading_leaves_the_folder_as_it_was(measured):
    before = {path: path.read_bytes() for path in measured.iterdir() if path.is_file()}
    read(measured)
    assert {path: path.read_bytes() for path in measured.iterdir() if path.is_file()} == before


def test_progress_is_told(measured):
    told = []
    read(measured, progress=lambda *words: told.append(words))
    assert told[0][0] == "reading .coverage"


def test_store_keeps_imported_records_beside_recorded_ones(measured, tmp_path):
    found = read(measured)
    with EvidenceStore.open(tmp_path / "evidence.sqlite", create=True) as store:
        store.write(
            MergeBatch(bundles=(), records=found.records, merged_us=1, file_versions=found.file_versions)
        )
        record = store.record("tests/test_lib.py::test_f", lane="l", scope="coverage")
        assert record == by_test(found)["tests/test_lib.py::test_f"]
        assert store.record("tests/test_lib.py::test_f", lane="l", scope="trunk") is None
        assert store.check() == []

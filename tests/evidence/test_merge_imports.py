"""What a bundle says of imports: units run meanwhile, who imports whom, and who stands on what was read."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundle_makers import Recording, gap_kinds, records_of

from fastci_ml.evidence.bundle.reader import Bundle
from fastci_ml.evidence.merge import import_reach
from fastci_ml.evidence.merge.bundle_evidence import BundleEvidence, build_records
from fastci_ml.evidence.merge.import_reach import ImportReach
from fastci_ml.evidence.merge.sources_at_hand import SourcesAtHand
from fastci_ml.records.evidence import FileSeen
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

REGISTRY = """\
TABLE = {}


def register(name):
    def keep(function):
        TABLE[name] = function
        return function

    return keep
"""
OPTIMIZERS = """\
from pkg.registry import register


@register("adam")
def adam():
    return 1


NAMES = [name for name in "ab"]
"""
TESTS = """\
import pkg.optimizers


def test_adam():
    assert pkg.optimizers.adam() == 1


def test_nothing():
    assert True
"""
TEST = "tests/test_optim.py"


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    recording = Recording(tmp_path / "bundles")
    recording.source("pkg/__init__.py", "")
    recording.source("pkg/registry.py", REGISTRY)
    recording.source("pkg/optimizers.py", OPTIMIZERS)
    recording.source(TEST, TESTS)
    return recording


def _evidence(bundle: Bundle) -> BundleEvidence:
    return build_records(bundle, SourcesAtHand(bundle.path, bundle.path.parent / "none"))


def _add_imports(recording: Recording, *paths: str) -> None:
    for path in paths:
        recording.capture(CaptureKind.IMPORT, path, recording.code(path, "<module>"))


def _add_tests(recording: Recording) -> None:
    for name in ("test_adam", "test_nothing"):
        recording.test(f"{TEST}::{name}", recording.code(TEST, name))


def test_functions_run_by_an_import_are_units_of_that_module(recording: Recording) -> None:
    recording.capture(
        CaptureKind.IMPORT,
        "pkg/optimizers.py",
        recording.code("pkg/optimizers.py", "<module>"),
        recording.code("pkg/registry.py", "register"),
        recording.code("pkg/registry.py", "register.<locals>.keep"),
    )
    _add_tests(recording)
    evidence = _evidence(recording.close())
    assert {(lane, path, f"{unit.path}::{unit.name}") for lane, path, unit in evidence.import_units} == {
        ("py3.11-cpu", "pkg/optimizers.py", "pkg/registry.py::register"),
        ("py3.11-cpu", "pkg/optimizers.py", "pkg/registry.py::register.<locals>.keep"),
    }
    # They are no units of whoever happened to come first.
    for record in evidence.records():
        assert {unit.path for unit in record.units} == {TEST}


def test_statements_of_the_imported_module_itself_are_no_import_units(recording: Recording) -> None:
    text = "f = lambda: 3\nX = f()\n"
    recording.source("pkg/lambdas.py", text)
    code = recording.code("pkg/lambdas.py", "<lambda>")
    for path in ("pkg/lambdas.py", "pkg/optimizers.py"):
        recording.capture(CaptureKind.IMPORT, path, code)
    evidence = _evidence(recording.close())
    assert [(path, unit.name) for _, path, unit in evidence.import_units] == [("pkg/optimizers.py", "f")]


def test_edges_come_from_what_was_seen_and_from_the_text(recording: Recording) -> None:
    computed = recording.source("pkg/computed.py", "X = 1\n")
    recording.writer.add_edge(recording.source("pkg/optimizers.py", OPTIMIZERS), computed)
    recording.writer.add_edge(computed, computed)
    late = recording.source("pkg/late.py", "X = 2\n")
    recording.capture(CaptureKind.IMPORT, "pkg/computed.py", imports=[late, computed])
    _add_tests(recording)
    edges = {(importer, imported) for _, importer, imported in _evidence(recording.close()).edges}
    assert edges == {
        (TEST, "pkg/__init__.py"),
        (TEST, "pkg/optimizers.py"),
        ("pkg/optimizers.py", "pkg/__init__.py"),
        ("pkg/optimizers.py", "pkg/registry.py"),
        ("pkg/optimizers.py", "pkg/computed.py"),
        ("pkg/computed.py", "pkg/late.py"),
    }


def test_import_statements_may_name_files_that_only_the_repository_has(recording: Recording) -> None:
    recording.source("pkg/lazy.py", "def f():\n    from pkg import never\n")
    recording.test(
        f"{TEST}::test_adam", recording.code(TEST, "test_adam"), recording.code("pkg/lazy.py", "f")
    )
    bundle = recording.close()
    at_hand = SourcesAtHand(bundle.path, bundle.path.parent)
    for exists in (False, True):
        evidence = build_records(
            bundle, at_hand, exists=lambda path, known=exists: known and "never.py" in path
        )
        assert (("py3.11-cpu", "pkg/lazy.py", "pkg/never.py") in evidence.edges) is exists


def test_a_file_read_by_an_import_is_read_by_all_who_stand_on_the_module(recording: Recording) -> None:
    recording.source("other/test_other.py", "def test_it():\n    assert True\n")
    config = recording.file("pkg/defaults.json", "a" * 40)
    folder = recording.file("pkg/plugins", "b" * 40)
    recording.capture(
        CaptureKind.IMPORT,
        "pkg/registry.py",
        recording.code("pkg/registry.py", "<module>"),
        reads=[config],
        listings=[folder],
        environ=["PKG_DEFAULTS"],
        gaps=[(Gap.CHILD_WITHOUT_RECORD, "git")],
    )
    _add_imports(recording, "pkg/optimizers.py", TEST, "other/test_other.py")
    _add_tests(recording)
    recording.test("other/test_other.py::test_it", recording.code("other/test_other.py", "test_it"))
    records = records_of(recording.close())
    for name in ("test_adam", "test_nothing"):
        record = records[f"{TEST}::{name}"]
        assert record.reads == {FileSeen(path="pkg/defaults.json", blob="a" * 40)}
        assert record.listings == {FileSeen(path="pkg/plugins", blob="b" * 40)}
        assert record.environ == {"PKG_DEFAULTS"}
        assert record.gaps == ((Gap.CHILD_WITHOUT_RECORD, "git"),)
    other = records["other/test_other.py::test_it"]
    assert (other.reads, other.environ, other.gaps) == (set(), set(), ())


def test_a_module_whose_source_is_lost_is_a_gap_for_all_who_stand_on_it(recording: Recording) -> None:
    recording.source("other/test_other.py", "def test_it():\n    assert True\n")
    lost = recording.source("pkg/registry_data.py", "X = 1\n", is_kept=False)
    recording.writer.add_edge(recording.source("pkg/registry.py", REGISTRY), lost)
    _add_imports(recording, "pkg/optimizers.py")
    _add_tests(recording)
    recording.test("other/test_other.py::test_it", recording.code("other/test_other.py", "test_it"))
    records = records_of(recording.close())
    assert gap_kinds(records[f"{TEST}::test_adam"]) == ["source_missing"]
    assert gap_kinds(records["other/test_other.py::test_it"]) == []


def test_a_module_that_a_setting_names_is_a_root_of_every_test(recording: Recording) -> None:
    recording.source("tests/plugin.py", "import pkg.registry\n")
    recording.source("tests/conftest.py", "")
    recording.source("tests/test_deselected.py", "")
    _add_imports(recording, "tests/plugin.py", "tests/conftest.py", "tests/test_deselected.py", TEST)
    recording.capture(
        CaptureKind.COLLECTOR,
        "tests",
        imports=[recording.source("tests/test_deselected.py", ""), recording.source(TEST, TESTS)],
    )
    _add_tests(recording)
    record = records_of(recording.close())[f"{TEST}::test_nothing"]
    assert record.roots == {TEST, "tests/plugin.py", "tests/conftest.py"}


def test_reach_goes_through_circles_and_ends_at_what_is_marked() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "d"), ("f", "e")]
    reach = ImportReach(edges, ["d", "b"])
    found = {
        path: {reach.marked_paths(bit)[0] for bit in range(2) if reach.from_path(path) >> bit & 1}
        for path in "abcdefg"
    }
    assert found == {
        "a": {"b", "d"},
        "b": {"b", "d"},
        "c": {"b", "d"},
        "d": {"d"},
        "e": {"d"},
        "f": {"d"},
        "g": set(),
    }


def test_too_many_marks_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_reach, "_MAX_MARKS", 2)
    reach = ImportReach([("a", "x"), ("b", "y")], ["x", "y", "z"])
    assert reach.from_path("a") == reach.from_path("b") == 1
    assert reach.marked_paths(0) == ["x", "y", "z"]
    assert reach.from_path("c") == 0

"""The holes through which runtime evidence is known to leak, each walked into by a real recorded test.

The subject lies beside this file. It is recorded by this interpreter and by others where they are present;
what is stated here holds for each of them.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interpreters import VERSIONS, python_or_skip
from recorded_runs import RecordedRun, make_subject, pure_packages, record

from fastci_ml.evidence.merge.merge import merge_bundles
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence_kinds import BlockKind, CaptureKind, Gap

CORE = "lib/core.py::"
PARTS = "lib/fixtures.py::"
QUIET = (
    "checks_functions.py",
    "checks_resumed.py",
    "checks_imports.py",
    "checks_fixtures.py",
    "checks_caches.py",
    "checks_files.py",
    "checks_profilers.py",
    "checks_exit.py",
)


@pytest.fixture(scope="module", params=VERSIONS)
def recorder(request, tmp_path_factory):
    """Records a fresh copy of the subject with one interpreter: a function of pytest's arguments."""
    version = request.param
    python = python_or_skip(version)
    path = pure_packages(tmp_path_factory.mktemp("pure") / "packages") if python else None

    def run(*arguments: str, prepare: Callable[[Path], Path] | None = None, **options: Any) -> RecordedRun:
        root = options.pop("root", None) or make_subject(tmp_path_factory.mktemp("subject") / "repo")
        places = [path] if path else []
        if prepare is not None:
            places.insert(0, prepare(root))
        return record(root, *arguments, python=python, path=places, **options)

    run.backend = "profile" if version == "3.11" else "monitoring"
    return run


@pytest.fixture(scope="module")
def run(recorder) -> Iterator[RecordedRun]:
    """All that can be recorded in one session."""
    done = recorder("-q", *QUIET)
    assert done.status == 0, done.output
    return done


# Test -> units that it must have, units that it must not have.
UNITS = {
    "checks_functions.py::check_call": ({CORE + "twice", CORE + "scale"}, {CORE + "add"}),
    "checks_functions.py::check_same_call_again": ({CORE + "twice", CORE + "scale"}, {CORE + "add"}),
    "checks_functions.py::check_docstring_only": ({CORE + "only_doc"}, {CORE + "twice"}),
    "checks_functions.py::check_nested": ({CORE + "outer", CORE + "outer.<locals>.inner"}, {CORE + "scale"}),
    "checks_functions.py::check_closure_made_at_import": (
        {CORE + "outer", CORE + "outer.<locals>.inner"},
        {CORE + "scale"},
    ),
    "checks_functions.py::check_lambda_of_module": ({CORE + "SQUARE"}, {CORE + "scale"}),
    "checks_functions.py::check_comprehension": ({CORE + "comprehends", CORE + "add"}, {CORE + "scale"}),
    "checks_functions.py::check_decorated": (
        {CORE + "decorated", CORE + "scale", CORE + "logged.<locals>.wrapper", CORE + "logged"},
        {CORE + "twice"},
    ),
    "checks_functions.py::check_methods": (
        {CORE + "Base.method", CORE + "Base.third", CORE + "Base.fixed", CORE + "Derived.__init__"},
        {CORE + "scale"},
    ),
    "checks_functions.py::check_nothing_of_the_library": (
        {"checks_functions.py::check_nothing_of_the_library"},
        {CORE + "twice", CORE + "scale", CORE + "add", "checks_functions.py::check_call"},
    ),
    "checks_functions.py::check_parameters[1]": ({CORE + "scale"}, {CORE + "twice"}),
    "checks_functions.py::check_parameters[2]": ({CORE + "scale"}, {CORE + "twice"}),
    "checks_functions.py::check_generated_code": ({CORE + "scale"}, {CORE + "twice"}),
    "checks_functions.py::CheckUnit::test_first": ({CORE + "scale"}, {CORE + "twice"}),
    "checks_functions.py::CheckUnit::test_second": (
        {CORE + "scale", "checks_functions.py::CheckUnit.setUpClass"},
        {CORE + "twice"},
    ),
    "checks_resumed.py::check_generator_goes_on": ({CORE + "numbers", CORE + "scale"}, {CORE + "twice"}),
    "checks_resumed.py::check_generator_is_thrown_into": ({CORE + "add"}, {CORE + "twice"}),
    "checks_resumed.py::check_coroutine_of_another_test": ({CORE + "waits", CORE + "add"}, {CORE + "twice"}),
    "checks_imports.py::check_constant": ({"checks_imports.py::check_constant"}, {CORE + "scale"}),
    "checks_imports.py::check_registered": ({"lib/registry.py::one"}, {CORE + "scale"}),
    "checks_imports.py::check_imports_late": ({"lib/late.py::value"}, set()),
    "checks_imports.py::check_imports_again": ({"lib/late.py::value"}, {CORE + "scale"}),
    "checks_fixtures.py::check_first_user": (
        {PARTS + "module_part", PARTS + "session_part"},
        {PARTS + "class_part", PARTS + "asked_for"},
    ),
    "checks_fixtures.py::check_second_user": (
        {PARTS + "module_part", PARTS + "session_part", "checks_fixtures.py::of_module"},
        {PARTS + "class_part", PARTS + "asked_for"},
    ),
    "checks_fixtures.py::check_no_user": (
        {"checks_fixtures.py::check_no_user"},
        {PARTS + "module_part", PARTS + "session_part", PARTS + "class_part"},
    ),
    "checks_fixtures.py::check_asks_while_running": ({PARTS + "asked_for"}, {PARTS + "class_part"}),
    "checks_fixtures.py::check_asks_again": (
        {PARTS + "asked_for", "conftest.py::asked"},
        {PARTS + "class_part", PARTS + "module_part"},
    ),
    "checks_fixtures.py::check_own_fixture": (
        {PARTS + "asked_for", "conftest.py::plain"},
        {"conftest.py::asked"},
    ),
    "checks_fixtures.py::CheckClass::check_one": ({PARTS + "class_part"}, {PARTS + "module_part"}),
    "checks_fixtures.py::CheckClass::check_three": (
        {"checks_fixtures.py::of_class", "checks_fixtures.py::CheckClass.setup_class"},
        {PARTS + "module_part"},
    ),
    "checks_fixtures.py::check_params[1]": ({"checks_fixtures.py::with_params"}, {PARTS + "asked_for"}),
    "checks_fixtures.py::check_params[2]": ({PARTS + "asked_for"}, {PARTS + "class_part"}),
    "checks_fixtures.py::check_last_of_module": (
        {PARTS + "module_part", PARTS + "torn_down"},
        {PARTS + "class_part"},
    ),
    "checks_caches.py::check_cache_serves": (
        {"lib/caches.py::cached", CORE + "twice", CORE + "scale"},
        {CORE + "SQUARE", CORE + "add"},
    ),
    "checks_caches.py::check_recursive_cache_serves": (
        {"lib/caches.py::fibonacci", CORE + "add"},
        {CORE + "SQUARE", CORE + "twice"},
    ),
    "checks_caches.py::check_memo_serves": (
        {"lib/caches.py::remembered", CORE + "decorated", CORE + "scale"},
        {CORE + "SQUARE"},
    ),
    "checks_caches.py::check_cache_of_method_serves": (
        {"lib/caches.py::Holder.square", CORE + "SQUARE"},
        {CORE + "twice", CORE + "add"},
    ),
    "checks_caches.py::check_no_cache": (
        {"checks_caches.py::check_no_cache"},
        {"lib/caches.py::cached", CORE + "twice", CORE + "SQUARE", "lib/caches.py::remembered"},
    ),
    "checks_files.py::check_after_the_fork": ({CORE + "add"}, {CORE + "never", CORE + "scale"}),
    "checks_files.py::check_forks": ({"checks_files.py::check_forks", CORE + "never"}, set()),
    "checks_profilers.py::check_afterwards": ({CORE + "scale"}, {CORE + "add"}),
}


@pytest.mark.parametrize("node_id", UNITS)
def test_units_of_a_test_are_those_that_it_ran(run, node_id):
    has, lacks = UNITS[node_id]
    units = run.units(node_id)
    assert has <= units, sorted(has - units)
    assert not lacks & units


GAPS = {
    "checks_functions.py::check_skipped": {Gap.DID_NOT_PASS},
    "checks_functions.py::check_skipped_late": {Gap.DID_NOT_PASS},
    "checks_functions.py::check_expected_to_fail": {Gap.DID_NOT_PASS},
}


def test_every_test_is_complete_or_says_why_not(run, recorder):
    expected = dict(GAPS)
    found = {node_id: run.gaps(node_id) for node_id in run.records}
    if recorder.backend == "profile":
        # The one hook there is went to the test's own profiler, and with it what ran at that time.
        assert Gap.SLOT_LOST in found.pop("checks_profilers.py::check_profiles")
    assert {node_id: gaps for node_id, gaps in found.items() if gaps} == expected


def test_every_test_that_ran_has_a_record(run):
    assert len(run.records) == sum(len(bundle.runs) for bundle in run.bundles)
    assert {node_id.partition("::")[0] for node_id in run.records} == set(QUIET)


def test_back_end_is_the_best_of_the_interpreter(run, recorder):
    assert {bundle.provenance.backend for bundle in run.bundles} == {recorder.backend}


def test_files_that_were_read_are_dependencies_with_their_content(run):
    def reads(name):
        return {seen.path for seen in run.records[f"checks_files.py::{name}"].reads}

    numbers = "data/numbers.json"
    for name in ("check_reads", "check_reads_by_fixture", "check_read_by_fixture_before"):
        assert reads(name) == {numbers}, name
    assert reads("check_reads_from_another_folder") == {numbers}
    assert reads("check_reads_nothing") == set()
    blobs = {seen.blob for seen in run.records["checks_files.py::check_reads"].reads}
    assert None not in blobs


def test_folders_that_were_listed_are_dependencies_with_their_names(run):
    listings = run.records["checks_files.py::check_lists"].listings
    assert {seen.path for seen in listings} >= {"data/configs"}
    assert all(seen.blob for seen in listings)
    # Neither imports nor pytest's search for tests are the tests' doing.
    assert all(not seen.listings for seen in run.records.values() if "check_lists" not in seen.node_id)


def test_modules_that_a_test_imported_are_roots_of_it_also_when_loaded_before(run):
    for name in ("check_imports_late", "check_imports_by_computed_name"):
        assert "lib/late.py" in run.records[f"checks_imports.py::{name}"].roots, name
    assert "lib/late.py" not in run.records["checks_imports.py::check_constant"].roots
    assert {"checks_imports.py", "conftest.py"} <= run.records["checks_imports.py::check_constant"].roots


def test_what_runs_while_a_module_is_imported_belongs_to_the_module(run):
    (bundle,) = run.bundles
    imports = {
        capture.label: {bundle.codes[code].name for code in capture.codes}
        for capture in bundle.captures.values()
        if capture.kind is CaptureKind.IMPORT
    }
    assert {"build", "register", "register.<locals>.keep"} <= imports["lib/registry.py"]
    assert "outer" in imports["lib/core.py"]
    assert "scale" in imports["lib/late.py"]
    assert "build" not in imports["lib/__init__.py"]


def test_it_is_known_who_imported_whom(run):
    (bundle,) = run.bundles
    edges = {(bundle.files[one].path, bundle.files[other].path) for one, other in bundle.edges}
    assert {("conftest.py", "lib/__init__.py"), ("lib/__init__.py", "lib/core.py")} <= edges
    assert ("checks_imports.py", "lib/late.py") in edges


def test_fingerprints_are_those_of_the_blocks_that_ran(run):
    for seen in run.records.values():
        assert all(unit.fingerprint for unit in seen.units)
        assert all(unit.kind is not BlockKind.FILE for unit in seen.units)


def test_nothing_of_ours_shows_when_the_interpreter_ends(run):
    assert "Traceback" not in run.output
    assert "Exception ignored" not in run.output


@pytest.fixture(scope="module")
def threads(recorder) -> RecordedRun:
    done = recorder("-q", "checks_threads.py")
    assert done.status == 0, done.output
    return done


def test_thread_that_ends_in_its_test_is_in_that_test_only(threads):
    assert CORE + "in_thread" in threads.units("checks_threads.py::check_joined_thread")
    assert CORE + "in_thread" not in threads.units("checks_threads.py::check_after_the_joined")


def test_thread_that_lives_on_is_in_the_tests_that_follow(threads):
    beside = threads.units("checks_threads.py::check_beside_the_thread")
    assert {CORE + "in_thread", CORE + "add", "checks_threads.py::loop"} <= beside
    assert "checks_threads.py::loop" in threads.units("checks_threads.py::check_ends_the_thread")
    notes = threads.records["checks_threads.py::check_leaves_a_thread"].facts.notes
    assert any("left" in note for note in notes)


def test_hooks_of_conftest_files_are_in_every_test(run):
    assert all("conftest.py::configure" in run.units(node_id) for node_id in run.records)


def test_function_that_called_pytest_is_in_every_test(recorder):
    done = recorder("-q", "checks_resumed.py", program=["runner.py"])
    assert done.status == 0, done.output
    assert len(done.records) == 4
    assert all("runner.py::main" in done.units(node_id) for node_id in done.records)


def test_what_was_imported_before_the_recording_is_a_root_of_every_test(recorder):
    done = recorder("-q", "-p", "lib.registry", "checks_resumed.py")
    assert done.status == 0, done.output
    assert all("lib/registry.py" in record.roots for record in done.records.values())
    assert len(done.records) == 4


def test_run_in_another_order_adds_what_the_usual_one_hides(recorder, tmp_path):
    store = tmp_path / "evidence.sqlite"
    usual = recorder("-q", "checks_order.py")
    assert usual.status == 0, usual.output
    again = recorder("-q", "--fastci-reverse", "checks_order.py", root=usual.root)
    assert again.status == 0, again.output
    shared = CORE + "add"
    seen = {}
    for node_id in ("checks_order.py::check_one", "checks_order.py::check_other"):
        seen[node_id] = [shared in done.units(node_id) for done in (usual, again)]
        assert usual.gaps(node_id) == again.gaps(node_id) == set()
    assert seen == {
        "checks_order.py::check_one": [True, False],
        "checks_order.py::check_other": [False, True],
    }
    merge_bundles([usual.root / ".fastci" / "bundles"], store, root=usual.root)
    (lane,) = {record.lane for record in usual.records.values()}
    head = {("lib/core.py", "add"): set()}
    with EvidenceStore.open(store) as opened:
        found = opened.affected(head, lane=lane, scopes=["trunk"])
        assert set(opened.node_ids(list(found.reasons()))) == set(seen)
        assert opened.check() == []


NETS = "lib/nets.py::"


@pytest.fixture(scope="module")
def with_torch(tmp_path_factory) -> RecordedRun:
    """What torch runs for a test, by this interpreter: others have no torch of their own."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    done = record(make_subject(tmp_path_factory.mktemp("torch") / "repo"), "-q", "checks_torch.py")
    assert done.status == 0, done.output
    return done


def test_what_was_inlined_into_compiled_code_is_in_every_run_of_it(with_torch):
    for name in ("check_compiles", "check_runs_compiled"):
        assert {NETS + "root", NETS + "inlined"} <= with_torch.units(f"checks_torch.py::{name}"), name
    for name in ("check_compiled_module", "check_compiled_module_again"):
        units = with_torch.units(f"checks_torch.py::{name}")
        assert {NETS + "Net.forward", NETS + "Net.part", NETS + "inlined"} <= units, name


def test_backward_is_seen_on_whatever_thread_it_runs(with_torch):
    assert NETS + "Double.backward" in with_torch.units("checks_torch.py::check_backward")
    deep = with_torch.units("checks_torch.py::check_deep_backward")
    assert {NETS + "Nested.backward", NETS + "Leaf.backward"} <= deep


def test_torch_adds_nothing_to_tests_that_do_not_use_it(with_torch):
    assert not {NETS + "root", NETS + "inlined"} & with_torch.units(
        "checks_torch.py::check_no_torch_function"
    )
    assert all(not seen.gaps for seen in with_torch.records.values())


@pytest.fixture
def slots(recorder):
    """Records where ids of `sys.monitoring` exist."""
    if recorder.backend != "monitoring":
        pytest.skip("this interpreter has no sys.monitoring")
    return recorder


@pytest.mark.parametrize("taken", ["3 4", "0 1 2 3 4", "1 2 3 4 5"])
def test_other_tools_keep_their_ids_and_we_take_a_free_one(slots, taken):
    done = slots("-q", "-p", "other_tools", "checks_functions.py", TAKEN_IDS=taken)
    assert done.status == 0, done.output
    assert [bundle.provenance.backend for bundle in done.bundles] == ["monitoring"]
    assert CORE + "scale" in done.units("checks_functions.py::check_call")


def test_where_every_id_is_taken_the_profile_hook_records(slots):
    done = slots(
        "-q", "-p", "other_tools", "checks_functions.py", "checks_fixtures.py", TAKEN_IDS="0 1 2 3 4 5"
    )
    assert done.status == 0, done.output
    assert [bundle.provenance.backend for bundle in done.bundles] == ["profile"]
    has, lacks = UNITS["checks_functions.py::check_call"]
    assert has <= done.units("checks_functions.py::check_call")
    assert not lacks & done.units("checks_functions.py::check_call")
    has, lacks = UNITS["checks_fixtures.py::check_second_user"]
    assert has <= done.units("checks_fixtures.py::check_second_user")


def test_lost_id_is_a_gap_of_the_tests_from_then_on(slots):
    done = slots("-q", "checks_slots.py")
    assert done.status == 0, done.output
    assert done.gaps("checks_slots.py::check_before") == set()
    for name in ("check_takes_our_place", "check_after_the_theft"):
        assert Gap.SLOT_LOST in done.gaps(f"checks_slots.py::{name}"), name


def test_doctest_stands_on_the_file_that_its_text_is_in(recorder):
    done = recorder("-q", "--doctest-modules", "lib/documented.py")
    assert done.status == 0, done.output
    (seen,) = done.records.values()
    assert seen.facts.is_doctest
    assert "lib/documented.py" in {file.path for file in seen.reads}
    assert "lib/documented.py::shown" in done.units(seen.node_id)


def test_source_that_is_changed_while_tests_run_is_what_ran_or_a_gap(recorder):
    done = recorder("-q", "checks_changes.py", "checks_written.py")
    assert done.status == 0, done.output
    # Changed when it had been imported: the content that ran is the one that is kept.
    after_import = "checks_changes.py::check_changes_what_was_imported"
    assert "lib/documented.py::described" in done.units(after_import)
    assert done.gaps(after_import) == set()
    assert done.gaps("checks_written.py::check_imports_what_was_written_just_now") == {Gap.SOURCE_CHANGED}
    assert done.gaps("checks_changes.py::check_touches_neither") == set()


@pytest.mark.parametrize("is_same", [True, False])
@pytest.mark.parametrize("folder", ["lib/python/site-packages", "other/checkout"])
def test_copy_of_a_package_counts_as_the_files_of_the_repository(recorder, tmp_path, folder, is_same):
    def install(root):
        place = tmp_path / folder
        shutil.copytree(root / "lib", place / "lib")
        if not is_same:
            core = place / "lib" / "core.py"
            core.write_text(core.read_text() + "\n\nLATER = 1\n")
        # As under `pip install .` with tests that lie elsewhere: what is imported is the copy.
        (root / "checks").mkdir()
        (root / "checks_functions.py").rename(root / "checks" / "checks_functions.py")
        (root / "conftest.py").unlink()
        (root / "src").mkdir()
        (root / "lib").rename(root / "src" / "lib")
        return place

    done = recorder("-q", "--import-mode=importlib", "checks/checks_functions.py", prepare=install)
    assert done.status == 0, done.output
    node_id = "checks/checks_functions.py::check_call"
    assert {"src/" + CORE + "twice", "src/" + CORE + "scale"} <= done.units(node_id)
    assert done.gaps(node_id) == (set() if is_same else {Gap.COPY_DIFFERS})

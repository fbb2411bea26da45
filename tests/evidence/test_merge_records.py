"""From a bundle to records: what each test touched, and every reason why that may not be all."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundle_makers import STARTED_US, Recording, gap_kinds, names, records_of

from fastci_ml.evidence.bundle.blob_id import blob_id
from fastci_ml.evidence.bundle.reader import Bundle, read_bundle
from fastci_ml.evidence.bundle.source_pack import SourcePack, pack_of
from fastci_ml.evidence.merge.bundle_evidence import build_records
from fastci_ml.evidence.merge.sources_at_hand import SourcesAtHand
from fastci_ml.records.evidence import FileSeen, RunFacts
from fastci_ml.records.evidence_kinds import BlockKind, CaptureKind, Gap
from fastci_ml.sources.blocks.reader import read_blocks

MODEL = """\
SIZE = 3


class Model:
    depth = 2

    def forward(self, x):
        def inner(y):
            return y + SIZE

        return inner(x)

    def unused(self):
        return 0


def make():
    return Model()


double = lambda x: x * 2
"""
TESTS = """\
import pytest
from pkg.model import make


@pytest.fixture(scope="module")
def model():
    return make()


def test_forward(model):
    assert model.forward(1) == 4


def test_other(model):
    assert model


class Base:
    def test_inherited(self):
        assert True
"""
TEST = "tests/test_model.py"


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    recording = Recording(tmp_path / "bundles")
    recording.source("pkg/model.py", MODEL)
    recording.source(TEST, TESTS)
    return recording


def test_a_test_stands_on_its_code_and_on_the_functions_around_it(recording: Recording) -> None:
    inner = recording.code("pkg/model.py", "Model.forward.<locals>.inner")
    recording.test(f"{TEST}::test_forward", recording.code(TEST, "test_forward"), inner)
    record = records_of(recording.close())[f"{TEST}::test_forward"]
    assert names(record) == {
        f"{TEST}::test_forward",
        "pkg/model.py::Model.forward",
        "pkg/model.py::Model.forward.<locals>.inner",
    }
    assert record.is_complete
    blocks = read_blocks(MODEL.encode()).by_name
    for unit in record.units:
        if unit.path == "pkg/model.py":
            assert (unit.kind, unit.fingerprint) == (BlockKind.FUNCTION, blocks[unit.name].fingerprint)
    assert (record.lane, record.scope, record.backend) == ("py3.11-cpu", "trunk", "monitoring")
    assert record.recorded_us == record.facts.started_us == STARTED_US + 1_000


def test_module_code_and_class_bodies_are_no_units_but_roots(recording: Recording) -> None:
    recording.test(
        f"{TEST}::test_forward",
        recording.code(TEST, "test_forward"),
        recording.code("pkg/model.py", "<module>"),
        recording.code("pkg/model.py", "Model"),
    )
    record = records_of(recording.close())[f"{TEST}::test_forward"]
    assert names(record) == {f"{TEST}::test_forward"}
    assert record.roots == {TEST, "pkg/model.py"}


def test_a_lambda_of_a_module_is_the_statement_that_holds_it(recording: Recording) -> None:
    recording.test(
        f"{TEST}::test_forward",
        recording.code(TEST, "test_forward"),
        recording.code("pkg/model.py", "<lambda>"),
    )
    record = records_of(recording.close())[f"{TEST}::test_forward"]
    (unit,) = (unit for unit in record.units if unit.path == "pkg/model.py")
    assert (unit.name, unit.kind) == ("double", BlockKind.BINDING)


def test_what_a_test_uses_is_its_own_through_any_number_of_steps(recording: Recording) -> None:
    config = recording.file("data/config.json", "a" * 40)
    folder = recording.file("data", "b" * 40)
    helper = recording.source("tests/helper.py", "X = 1\n")
    cache = recording.capture(
        CaptureKind.CACHE, "pkg/model.py::make", recording.code("pkg/model.py", "make"), reads=[config]
    )
    collector = recording.capture(CaptureKind.COLLECTOR, TEST, imports=[helper], environ=["MODEL_SIZE"])
    fixture = recording.capture(
        CaptureKind.FIXTURE,
        "model",
        recording.code(TEST, "model"),
        uses=[cache, collector],
        listings=[folder],
        gaps=[(Gap.THREAD_UNSEEN, "loader")],
    )
    for name in ("test_forward", "test_other"):
        recording.test(f"{TEST}::{name}", recording.code(TEST, name), uses=[fixture])
    records = records_of(recording.close())
    for name in ("test_forward", "test_other"):
        record = records[f"{TEST}::{name}"]
        assert names(record) == {f"{TEST}::{name}", f"{TEST}::model", "pkg/model.py::make"}
        assert record.reads == {FileSeen(path="data/config.json", blob="a" * 40)}
        assert record.listings == {FileSeen(path="data", blob="b" * 40)}
        assert record.environ == {"MODEL_SIZE"}
        assert record.roots == {TEST, "tests/helper.py"}
        assert record.gaps == ((Gap.THREAD_UNSEEN, "loader"),)


def test_captures_that_use_each_other_in_a_circle_are_one(recording: Recording) -> None:
    numbers = [recording.writer.new_capture() for _ in range(3)]
    files = [recording.file(f"data/{number}", None) for number in numbers]
    for place, number in enumerate(numbers):
        uses = [numbers[place - 1], number]
        recording.capture(CaptureKind.FIXTURE, "f", number=number, reads=[files[place]], uses=uses)
    recording.test(f"{TEST}::test_other", recording.code(TEST, "test_other"), uses=[numbers[1]])
    record = records_of(recording.close())[f"{TEST}::test_other"]
    assert {seen.path for seen in record.reads} == {f"data/{number}" for number in numbers}
    assert record.is_complete


def test_every_test_stands_on_the_session_but_on_no_other_test(recording: Recording) -> None:
    session = recording.writer.new_capture()
    tests = [
        recording.test(f"{TEST}::{name}", recording.code(TEST, name), reads=[recording.file(name, None)])
        for name in ("test_forward", "test_other")
    ]
    # As the recorder writes it: what was opened and closed within the session is used by it.
    recording.capture(
        CaptureKind.SESSION, "", recording.code("pkg/model.py", "make"), number=session, uses=tests
    )
    records = records_of(recording.close())
    for name in ("test_forward", "test_other"):
        record = records[f"{TEST}::{name}"]
        assert names(record) == {f"{TEST}::{name}", "pkg/model.py::make"}
        assert record.reads == {FileSeen(path=name, blob=None)}


def test_a_cache_may_stand_on_all_of_a_test(recording: Recording) -> None:
    label = f"{TEST}::test_forward"
    test = recording.test(label, recording.code(TEST, "test_forward"), recording.code("pkg/model.py", "make"))
    cache = recording.capture(CaptureKind.CACHE, "pkg/model.py::make", uses=[test])
    recording.test(f"{TEST}::test_other", recording.code(TEST, "test_other"), uses=[cache])
    record = records_of(recording.close())[f"{TEST}::test_other"]
    assert names(record) == {label, f"{TEST}::test_other", "pkg/model.py::make"}


def test_a_capture_that_is_used_and_missing_is_a_gap(recording: Recording) -> None:
    recording.test(f"{TEST}::test_other", recording.code(TEST, "test_other"), uses=[99])
    record = records_of(recording.close())[f"{TEST}::test_other"]
    assert record.gaps == ((Gap.TORN_LINE, "bundle 00ab: capture 99 is missing"),)


def test_attempts_of_a_test_are_one_record_with_the_facts_of_the_last(recording: Recording) -> None:
    label = f"{TEST}::test_other"
    failed = RunFacts(outcome="failed", started_us=STARTED_US + 1, native_readers=("tokenizers",))
    passed = RunFacts(outcome="passed", started_us=STARTED_US + 9, call_s=2.0, native_readers=("numpy",))
    test = recording.code(TEST, "test_other")
    recording.test(label, test, recording.code("pkg/model.py", "make"), facts=failed)
    recording.test(label, test, recording.code(TEST, "model"), facts=passed)
    record = records_of(recording.close())[label]
    assert names(record) == {label, "pkg/model.py::make", f"{TEST}::model"}
    assert record.facts == passed
    assert record.recorded_us == STARTED_US + 9
    assert record.native_readers == ("tokenizers", "numpy")
    assert record.is_complete


@pytest.mark.parametrize("outcome", ["failed", "error", "skipped", "xfailed", "unknown", "anything"])
def test_what_did_not_pass_is_not_complete(recording: Recording, outcome: str) -> None:
    facts = RunFacts(outcome=outcome, started_us=STARTED_US)
    recording.test(f"{TEST}::test_other", recording.code(TEST, "test_other"), facts=facts)
    record = records_of(recording.close())[f"{TEST}::test_other"]
    assert record.gaps == ((Gap.DID_NOT_PASS, outcome),)


def test_what_passed_against_expectation_did_pass(recording: Recording) -> None:
    facts = RunFacts(outcome="xpassed", started_us=STARTED_US)
    recording.test(f"{TEST}::test_other", recording.code(TEST, "test_other"), facts=facts)
    assert records_of(recording.close())[f"{TEST}::test_other"].is_complete


def test_a_test_whose_end_is_not_recorded_is_not_complete(recording: Recording) -> None:
    label = f"{TEST}::test_other"
    recording.test(label, recording.code(TEST, "test_other"))
    recording.capture(CaptureKind.TEST, label, recording.code(TEST, "test_other"))
    record = records_of(recording.close())[label]
    assert gap_kinds(record) == ["no_end_mark"]
    assert record.facts.outcome == "unknown"
    # Anything known of a later moment is the newer one.
    assert record.recorded_us == STARTED_US


def test_gaps_of_the_bundle_are_those_of_each_of_its_tests(recording: Recording) -> None:
    for name in ("test_forward", "test_other"):
        recording.test(f"{TEST}::{name}", recording.code(TEST, name))
    records = records_of(recording.cut())
    assert [gap_kinds(record) for record in records.values()] == [["no_end_mark"]] * 2
    whole = recording.path.read_bytes()
    recording.path.write_bytes(whole + b"torn\n")
    records = records_of(read_bundle(recording.path))
    assert [gap_kinds(record) for record in records.values()] == [["torn_line", "no_end_mark"]] * 2


def test_a_source_that_is_not_at_hand_is_a_gap(recording: Recording) -> None:
    recording.source("pkg/lost.py", "def f():\n    return 1\n", is_kept=False)
    lost = recording.code("pkg/lost.py", "f")
    unread = recording.writer.add_code(recording.file("pkg/large.py", None), "g", 1)
    for name, code in (("test_forward", lost), ("test_other", unread)):
        recording.test(f"{TEST}::{name}", recording.code(TEST, name), code)
    records = records_of(recording.close())
    assert records[f"{TEST}::test_forward"].gaps == ((Gap.SOURCE_MISSING, "pkg/lost.py"),)
    assert records[f"{TEST}::test_other"].gaps == ((Gap.SOURCE_MISSING, "pkg/large.py"),)


def test_code_that_its_source_does_not_hold_is_a_gap(recording: Recording) -> None:
    elsewhere = recording.code("pkg/model.py", "make", line=1)
    recording.test(f"{TEST}::test_other", recording.code(TEST, "test_other"), elsewhere)
    record = records_of(recording.close())[f"{TEST}::test_other"]
    assert record.gaps == ((Gap.SOURCE_CHANGED, "pkg/model.py"),)


def test_generated_code_that_passes_for_a_function_is_that_function(recording: Recording) -> None:
    line = TESTS[: TESTS.index("def test_other")].count("\n") + 1
    # As Hypothesis names the wrapper that it writes, and dynamo what is left of a function behind a break.
    wrapper = recording.code(TEST, "accept.<locals>.test_other", line=line)
    start = MODEL[: MODEL.index("        return inner(x)")].count("\n") + 1
    name = "Model.torch_dynamo_resume_in_torch_dynamo_resume_in_forward_at_9_at_12"
    rest = recording.code("pkg/model.py", name, line=start)
    recording.test(f"{TEST}::test_other", wrapper, rest)
    record = records_of(recording.close())[f"{TEST}::test_other"]
    assert names(record) == {f"{TEST}::test_other", "pkg/model.py::Model.forward"}
    assert record.is_complete


def test_a_file_of_which_two_contents_ran_is_a_gap_for_those_that_ran_it(recording: Recording) -> None:
    first = recording.code("pkg/model.py", "make")
    recording.source("pkg/model.py", MODEL + "\n\ndef more():\n    return make()\n")
    second = recording.code("pkg/model.py", "more")
    recording.test(f"{TEST}::test_forward", recording.code(TEST, "test_forward"), first, second)
    recording.test(f"{TEST}::test_other", recording.code(TEST, "test_other"))
    records = records_of(recording.close())
    assert records[f"{TEST}::test_forward"].gaps == ((Gap.SOURCE_CHANGED, "pkg/model.py"),)
    assert records[f"{TEST}::test_other"].is_complete


def test_the_working_tree_gives_a_source_only_if_it_is_what_ran(tmp_path: Path, recording: Recording) -> None:
    text = "def f():\n    return 1\n"
    recording.source("pkg/late.py", text, is_kept=False)
    recording.test(
        f"{TEST}::test_other", recording.code(TEST, "test_other"), recording.code("pkg/late.py", "f")
    )
    bundle = recording.close()
    root = tmp_path / "root"
    late = root / "pkg" / "late.py"
    late.parent.mkdir(parents=True)

    def gaps() -> list[str]:
        (record,) = build_records(bundle, SourcesAtHand(bundle.path, root)).records()
        return gap_kinds(record)

    assert gaps() == ["source_missing"]
    late.write_text(text)
    assert gaps() == []
    late.write_text(text + "\n")
    assert gaps() == ["source_missing"]


@pytest.mark.parametrize("path", ["/etc/hostname", "../secret.py", "a/../../secret.py", "", "a\0b.py"])
def test_no_file_outside_of_the_repository_is_read(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret.py").write_text("def f():\n    return 1\n")
    root = tmp_path / "root"
    root.mkdir()
    blob = blob_id((tmp_path / "secret.py").read_bytes())
    assert SourcesAtHand(tmp_path / "bundles", root)(path, blob) is None


def test_a_test_of_which_nothing_was_seen_is_not_complete(recording: Recording) -> None:
    recording.test(f"{TEST}::test_other", recording.code("pkg/model.py", "make"))
    recording.test(f"{TEST}::test_forward")
    for record in records_of(recording.close()).values():
        assert record.gaps == ((Gap.OWN_UNIT_MISSING, ""),)


def test_a_fixture_of_its_module_is_no_sign_of_the_test_itself(recording: Recording) -> None:
    fixture = recording.capture(CaptureKind.FIXTURE, "model", recording.code(TEST, "model"))
    recording.test(f"{TEST}::test_other", recording.code("pkg/model.py", "make"), uses=[fixture])
    record = records_of(recording.close())[f"{TEST}::test_other"]
    assert gap_kinds(record) == ["own_unit_missing"]


def test_a_test_inherited_from_another_module_is_seen_by_its_name(recording: Recording) -> None:
    recording.source(
        "tests/test_child.py", "from tests.test_model import Base\n\n\nclass TestChild(Base): ...\n"
    )
    label = "tests/test_child.py::TestChild::test_inherited[1::2]"
    recording.test(label, recording.code(TEST, "Base.test_inherited"))
    assert records_of(recording.close())[label].is_complete


def test_a_doctest_and_text_that_is_run_depend_on_their_file(recording: Recording) -> None:
    facts = RunFacts(outcome="passed", started_us=STARTED_US, is_doctest=True)
    recording.test("pkg/model.py::pkg.model.make", facts=facts)
    page = recording.file("docs/page.md", "d" * 40)
    assert page
    recording.test("docs/page.md::page.md")
    recording.test("docs/unseen.yaml::case")
    records = records_of(recording.close())
    assert records["pkg/model.py::pkg.model.make"].reads == {
        FileSeen(path="pkg/model.py", blob=blob_id(MODEL.encode()))
    }
    assert records["docs/page.md::page.md"].reads == {FileSeen(path="docs/page.md", blob="d" * 40)}
    assert records["docs/unseen.yaml::case"].reads == {FileSeen(path="docs/unseen.yaml", blob=None)}
    assert all(record.is_complete for record in records.values())
    assert records["pkg/model.py::pkg.model.make"].roots == {"pkg/model.py"}
    assert records["docs/page.md::page.md"].roots == {"docs/page.md"}
    assert records["docs/unseen.yaml::case"].roots == set()


def test_conftests_and_packages_around_a_test_are_roots_and_no_others(recording: Recording) -> None:
    around = ("conftest.py", "tests/conftest.py", "tests/__init__.py")
    beside = ("tests/more/conftest.py", "other/conftest.py", "tests/more/__init__.py")
    session = recording.writer.new_capture()
    for path in (*around, *beside):
        recording.source(path, "X = 1\n")
    recording.test(f"{TEST}::test_other", recording.code(TEST, "test_other"))
    recording.capture(
        CaptureKind.SESSION,
        "",
        number=session,
        imports=[recording.file(path, blob_id(b"X = 1\n")) for path in (*around, "other/conftest.py")],
    )
    record = records_of(recording.close())[f"{TEST}::test_other"]
    assert record.roots == {TEST, *around}


def test_a_source_that_does_not_parse_is_one_unit(recording: Recording) -> None:
    text = "def f(:\n    return 1\n"
    file = recording.source("pkg/later_python.py", text)
    code = recording.writer.add_code(file, "f", 1)
    recording.test(f"{TEST}::test_other", recording.code(TEST, "test_other"), code)
    bundle = recording.close()
    record = records_of(bundle)[f"{TEST}::test_other"]
    (unit,) = (unit for unit in record.units if unit.path == "pkg/later_python.py")
    assert unit.kind is BlockKind.FILE
    assert record.is_complete


def test_details_that_all_tests_repeat_are_few_and_short(recording: Recording) -> None:
    gaps = [(Gap.CHILD_WITHOUT_RECORD, f"{number} " + "x" * 1_000) for number in range(50)]
    fixture = recording.capture(CaptureKind.FIXTURE, "model", gaps=gaps)
    recording.test(f"{TEST}::test_other", recording.code(TEST, "test_other"), uses=[fixture])
    record = records_of(recording.close())[f"{TEST}::test_other"]
    assert gap_kinds(record) == ["child_without_record"]
    assert len(record.gaps) == 4
    assert record.gaps[-1] == (Gap.CHILD_WITHOUT_RECORD, "and 47 more")
    assert all(len(detail) <= 300 for _, detail in record.gaps)


def test_records_come_by_node_id_and_are_the_same_each_time(recording: Recording) -> None:
    for name in ("test_other", "test_forward"):
        recording.test(f"{TEST}::{name}", recording.code(TEST, name))
    bundle = recording.close()

    def records(given: Bundle) -> list[object]:
        return list(build_records(given, SourcesAtHand(given.path, given.path.parent)).records())

    found = records(bundle)
    assert [record.node_id for record in found] == [f"{TEST}::test_forward", f"{TEST}::test_other"]  # type: ignore[attr-defined]
    assert records(read_bundle(recording.path)) == found


def test_file_versions_are_the_blocks_of_what_ran_or_was_imported(recording: Recording) -> None:
    recording.source("pkg/only_read.py", "Y = 1\n")
    imported = recording.source("pkg/imported.py", "Z = 1\n")
    recording.test(f"{TEST}::test_other", recording.code(TEST, "test_other"), imports=[imported])
    bundle = recording.close()
    evidence = build_records(bundle, SourcesAtHand(bundle.path, bundle.path.parent))
    assert {path for path, _ in evidence.file_versions} == {TEST, "pkg/imported.py"}
    blob = blob_id(TESTS.encode())
    assert evidence.file_versions[TEST, blob] == read_blocks(TESTS.encode()).blocks
    assert SourcePack(pack_of(bundle.path)).get(blob) == TESTS.encode()

"""Shards, attempts of the CI, reports that overwrote each other (case 36); empty shards (case 38)."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest
from ci_folders import FAILURE, ids, ingest, outcomes, run_pytest, write_junit, write_run
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.features.log import build_log
from fastci_ml.records.frames import ATTEMPTS_A_RUN, CHANGES, EXECUTIONS, NO_ATTEMPT, RUNS
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.ingest.run_file import RunInfo
from fastci_ml.sources.ingest.shards import find_absent, total_of


def shards(logs: Path, names: list[str], **document: object) -> None:
    """One folder a shard, each with a `junit.xml` of two tests of its own."""
    for place, name in enumerate(names):
        folder = logs / f"artifact-{place}"
        write_run(folder, run_id="7", shard=name, **document)
        write_junit(folder / "junit.xml", [f"test_{place}a", f"test_{place}b"], second=place)


def test_shards_that_write_the_same_name_stand_beside_each_other(tmp_path: Path) -> None:  # case 36
    shards(tmp_path / "logs", ["1/4", "2/4", "3/4", "4/4"])
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert (report.n_files, report.n_runs, report.n_executions) == (4, 4, 8)
    assert (report.problems, report.warnings, report.n_incomplete_runs) == ([], [], 0)


def test_real_shards_that_write_one_file_leave_one_report_and_a_line(tmp_path: Path) -> None:
    """case 36: four real pytest processes write to one place, which is uploaded once for each of them."""
    (tmp_path / "test_a.py").write_text(
        "import pytest\n@pytest.mark.parametrize('i', range(8))\ndef test_x(i): assert i != 5\n"
    )
    logs = tmp_path / "logs"
    for shard in range(4):
        tests = [f"test_a.py::test_x[{i}]" for i in range(shard, 8, 4)]
        run_pytest(tmp_path, "--junitxml=junit.xml", *tests)
        write_run(logs / f"shard-{shard}", run_id="7", shard=str(shard), n_shards=4)
    for shard in range(4):
        shutil.copy(tmp_path / "junit.xml", logs / f"shard-{shard}")
    report = ingest(tmp_path / "history", logs)
    assert (report.n_files, report.n_executions, report.n_absent_shards) == (4, 2, 3)
    same = [line for line in report.warnings if "the same bytes" in line]
    assert len(same) == 3
    for shard, line in enumerate(same, 1):
        assert line.startswith(f"{logs}/shard-{shard}/junit.xml: ")
        assert f"no report of run 7, shard {shard}:" in line
    assert "run 7: 3 of 4 shards absent: 1, 2, 3: what they ran is unknown" in report.warnings


@pytest.mark.parametrize("link", [shutil.copy, os.link, os.symlink], ids=["copy", "hard link", "link"])
def test_one_report_under_two_shards_counts_once_however_it_got_there(tmp_path: Path, link: object) -> None:
    """case 36: stores of artifacts copy, link or point."""
    shards(tmp_path / "logs", ["10", "9"])
    second = tmp_path / "logs" / "artifact-0" / "junit.xml"  # shard 10
    second.unlink()
    link(tmp_path / "logs" / "artifact-1" / "junit.xml", second)  # type: ignore[operator]
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert (report.n_executions, report.n_absent_shards, report.n_incomplete_runs) == (2, 1, 1)
    assert len(report.warnings) == 1
    assert "so it is no report of run 7, shard 10" in report.warnings[0]
    assert set(HistoryStore(tmp_path / "history").read(EXECUTIONS).shard) == {"9"}


def test_a_repeated_job_that_finds_the_old_report_left_none_of_its_own(tmp_path: Path) -> None:  # case 36
    for attempt in (1, 2):
        folder = tmp_path / "logs" / f"attempt-{attempt}"
        write_run(folder, run_id="7", job="gpu", attempt=attempt)
        write_junit(folder / "junit.xml", ["test_a"], inner=FAILURE)
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert outcomes(tmp_path / "history") == {("test_a", 0): "failed"}
    assert "no report of run 7, job gpu, attempt 2" in report.warnings[0]


def test_the_same_bytes_in_two_jobs_lanes_or_runs_are_two_reports(tmp_path: Path) -> None:
    for place, told in enumerate(({"job": "a"}, {"job": "b"}, {"job": "b", "lane": "gpu"}, {"run_id": "8"})):
        write_run(tmp_path / "logs" / str(place), **{"run_id": "7", **told})
        write_junit(tmp_path / "logs" / str(place) / "junit.xml", ["test_a"])
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert (report.n_runs, report.n_executions, report.warnings) == (4, 4, [])


def test_a_report_twice_in_one_shard_is_one_without_a_word(tmp_path: Path) -> None:
    shards(tmp_path / "logs", ["1/1"])
    (tmp_path / "logs" / "artifact-0" / "copy").mkdir()
    shutil.copy(tmp_path / "logs" / "artifact-0" / "junit.xml", tmp_path / "logs" / "artifact-0" / "copy")
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert (report.n_files, report.n_executions, report.n_duplicates) == (2, 2, 1)
    assert report.warnings == []


@pytest.mark.parametrize(
    ("names", "told", "words"),
    [
        (["1/4", "3/4"], {}, "2 of 4 shards absent: 2/4, 4/4"),
        (["2 of 3"], {}, "2 of 3 shards absent: 1 of 3, 3 of 3"),
        (["shard-1-of-2"], {}, "1 of 2 shards absent: shard-2-of-2"),
        (["0/2"], {}, "1 of 2 shards absent: 1/2"),
        (["0", "2"], {"n_shards": 3}, "1 of 3 shards absent: 1"),
        (["1", "3"], {"n_shards": 3}, "1 of 3 shards absent: 2"),
        (["1", "2"], {"n_shards": 4}, "2 of 4 shards absent (which ones, the names of the others"),
        (["gpu-a", "gpu-b"], {"n_shards": 3}, "1 of 3 shards absent (which ones, the names"),
        ([""], {"n_shards": 2}, "1 of 2 shards absent (which ones, the names"),
    ],
)
def test_an_absent_shard_is_told_with_its_run_and_name(
    tmp_path: Path, names: list[str], told: dict[str, object], words: str
) -> None:  # case 36
    shards(tmp_path / "logs", names, job="unit", **told)
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith(f"run 7, job unit: {words}")
    assert report.warnings[0].endswith("what they ran is unknown")
    assert (report.n_incomplete_runs, report.problems) == (1, [])
    assert set(HistoryStore(tmp_path / "history").read(EXECUTIONS).outcome) == {"passed"}


def test_reports_beside_one_run_json_stand_for_its_shards_where_nothing_names_them(tmp_path: Path) -> None:
    write_run(tmp_path / "logs", run_id="7", n_shards=3)
    for place in range(3):
        write_junit(tmp_path / "logs" / f"junit-{place}.xml", [f"test_{place}"], second=place)
    assert ingest(tmp_path / "one", tmp_path / "logs").warnings == []
    (tmp_path / "logs" / "junit-2.xml").unlink()
    assert ingest(tmp_path / "two", tmp_path / "logs").n_absent_shards == 1


def test_shards_that_disagree_on_their_number_are_told(tmp_path: Path) -> None:
    shards(tmp_path / "logs", ["1/2", "2/3", "3/3"])
    assert any("disagree on how many there are: 2 and 3" in line for line in _warnings(tmp_path))
    shutil.rmtree(tmp_path / "logs")
    shards(tmp_path / "logs", ["a", "b", "c"], n_shards=2)
    assert any("more shards than 2: a, b, c" in line for line in _warnings(tmp_path))


def _warnings(tmp_path: Path) -> list[str]:
    report = ingest(tmp_path / "other", tmp_path / "logs")
    shutil.rmtree(tmp_path / "other")
    return report.warnings


def test_lanes_of_one_job_have_their_own_shards(tmp_path: Path) -> None:
    for place, (lane, shard) in enumerate(itertools.product("ab", ("1/2", "2/2"))):
        write_run(tmp_path / "logs" / str(place), run_id="7", shard=shard, lane=lane)
        write_junit(tmp_path / "logs" / str(place) / "junit.xml", [f"test_{place}"])
    assert ingest(tmp_path / "one", tmp_path / "logs").warnings == []
    (tmp_path / "logs" / "3" / "run.json").unlink()
    (tmp_path / "logs" / "3" / "junit.xml").unlink()
    report = ingest(tmp_path / "two", tmp_path / "logs")
    assert report.warnings == ["run 7, lane b: 1 of 2 shards absent: 2/2: what they ran is unknown"]


def test_a_shard_that_comes_later_is_not_absent_any_more(tmp_path: Path) -> None:
    shards(tmp_path / "logs", ["1/2", "2/2"])
    history = tmp_path / "history"
    first = ingest(history, tmp_path / "logs" / "artifact-0")
    assert first.n_absent_shards == 1
    second = ingest(history, tmp_path / "logs" / "artifact-1")
    assert (second.n_absent_shards, second.warnings) == (0, [])
    again = ingest(history, tmp_path / "logs" / "artifact-0")
    assert (again.n_duplicates, again.n_absent_shards, again.warnings) == (1, 0, [])


# Attempts of the CI at one job.


def attempts(logs: Path) -> None:
    """Attempt 1 fails and attempt 2, of the failed shard alone, passes."""
    for attempt, shard, inner, hour in ((1, "1/2", "", 0), (1, "2/2", FAILURE, 0), (2, "2/2", "", 4)):
        folder = logs / f"{attempt}-{shard[0]}"
        write_run(
            folder,
            run_id="7",
            shard=shard,
            attempt=attempt,
            started_at=f"2026-01-01T0{hour}:00:00Z",
            finished_at=f"2026-01-01T0{hour + 1}:00:00Z",
        )
        write_junit(folder / "junit.xml", [f"test_{shard[0]}"], inner=inner, second=attempt)


@pytest.mark.parametrize("order", list(itertools.permutations(("1-1", "1-2", "2-2"))), ids=" ".join)
def test_a_repeated_job_leaves_the_rows_of_the_first_attempt_in_any_order(
    tmp_path: Path, order: tuple[str, ...]
) -> None:  # case 36
    attempts(tmp_path / "logs")
    history = tmp_path / "history"
    for folder in order:
        last = ingest(history, tmp_path / "logs" / folder)
    assert outcomes(history) == {
        ("test_1", 0): "passed",
        ("test_2", 0): "failed",
        ("test_2", ATTEMPTS_A_RUN): "passed",
    }
    # Shard 1 was not repeated, and is there all the same.
    assert last.n_absent_shards == 0
    runs = HistoryStore(history).read(RUNS)
    assert runs.shard.tolist() == ["1/2", "2/2"]
    # The span of the run holds both attempts: nothing may be known before it was there.
    assert runs.started_at.dt.hour.tolist() == [0, 0]
    assert runs.finished_at.dt.hour.tolist() == [1, 5]


def test_attempts_together_are_one_ingest_each_and_again_are_known(tmp_path: Path) -> None:
    attempts(tmp_path / "logs")
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert (report.n_runs, report.n_executions, report.n_absent_shards) == (3, 3, 0)
    again = ingest(tmp_path / "history", tmp_path / "logs")
    assert (again.n_runs, again.n_duplicates, again.warnings) == (0, 3, [])
    assert HistoryStore(tmp_path / "history").read(RUNS).finished_at.dt.hour.tolist() == [1, 5]


def test_more_tries_of_a_test_than_there_are_numbers_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastci_ml.sources.ingest.run_rows.ATTEMPTS_A_RUN", 3)
    write_junit(tmp_path / "j.xml", ["test_a"] * 4, inner=FAILURE)
    report = ingest(tmp_path / "history", tmp_path / "j.xml")
    assert report.n_executions == 0
    assert "4 results of one test, expected at most 3" in report.problems[0]


def test_a_later_part_of_a_run_keeps_what_an_earlier_one_said(tmp_path: Path) -> None:
    write_run(tmp_path / "one", run_id="7", head="a" * 40, base="b" * 40, changes=[{"path": "x.py"}])
    write_junit(tmp_path / "one" / "junit.xml", ["test_a"])
    late = write_junit(tmp_path / "late.xml", ["test_b"], second=9)
    late.write_text(late.read_text().replace("00:00:09", "05:00:00"))
    history = tmp_path / "history"
    ingest(history, tmp_path / "one")
    ingest(history, late, run=RunInfo(run_id="7"))
    store = HistoryStore(history)
    run = store.read(RUNS).iloc[0]
    assert (run.base, run["head"], run.started_at.hour, run.finished_at.hour) == ("b" * 40, "a" * 40, 0, 5)
    assert store.read(CHANGES).path.tolist() == ["x.py"]


def test_a_run_json_with_both_times_corrects_those_that_stood_there(tmp_path: Path) -> None:
    path = write_junit(tmp_path / "logs" / "junit.xml", ["test_a"])
    history = tmp_path / "history"
    ingest(history, path, run=RunInfo(run_id="7"))
    write_run(
        tmp_path / "logs",
        run_id="7",
        started_at="2025-01-01T00:00:00Z",
        finished_at="2025-01-01T00:30:00Z",
    )
    ingest(history, tmp_path / "logs")
    assert HistoryStore(history).read(RUNS).finished_at.dt.year.tolist() == [2025]


def test_several_run_json_files_of_one_unit_speak_together(tmp_path: Path) -> None:
    for place in range(2):
        write_run(
            tmp_path / "logs" / str(place),
            run_id="7",
            head=str(place) * 40,
            finished_at=f"2026-01-01T0{place + 1}:00:00Z",
        )
        write_junit(tmp_path / "logs" / str(place) / "junit.xml", ["test_a"], second=place)
    report = ingest(tmp_path / "history", tmp_path / "logs")
    # Apart, the second would have overwritten the row of the first.
    assert outcomes(tmp_path / "history") == {("test_a", 0): "passed", ("test_a", 1): "passed"}
    assert report.n_runs == 1
    assert f"two run.json files disagree on head: {'0' * 40} and {'1' * 40}" in report.warnings[0]
    assert HistoryStore(tmp_path / "history").read(RUNS).finished_at.dt.hour.tolist() == [2]


# case 38: a shard without tests, and what skipped tests took.


@pytest.mark.parametrize(
    "words", [["--junitxml=out.xml"], ["-p", "pytest_reportlog.plugin", "--report-log=out.jsonl"]]
)
def test_a_real_shard_without_tests_is_present_and_no_error(tmp_path: Path, words: list[str]) -> None:
    """case 38: pytest says 5 there, and leaves a report."""
    logs = tmp_path / "logs"
    for shard, choice in ((1, "test_x"), (2, "nothing")):
        folder = logs / str(shard)
        write_run(folder, run_id="7", shard=f"{shard}/2")
        (folder / "test_a.py").write_text("def test_x(): pass\ndef test_y(): pass\n")
        assert run_pytest(folder, "-k", choice, *words).returncode == (0 if shard == 1 else 5)
    report = ingest(tmp_path / "history", logs)
    assert (report.problems, report.n_absent_shards, report.n_incomplete_runs) == ([], 0, 0)
    assert (report.n_runs, report.n_executions) == (2, 1)
    assert HistoryStore(tmp_path / "history").read(RUNS).shard.tolist() == ["1/2", "2/2"]
    assert ingest(tmp_path / "history", logs).n_duplicates == 2


@pytest.mark.parametrize(
    "text",
    [
        "<testsuite tests='0' timestamp='2026-01-01T00:00:00' time='0'/>",
        "<testsuites><testsuite name='pytest' tests='0' timestamp='2026-01-01T00:00:00'/></testsuites>",
        "<testsuites timestamp='2026-01-01T00:00:00'/>",
    ],
)
def test_two_empty_shards_may_be_alike(tmp_path: Path, text: str) -> None:  # case 38, case 36
    for shard in (1, 2):
        write_run(tmp_path / "logs" / str(shard), run_id="7", shard=f"{shard}/2")
        (tmp_path / "logs" / str(shard) / "junit.xml").write_text(text)
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert (report.warnings, report.problems, report.n_runs) == ([], [], 2)


def test_a_skipped_test_brings_no_duration_into_any_estimate(tmp_path: Path) -> None:  # case 38
    for run in range(3):
        inner = "<skipped message='no GPU'/>" if run else ""
        write_run(
            tmp_path / "logs" / str(run),
            finished_at=f"2026-01-0{run + 1}T01:00:00Z",
            started_at=f"2026-01-0{run + 1}T00:00:00Z",
        )
        path = write_junit(tmp_path / "logs" / str(run) / "junit.xml", ["test_a"], inner=inner)
        path.write_text(path.read_text().replace("time='1'", "time='0.001'" if run else "time='50'"))
    ingest(tmp_path / "history", tmp_path / "logs")
    store = HistoryStore(tmp_path / "history")
    assert store.read(EXECUTIONS).duration_s.isna().tolist() == [False, True, True]
    from fastci_ml.features.schema import HISTORY_FEATURES
    from fastci_ml.features.state import FeatureState

    matrix = FeatureState.from_log(build_log(store)).matrix(ids("test_a"), "cpu", None)
    named = dict(zip((feature.name for feature in HISTORY_FEATURES), matrix[0].tolist(), strict=False))
    seconds = {name: value for name, value in named.items() if "duration" in name}
    assert seconds
    assert 50.0 in seconds.values()
    # As if the skipped tries had never been: a mean and a trend of one measured run.
    assert set(seconds.values()) <= {50.0, 1.0, 0.0}


# Laws of names.


@given(n_shards=st.integers(1, 60), start=st.sampled_from([0, 1]), data=st.data())
def test_absent_and_present_shards_are_all_shards(n_shards: int, start: int, data: st.DataObject) -> None:
    every = [f"shard {place} of {n_shards}" for place in range(start, start + n_shards)]
    present = data.draw(st.sets(st.sampled_from(every), max_size=n_shards))
    if start == 0:
        present.add(every[0])  # nothing else tells that the count starts at 0
    absent = find_absent(present, n_shards)
    if len(present) == n_shards:
        assert absent is None
        return
    assert absent is not None
    assert absent.n_absent == n_shards - len(present)
    if present:
        assert {*absent.names, *present} == set(every)


@given(st.text(max_size=12))
def test_any_name_of_a_shard_is_one(name: str) -> None:
    total = total_of(name)
    assert total is None or total >= 1
    absent = find_absent({name}, 3)
    assert absent is not None
    assert absent.n_absent == 2


def test_gaps_of_two_shards_are_one_and_go_when_a_result_comes(tmp_path: Path) -> None:
    """Two ingests at the same time may both find a test without a result."""
    for shard in ("1/2", "2/2"):
        write_run(tmp_path / shard[0], run_id="7", shard=shard, selected=ids("test_a", "test_b"))
        write_junit(tmp_path / shard[0] / "junit.xml", ["test_b"], second=int(shard[0]))
    one, two, both = (HistoryStore(tmp_path / name) for name in ("h1", "h2", "both"))
    for store, folder in ((one, "1"), (two, "2")):
        ingest(store.directory, tmp_path / folder)
    for folder in (one.directory, two.directory):  # as if written at the same time
        shutil.copytree(folder, both.directory, dirs_exist_ok=True)
    assert outcomes(both.directory)["test_a", NO_ATTEMPT] == "unknown"
    assert (both.read(EXECUTIONS).attempt == NO_ATTEMPT).sum() == 1
    both.compact()
    assert (both.read(EXECUTIONS).attempt == NO_ATTEMPT).sum() == 1
    late = write_junit(tmp_path / "late.xml", ["test_a"], second=30)
    ingest(both.directory, late, run=RunInfo(run_id="7", shard="late"))
    assert outcomes(both.directory) == {("test_a", 0): "passed", ("test_b", 0): "passed"}
    both.compact()
    assert outcomes(both.directory) == {("test_a", 0): "passed", ("test_b", 0): "passed"}


# A test that fails in one attempt of the CI and passes in another is flaky; one that fails in both is not.


def _flaky_attempts(logs: Path) -> None:
    for attempt, failing in ((1, ("flaky", "broken")), (2, ("broken",)), (3, ("broken",))):
        folder = logs / str(attempt)
        write_run(folder, run_id="7", attempt=attempt)
        path = write_junit(folder / "junit.xml", ["flaky", "broken", "good"], second=attempt)
        text = path.read_text()
        for name in failing:
            text = text.replace(f"name='{name}' time='1'>", f"name='{name}' time='1'>{FAILURE}")
        path.write_text(text)


@pytest.mark.parametrize("order", ["123", "321", "1 2 3", "3 2 1", "2 1 3", "1 23", "23 1"])
def test_a_failure_that_passed_in_another_attempt_is_flaky_in_any_order(tmp_path: Path, order: str) -> None:
    _flaky_attempts(tmp_path / "logs")
    history = tmp_path / "history"
    n_executions = 0
    for together in order.split():
        report = ingest(history, *(tmp_path / "logs" / attempt for attempt in together))
        n_executions += report.n_executions
    frame = HistoryStore(history).read(EXECUTIONS)
    classes = {
        (node_id.rpartition("::")[2], attempt // ATTEMPTS_A_RUN + 1): failure_class
        for node_id, attempt, failure_class in zip(
            frame.node_id, frame.attempt, frame.failure_class, strict=True
        )
    }
    assert {key: name for key, name in classes.items() if name} == {
        ("flaky", 1): "flaky",
        **{("broken", attempt): "test" for attempt in (1, 2, 3)},
    }
    assert set(outcomes(history).values()) == {"passed", "failed"}
    assert n_executions == len(frame) == 9  # rows that are written again are not new
    log = build_log(HistoryStore(history))
    assert dict(zip(log.node_ids, log.verdicts.tolist(), strict=True)) == dict(
        zip(ids("broken", "flaky", "good"), (1, -1, 0), strict=True)
    )


def test_a_test_that_fails_in_one_shard_and_passes_in_another_is_not_flaky(tmp_path: Path) -> None:
    for shard, inner in (("a", FAILURE), ("b", "")):
        write_run(tmp_path / "logs" / shard, run_id="7", shard=shard, attempt=1)
        write_junit(tmp_path / "logs" / shard / "junit.xml", ["test_a"], inner=inner)
    ingest(tmp_path / "history", tmp_path / "logs")
    assert set(HistoryStore(tmp_path / "history").read(EXECUTIONS).failure_class) == {"", "test"}

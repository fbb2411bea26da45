"""Recording by the plugin: which processes record, what is left behind, and what happens when they cannot."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

from fastci_ml.evidence.bundle.lines import SUFFIX
from fastci_ml.evidence.bundle.reader import Bundle, find_bundles, read_bundle
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

pytest_plugins = ["pytester"]

LIB = """
def add(a, b):
    return a + b

def scale(x):
    return 2 * x
"""
TESTS = """
import lib

def test_one():
    assert lib.add(1, 1) == 2

def test_two():
    assert lib.scale(1) == 2
"""


@pytest.fixture
def project(pytester):
    """A repository with a library and two tests."""
    pytester.makepyfile(lib=LIB, test_lib=TESTS)
    (pytester.path / "fastci.toml").write_text("")
    pytester.syspathinsert()
    return pytester


def bundles(pytester, folder: str = ".fastci/bundles") -> list[Bundle]:
    path = pytester.path / folder
    return [read_bundle(file) for file in find_bundles([path])] if path.is_dir() else []


def seen(bundle: Bundle) -> dict[str, set[str]]:
    """Names of the functions that each test entered itself."""
    return {
        capture.label: {bundle.codes[code].name for code in capture.codes}
        for capture in bundle.captures.values()
        if capture.kind is CaptureKind.TEST
    }


def run(pytester, *arguments: str):
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_nothing_is_recorded_unless_asked(project):
    run(project).assert_outcomes(passed=2)
    assert not (project.path / ".fastci").exists()


def test_session_is_one_bundle_with_both_marks(project):
    result = run(project, "--fastci-record")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["fastci: recording by *"])
    (bundle,) = bundles(project)
    assert bundle.gaps == []
    assert seen(bundle) == {
        "test_lib.py::test_one": {"test_one", "add"},
        "test_lib.py::test_two": {"test_two", "scale"},
    }


def test_folder_of_bundles_is_where_it_was_said(project):
    run(project, "--fastci-bundles", "elsewhere").assert_outcomes(passed=2)
    assert len(bundles(project, "elsewhere")) == 1
    assert not (project.path / ".fastci").exists()


def test_variable_asks_for_recording_too(project, monkeypatch):
    monkeypatch.setenv("FASTCI_RECORD", str(project.path / "kept"))
    run(project).assert_outcomes(passed=2)
    assert len(bundles(project, "kept")) == 1


def test_each_worker_has_a_bundle_and_the_controller_none(project):
    project.makepyfile(test_more="\n".join(f"def test_{n}(): pass" for n in range(6)))
    result = run(project, "--fastci-record", "-n", "2")
    result.assert_outcomes(passed=8)
    found = bundles(project)
    assert sorted(bundle.provenance.worker for bundle in found) == ["gw0", "gw1"]
    assert len({bundle.provenance.session_id for bundle in found}) == 1
    labels = [label for bundle in found for label in seen(bundle)]
    assert len(labels) == len(set(labels)) == 8
    assert all(not bundle.gaps for bundle in found)


def test_order_is_turned_around_on_request(project):
    run(project, "--fastci-record", "--fastci-reverse").assert_outcomes(passed=2)
    (bundle,) = bundles(project)
    assert list(seen(bundle)) == ["test_lib.py::test_two", "test_lib.py::test_one"]


def test_attempts_of_a_rerun_are_one_capture_with_the_last_outcome(project):
    project.makepyfile(
        test_flaky="""
        import lib
        SEEN = []
        def test_flaky():
            SEEN.append(1)
            lib.scale(1) if len(SEEN) == 1 else lib.add(1, 1)
            assert len(SEEN) == 2
        """
    )
    run(project, "--fastci-record", "--reruns", "2", "test_flaky.py")
    (bundle,) = bundles(project)
    assert seen(bundle) == {"test_flaky.py::test_flaky": {"test_flaky", "scale", "add"}}
    assert [facts.outcome for facts in bundle.runs.values()] == ["passed"]


def test_outcomes_are_those_of_pytest(project):
    project.makepyfile(
        test_outcomes="""
        import pytest
        @pytest.fixture
        def bad(): raise ValueError
        @pytest.fixture
        def bad_end():
            yield
            raise ValueError
        def test_passed(): pass
        def test_failed(): assert False
        def test_skipped(): pytest.skip("x")
        def test_set_up(bad): pass
        def test_teardown(bad_end): pass
        @pytest.mark.xfail
        def test_xfailed(): assert False
        @pytest.mark.xfail
        def test_xpassed(): pass
        """
    )
    run(project, "--fastci-record", "test_outcomes.py")
    (bundle,) = bundles(project)
    outcomes = {
        bundle.captures[number].label.partition("::")[2]: facts.outcome
        for number, facts in bundle.runs.items()
    }
    assert outcomes == {
        "test_passed": "passed",
        "test_failed": "failed",
        "test_skipped": "skipped",
        "test_set_up": "error",
        "test_teardown": "error",
        "test_xfailed": "xfailed",
        "test_xpassed": "xpassed",
    }
    assert all(facts.setup_s is not None for facts in bundle.runs.values())


def test_ids_start_at_the_top_of_the_repository(project):
    subprocess.run(["git", "init", "-q", str(project.path)], check=True)
    folder = project.mkdir("services")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_deep.py").write_text("def test_deep(): pass\n")
    run(project, "--fastci-bundles", "out", "--rootdir", "services", "services/test_deep.py").assert_outcomes(
        passed=1
    )
    (bundle,) = bundles(project, "out")
    assert list(seen(bundle)) == ["services/test_deep.py::test_deep"]
    assert "services/test_deep.py" in {file.path for file in bundle.files.values()}


def test_process_that_leaves_by_the_back_door_has_no_end_mark(project):
    project.makepyfile(test_z="import os\ndef test_z(): os._exit(0)\n")
    run(project, "--fastci-record")
    (bundle,) = bundles(project)
    assert Gap.NO_END_MARK in {gap for gap, _ in bundle.gaps}
    assert set(seen(bundle)) == {"test_lib.py::test_one", "test_lib.py::test_two"}


def test_folder_that_cannot_be_written_stops_no_test(project):
    (project.path / "taken").write_text("a file")
    result = run(project, "--fastci-bundles", "taken/bundles", "-W", "error")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*nothing is recorded: *taken/bundles: no bundle can be written*"])


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="3.12 has other hooks to go to")
def test_profiler_around_pytest_is_left_alone(project):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "cProfile",
            "-o",
            "out.prof",
            "-m",
            "pytest",
            "--fastci-record",
            "-p",
            "no:cacheprovider",
        ],
        cwd=project.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "nothing is recorded: the profile hook is taken" in done.stdout
    assert bundles(project) == []
    assert (project.path / "out.prof").stat().st_size > 0


def test_failure_of_ours_is_a_gap_and_changes_no_outcome(project):
    project.makeconftest(
        """
        import pytest
        class Broken:
            def install(self): pass
            def remove(self): pass
            def opening(self, capture): pass
            def closing(self, capture):
                if capture.label.endswith("test_one"): raise ZeroDivisionError("ours")
        def pytest_sessionstart(session):
            session.config.pluginmanager.get_plugin("fastci-record").collector.watches.append(Broken())
        """
    )
    result = run(project, "--fastci-record", "-W", "error")
    result.assert_outcomes(passed=2)
    (bundle,) = bundles(project)
    gaps = {
        capture.label: capture.gaps
        for capture in bundle.captures.values()
        if capture.kind is CaptureKind.TEST
    }
    assert gaps == {
        "test_lib.py::test_one": ((Gap.RECORDER_FAILED, "ZeroDivisionError: ours"),),
        "test_lib.py::test_two": (),
    }


def test_collection_errors_and_usage_errors_are_pytests_own(project):
    project.makepyfile(test_broken="import nothing_of_this_name\n")
    plain = run(project)
    recorded = run(project, "--fastci-record")
    assert recorded.ret == plain.ret == pytest.ExitCode.INTERRUPTED
    assert run(project, "--fastci-record", "--no-such-option").ret == pytest.ExitCode.USAGE_ERROR


def kill_at_random(project, n_kills: int) -> None:
    """Kill recording sessions at random moments: what is there is whole or says that it is not."""
    project.makepyfile(
        test_many="import lib\n" + "\n".join(f"def test_{n}(): lib.add({n}, 1)" for n in range(300))
    )
    choose = random.Random(4)
    n_torn = 0
    for number in range(n_kills):
        folder = project.path / f"out{number}"
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "--fastci-bundles", str(folder), "-p", "no:cacheprovider"],
            cwd=project.path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # From when it records: before that nothing can be lost.
        until_s = time.monotonic() + 60
        while not list(folder.glob(f"*{SUFFIX}")) and time.monotonic() < until_s and process.poll() is None:
            time.sleep(0.002)
        time.sleep(choose.uniform(0, 0.35))
        process.send_signal(signal.SIGKILL)
        status = process.wait()
        for file in find_bundles([folder]):
            if file.stat().st_size == 0:
                continue  # killed between making the file and its first line: no bundle, and none is read
            bundle = read_bundle(file)
            is_whole = not bundle.gaps
            n_torn += not is_whole
            # Whole only if the process came to its own end, or was killed behind it.
            assert not is_whole or len(bundle.runs) == 302, (status, len(bundle.runs))
            for run_number in bundle.runs:
                capture = bundle.captures[run_number]
                assert capture.codes, capture.label
    assert n_torn


def test_killed_sessions_are_never_read_as_complete(project):
    kill_at_random(project, 6)


@pytest.mark.slow
def test_two_hundred_killed_sessions_are_never_read_as_complete(project):
    kill_at_random(project, 200)

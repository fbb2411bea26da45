"""Processes that tests start, each with the real thing, recorded under the right test or incomplete.

The subject's checks run each function of `work` in a child of one check only: whose record holds it tells
where the child was booked.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import recorded_runs
from interpreters import VERSIONS, python_or_skip

from fastci_ml.records.evidence_kinds import Gap

SUBJECT = Path(__file__).parent / "children_subject"
UNSEEN, KILLED = Gap.CHILD_WITHOUT_RECORD, Gap.NO_END_MARK

# By check: functions that its children ran, and why it is not complete.
CHILDREN: dict[str, tuple[set[str], set[Gap]]] = {
    "subprocess": ({"by_subprocess"}, set()),
    "copied_environment": ({"by_copied_environment"}, set()),
    # What says nothing of us in its environment does not record.
    "own_environment": (set(), {UNSEEN}),
    "module": ({"by_module"}, set()),
    "data_of_a_child": ({"reads_data"}, set()),
    "executable": ({"by_script"}, set()),
    "spawn": ({"by_spawn"}, set()),
    "fork": ({"by_fork"}, set()),
    "forkserver": ({"by_forkserver"}, set()),
    "after_the_forkserver": ({"reads_data"}, set()),
    "pool[fork]": ({"by_pool"}, set()),
    "pool[spawn]": ({"by_pool"}, set()),
    "pool[forkserver]": ({"by_pool"}, set()),
    "executor": ({"by_executor"}, set()),
    "bare_fork": ({"by_bare_fork"}, set()),
    "exit_at_once": ({"by_exit_at_once"}, set()),
    "grandchild": ({"by_grandchild"}, set()),
    # Which processes a shell starts nobody knows; those that record count all the same.
    "shell": ({"by_grandchild_of_shell", "by_untold_task"}, {UNSEEN}),
    "terminated": ({"by_terminated"}, set()),
    # SIGTERM ends a process as ever, unless the settings ask for its record.
    "terminated_in_c": (set(), {KILLED}),
    "killed": (set(), {KILLED}),
    "exec": ({"by_exec"}, set()),
    "posix_spawn": ({"by_posix_spawn"}, set()),
    "asyncio": ({"by_asyncio"}, set()),
    # Code of the program runs between the fork and what it becomes.
    "before_exec": ({"by_subprocess"}, {UNSEEN}),
    "fills_the_cache": ({"remembered", "filled"}, set()),
    "cache_of_a_fork": ({"by_cache", "remembered", "filled"}, set()),
    # What a worker does without saying for which test counts for all that run beside it.
    "told_task[a]": ({"by_task", "by_untold_task"}, set()),
    "told_task[b]": ({"by_task", "by_untold_task"}, set()),
    "no_task_beside_the_worker": ({"by_untold_task", "reads_data"}, set()),
    "untold_task": ({"by_untold_task"}, set()),
}


@pytest.fixture(scope="module", params=VERSIONS)
def run(request, tmp_path_factory):
    python = python_or_skip(request.param)
    folder = tmp_path_factory.mktemp("children")
    root = recorded_runs.make_subject(folder / "repo", SUBJECT)
    pure = recorded_runs.pure_packages(folder / "pure")
    found = recorded_runs.record(root, "-q", "checks_children.py", python=python, path=[pure])
    assert found.status == 0, found.output
    return found


def work_of(run, name):
    return {
        unit.name for unit in run.records[f"checks_children.py::check_{name}"].units if unit.path == "work.py"
    }


@pytest.mark.parametrize("name", CHILDREN)
def test_what_a_child_ran_is_its_test_s(run, name):
    ran, gaps = CHILDREN[name]
    assert work_of(run, name) == ran
    assert run.gaps(f"checks_children.py::check_{name}") == gaps


def test_every_check_was_looked_at(run):
    checks = {node_id.partition("::check_")[2] for node_id in run.records}
    assert checks == {*CHILDREN, "direct"}


def test_files_that_a_child_read_are_its_test_s(run):
    assert "data.json" in {
        seen.path for seen in run.records["checks_children.py::check_data_of_a_child"].reads
    }


def test_program_of_a_child_is_a_root_of_its_test(run):
    assert "child.py" in run.records["checks_children.py::check_subprocess"].roots


def test_processes_are_told_for_a_person(run):
    facts = run.records["checks_children.py::check_subprocess"].facts
    assert len(facts.processes) == 1
    assert facts.processes[0].endswith("child.py by_subprocess")
    assert facts.peak_rss_bytes is None or facts.peak_rss_bytes > 1_000_000


def test_bundle_of_a_child_says_whose_it_is(run):
    (root,) = run.bundles
    assert run.children
    for child in run.children:
        assert child.provenance.parent == root.provenance.bundle_id
        assert child.provenance.session_id == root.provenance.session_id
        assert child.provenance.process.split()[0].isdigit()


def test_sources_are_kept_once_for_all_processes(run):
    packs = list((run.root / ".fastci" / "bundles").glob("*.fastci-sources"))
    kept = [line for pack in packs for line in pack.read_bytes().split(b"\n") if line[40:41] == b" "]
    assert len({line[:40] for line in kept}) == len(kept) == 3


def _record_with(tmp_path, settings, *checks):
    root = recorded_runs.make_subject(tmp_path / "repo", SUBJECT)
    (root / "fastci.toml").write_text(settings)
    return recorded_runs.record(root, "-q", *(f"checks_children.py::check_{name}" for name in checks))


def test_skipped_commands_do_not_record_and_their_tests_are_incomplete(tmp_path):
    run = _record_with(tmp_path, 'children_skipped = ["*child.py by_sub*"]\n', "subprocess", "exit_at_once")
    assert run.gaps("checks_children.py::check_subprocess") == {UNSEEN}
    assert work_of(run, "subprocess") == set()
    assert run.gaps("checks_children.py::check_exit_at_once") == set()


def test_skipped_forks_do_not_record(tmp_path):
    run = _record_with(tmp_path, 'children_skipped = ["*"]\n', "fork", "bare_fork", "spawn")
    assert run.children == []
    for name in ("fork", "bare_fork", "spawn"):
        assert run.gaps(f"checks_children.py::check_{name}") == {UNSEEN}


def test_of_many_processes_so_many_record(tmp_path):
    run = _record_with(tmp_path, "children_limit = 1\n", "executor", "spawn")
    assert len(run.children) == 2
    assert run.gaps("checks_children.py::check_executor") == {UNSEEN}
    assert run.gaps("checks_children.py::check_spawn") == set()


def test_trusted_shell_is_not_asked_for_and_what_it_starts_counts(tmp_path):
    run = _record_with(tmp_path, 'children_trusted = ["sh -c *"]\n', "shell", "subprocess")
    assert run.gaps("checks_children.py::check_shell") == set()
    assert work_of(run, "shell") == {"by_grandchild_of_shell"}
    # Who started it nobody knows, a fixture perhaps: it counts for what comes after as well.
    assert work_of(run, "subprocess") == {"by_subprocess", "by_grandchild_of_shell"}


def test_child_that_cannot_write_runs_all_the_same(tmp_path):
    root = recorded_runs.make_subject(tmp_path / "repo", SUBJECT)
    (root / "conftest.py").write_text(
        "import shutil, pathlib, pytest\n\n"
        "@pytest.fixture(autouse=True)\n"
        "def gone():\n"
        "    folder = pathlib.Path(__file__).parent / '.fastci' / 'bundles'\n"
        "    folder.rename(folder.with_name('kept'))\n"
        "    folder.touch()\n"
        "    yield\n"
        "    folder.unlink()\n"
        "    folder.with_name('kept').rename(folder)\n"
    )
    checks = [f"checks_children.py::check_{name}" for name in ("subprocess", "fork", "spawn")]
    run = recorded_runs.record(root, "-q", *checks)
    assert run.status == 0, run.output
    assert all(run.gaps(check) == {UNSEEN} for check in checks)


TRAPS: dict[str, tuple[set[str], set[Gap]]] = {
    "terminated_while_it_holds_the_interpreter": (set(), {KILLED}),
    "environment_is_a_line_a_variable": (set(), {UNSEEN}),
    "signals_are_the_program_s": (set(), set()),
    "shell_that_becomes_python": ({"by_module"}, {UNSEEN}),
    "python_without_hooks": (set(), {UNSEEN}),
    "exec_in_the_midst_of_an_import": (set(), {KILLED}),
    "exec_that_fails": (set(), {KILLED}),
    "starts_a_daemon": ({"by_server"}, set()),
    "beside_the_daemon": ({"by_server"}, set()),
    "helper_by_name_alone": ({"by_subprocess"}, set()),
    "last": ({"reads_data"}, set()),
}


@pytest.fixture(scope="module", params=VERSIONS)
def trapped(request, tmp_path_factory):
    python = python_or_skip(request.param)
    folder = tmp_path_factory.mktemp("traps")
    root = recorded_runs.make_subject(folder / "repo", SUBJECT)
    (root / "fastci.toml").write_text("")
    pure = recorded_runs.pure_packages(folder / "pure")
    found = recorded_runs.record(root, "-q", "checks_traps.py", python=python, path=[pure])
    assert found.status == 0, found.output
    return found


@pytest.mark.parametrize("name", TRAPS)
def test_traps(trapped, name):
    node_id = f"checks_traps.py::check_{name}"
    ran, gaps = TRAPS[name]
    assert {unit.name for unit in trapped.records[node_id].units if unit.path == "work.py"} == ran
    assert trapped.gaps(node_id) == gaps


def test_forks_that_are_terminated_make_their_test_incomplete(trapped):
    # By when they are, they have a bundle or not.
    gaps = trapped.gaps("checks_traps.py::check_fork_that_is_terminated_in_a_child")
    assert gaps
    assert gaps <= {UNSEEN, KILLED}


def test_exit_that_was_sent_ends_the_worker_or_its_pool_does(trapped):
    assert trapped.gaps("checks_traps.py::check_exit_is_sent_to_another_process") <= {KILLED}


def test_end_by_another_thread_loses_nothing_that_counts_as_complete(trapped):
    record = trapped.records["checks_traps.py::check_function_runs_while_a_thread_ends_the_process"]
    ran = {unit.name for unit in record.units if unit.path == "work.py"}
    assert ran == {"waits", "ends"} or not record.is_complete


def test_profiler_in_a_child_is_a_gap_where_it_takes_the_hook(trapped):
    node_id = "checks_traps.py::check_profiler_in_a_child"
    is_profile = trapped.bundles[0].provenance.backend == "profile"
    assert trapped.gaps(node_id) == ({Gap.SLOT_LOST} if is_profile else set())


def test_told_tasks_are_those_of_tests_of_a_project_below_the_top(tmp_path):
    root = recorded_runs.make_subject(tmp_path / "top" / "project", SUBJECT)
    (root / ".git").rename(tmp_path / "top" / ".git")
    checks = [f"checks_children.py::check_{name}" for name in ("told_task", "no_task_beside_the_worker")]
    run = recorded_runs.record(root, "-q", *checks)
    assert run.status == 0, run.output
    ran = {
        node_id.partition("::check_")[2]: {
            unit.name for unit in record.units if unit.path == "project/work.py"
        }
        for node_id, record in run.records.items()
    }
    assert ran == {
        "told_task[a]": {"by_task"},
        "told_task[b]": {"by_task"},
        "no_task_beside_the_worker": {"reads_data"},
    }

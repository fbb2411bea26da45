from __future__ import annotations

import json
import subprocess

import pytest

from fastci_ml.records.plans import Decision

ALL = ["test_a.py::test_x", "test_a.py::test_y", "test_b.py::test_x", "test_b.py::test_y"]


def test_plan_runs_its_tests_in_its_order_and_leaves_the_others_out(suite):
    plan = suite.plan([ALL[3], ALL[0]], {ALL[1]: Decision.PRUNED, ALL[2]: Decision.UNAFFECTED})
    ran = suite.pytest(f"--fastci-plan={plan}")
    assert (ran.code, ran.order) == (0, [ALL[3], ALL[0]])
    assert "2 passed, 2 deselected" in ran.output
    assert "ran 2 of 4 tests collected, in the order of the plan" in ran.output
    assert "left out by decision: 2 (1 pruned, 1 unaffected), expected 4.0 s" in ran.output
    assert "expected duration of what runs: 3.0 s\n" in ran.output


def test_without_a_plan_nothing_is_said_or_changed(suite):
    ran = suite.pytest()
    assert (ran.code, ran.order) == (0, ALL)
    assert "fastci" not in ran.output.replace("fastci-ml", "").partition("plugins:")[2].partition("\n")[2]


def test_relative_plan_path_is_seen_from_where_pytest_was_started(make_suite):
    suite = make_suite({"sub/test_a.py": "def test_x(): pass\ndef test_y(): pass\n"})
    suite.plan(["sub/test_a.py::test_y"], ["sub/test_a.py::test_x"])
    assert suite.pytest("--fastci-plan=../plan.json", cwd="sub").order == ["test_a.py::test_y"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"head_tree": "0" * 40}, "expected 000000000000"),
        ({"tests": [{"id": "a", "decision": "run", "order": 10**400, "risk": 10**400}]}, "fastci"),
        ({"lane": "\x1b[31m\ud800"}, "expected \\x1b[31m\\ud800"),
    ],
)
def test_plan_that_does_not_hold_runs_everything_in_the_usual_order_and_says_why(suite, changes, said):
    plan = suite.plan([ALL[3]], ALL[:3], **changes)
    ran = suite.pytest(f"--fastci-plan={plan}")
    assert (ran.code, ran.order) == (0, ALL)
    head, _, tail = ran.output.partition("collected 4 items")
    for part in (head, tail):
        assert said in part
        assert "running EVERYTHING" in part


def test_plan_that_does_not_hold_keeps_the_exit_code_of_a_failure(make_suite):
    suite = make_suite({"test_a.py": "def test_x(): assert 0\n"})
    ran = suite.pytest("--fastci-plan=nowhere.json")
    assert ran.code == pytest.ExitCode.TESTS_FAILED


def test_edited_tracked_file_runs_everything_and_an_untracked_one_does_not(suite):
    plan = suite.plan([ALL[0]], ALL[1:])
    (suite.root / "note.txt").write_text("x")
    assert suite.pytest(f"--fastci-plan={plan}").order == ALL[:1]
    (suite.root / "test_b.py").write_text("def test_x(): pass\n")
    ran = suite.pytest(f"--fastci-plan={plan}")
    assert ran.order == ALL[:3]
    assert "tracked files are changed and not committed" in ran.output


def test_outside_of_a_repository_everything_runs(suite, tmp_path):
    plan = suite.plan([ALL[0]], ALL[1:])
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "test_a.py").write_text("def test_x(): pass\n")
    ran = suite.pytest(f"--fastci-plan={plan}", "--rootdir=.", cwd="../outside")
    assert (ran.code, ran.order) == (0, ["test_a.py::test_x"])
    assert "running EVERYTHING" in ran.output


def test_unknown_test_runs_first_and_is_counted(suite):
    plan = suite.plan([ALL[1], ALL[0]], [ALL[2]])
    ran = suite.pytest(f"--fastci-plan={plan}")
    assert ran.order == [ALL[3], ALL[1], ALL[0]]
    assert f"unknown to the plan, run first: 1 test\n  {ALL[3]}\n" in ran.output


def test_planned_test_that_is_not_collected_is_named(suite):
    plan = suite.plan([ALL[0], "test_gone.py::test_z[\x1b]"], ALL[1:])
    ran = suite.pytest(f"--fastci-plan={plan}")
    assert (
        "missing: 1 test that the plan runs, not collected here\n  test_gone.py::test_z[\\x1b]\n"
        in ran.output
    )


def test_thousand_missing_tests_are_counted_not_listed(suite):
    plan = suite.plan([ALL[0], *(f"t.py::test_{i:04}" for i in range(1000))], ALL[1:])
    ran = suite.pytest(f"--fastci-plan={plan}")
    assert "missing: 1000 tests" in ran.output
    assert "  and 980 more\n" in ran.output
    assert "t.py::test_0020" not in ran.output


def test_selection_of_the_user_combines_with_the_plan(suite):
    plan = suite.plan([ALL[3], ALL[1], ALL[2]], [ALL[0]])
    ran = suite.pytest(f"--fastci-plan={plan}", "-k", "test_y")
    assert ran.order == [ALL[3], ALL[1]]
    assert "missing: 1 test that the plan runs, deselected by the command line or a plugin" in ran.output
    by_path = suite.pytest(f"--fastci-plan={plan}", "test_b.py")
    assert by_path.order == [ALL[3], ALL[2]]
    assert f"not collected here\n  {ALL[1]}\n" in by_path.output


def test_plan_that_leaves_out_everything_exits_zero_with_a_message(suite):
    plan = suite.plan([], ALL)
    ran = suite.pytest(f"--fastci-plan={plan}")
    assert (ran.code, ran.order) == (0, [])
    assert "nothing to run: the plan leaves out all 4 tests collected, on purpose" in ran.output


@pytest.mark.parametrize(
    "arguments", [("-k", "nothing_like_it"), ("--ignore=test_a.py", "--ignore=test_b.py")]
)
def test_nothing_collected_for_another_reason_stays_exit_code_5(suite, arguments):
    plan = suite.plan([], ALL)
    assert suite.pytest(f"--fastci-plan={plan}", *arguments).code == pytest.ExitCode.NO_TESTS_COLLECTED


def test_empty_plan_without_tests_does_not_hide_unknown_ones(suite):
    assert suite.pytest(f"--fastci-plan={suite.plan([])}").order == ALL


@pytest.mark.parametrize("dist", ["load", "loadscope", "loadfile", "worksteal", "loadgroup"])
def test_xdist_runs_the_plan_and_reports_once(suite, dist):
    plan = suite.plan([ALL[3], ALL[1], ALL[0], "test_z.py::test_gone"], [ALL[2]])
    ran = suite.pytest(f"--fastci-plan={plan}", "-n2", f"--dist={dist}")
    assert (ran.code, sorted(ran.order)) == (0, [ALL[0], ALL[1], ALL[3]])
    assert ran.output.count("ran 3 of 4 tests collected") == 1
    assert ran.output.count("not collected here\n  test_z.py::test_gone") == 1


@pytest.mark.parametrize("dist", ["load", "loadscope"])
def test_one_xdist_worker_keeps_the_order_of_the_plan(suite, dist):
    plan = suite.plan([ALL[2], ALL[1], ALL[0]], [ALL[3]])
    expected = [ALL[2], ALL[1], ALL[0]]
    assert suite.pytest(f"--fastci-plan={plan}", "-n1", f"--dist={dist}").order == expected


def test_xdist_empty_plan_exits_zero_and_refused_plan_runs_everything(suite):
    plan = suite.plan([], ALL)
    empty = suite.pytest(f"--fastci-plan={plan}", "-n2")
    assert (empty.code, empty.order) == (0, [])
    assert "leaves out all 4 tests" in empty.output
    plan = suite.plan([], ALL, lane="another")
    refused = suite.pytest(f"--fastci-plan={plan}", "-n2")
    assert (refused.code, sorted(refused.order)) == (0, ALL)
    assert "running EVERYTHING" in refused.output


def test_xdist_group_suffix_does_not_make_a_test_unknown(make_suite):
    suite = make_suite(
        {
            "test_a.py": "import pytest\n@pytest.mark.xdist_group('g')\ndef test_x(): assert 0\n"
            "@pytest.mark.xdist_group('g')\n@pytest.mark.parametrize('p', ['u@v'])\ndef test_y(p): pass\n"
        }
    )
    plan = suite.plan(["test_a.py::test_y[u@v]"], ["test_a.py::test_x"])
    ran = suite.pytest(f"--fastci-plan={plan}", "-n2", "--dist=loadgroup")
    assert ran.order == ["test_a.py::test_y[u@v]"]
    assert "unknown to the plan" not in ran.output
    shadow = suite.pytest(f"--fastci-plan={plan}", "-n2", "--dist=loadgroup", "--fastci-shadow")
    assert "of which 1 failed\n  test_a.py::test_x\n" in shadow.output


def test_shadow_runs_all_in_the_usual_order_and_names_what_would_have_been_missed(make_suite):
    suite = make_suite({"test_a.py": "def test_x(): assert 0\ndef test_y(): assert 0\ndef test_z(): pass\n"})
    ids = [f"test_a.py::test_{c}" for c in "xyz"]
    plan = suite.plan([ids[1]], [ids[2], ids[0]])
    for extra in ([], ["-n2"]):
        ran = suite.pytest(f"--fastci-plan={plan}", "--fastci-shadow", *extra)
        assert (ran.code, sorted(ran.order)) == (1, ids)
        assert extra or ran.order == ids
        said = f"the plan would have left out 2 tests, expected 4.0 s, of which 1 failed\n  {ids[0]}\n"
        assert said in ran.output
        assert f"  {ids[1]}\n" not in ran.output


def test_shadow_without_a_plan_is_a_usage_error(suite):
    ran = suite.pytest("--fastci-shadow")
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    assert "--fastci-plan PATH" in ran.output


def test_rerun_that_passes_is_no_miss_in_shadow_mode(make_suite):
    suite = make_suite(
        {"test_a.py": "tries = []\ndef test_x():\n    tries.append(1)\n    assert len(tries) > 1\n"}
    )
    plan = suite.plan([], ["test_a.py::test_x"])
    ran = suite.pytest(f"--fastci-plan={plan}", "--fastci-shadow", "--reruns=2")
    assert ran.code == 0
    assert "of which 0 failed" in ran.output


def test_reruns_follow_the_plan(make_suite):
    suite = make_suite(
        {
            "test_a.py": "tries = []\ndef test_x():\n    tries.append(1)\n    assert len(tries) > 1\n"
            "def test_y(): assert 0\n"
        }
    )
    plan = suite.plan(["test_a.py::test_x"], ["test_a.py::test_y"])
    ran = suite.pytest(f"--fastci-plan={plan}", "--reruns=2")
    assert ran.code == 0
    assert "1 passed, 1 deselected, 1 rerun" in ran.output


def test_root_of_pytest_below_the_repository_root(make_suite):
    body = "def test_x(): pass\ndef test_y(): pass\n"
    suite = make_suite({"pkg/pytest.ini": "[pytest]\n", "pkg/tests/test_a.py": body, "test_b.py": body})
    plan = suite.plan(["pkg/tests/test_a.py::test_y"], ["pkg/tests/test_a.py::test_x", "test_b.py::test_x"])
    ran = suite.pytest(f"--fastci-plan={plan}", cwd="pkg")
    assert ran.order == ["tests/test_a.py::test_y"]
    outside = suite.pytest(f"--fastci-plan={plan}", ".", "../test_b.py", "-c", "pytest.ini", cwd="pkg")
    # pytest names files above its root by no path at all: nobody knows such a test, so it runs.
    assert outside.order == ["::test_x", "::test_y", "tests/test_a.py::test_y"]


def test_plan_outside_of_the_checkout_moves_the_root_of_pytest_and_is_followed_all_the_same(suite, tmp_path):
    plan = suite.plan([ALL[3], ALL[0]], ALL[1:3])
    moved = plan.rename(tmp_path / "plan.json")
    # Before plugins are loaded pytest takes the value of an unknown option for a path to collect from.
    ran = suite.pytest("--fastci-plan", str(moved))
    assert ran.order == [f"repo/{ALL[3]}", f"repo/{ALL[0]}"]
    assert "unknown" not in ran.output


def test_ids_with_separators_escapes_and_no_ascii_are_matched_as_printed(make_suite):
    params = ["p::q", "a/b", "a\\b", "é", "x[1]", "", "\x1b", "@g"]
    suite = make_suite(
        {"test_a.py": f"import pytest\n@pytest.mark.parametrize('p', {params!r})\ndef test_x(p): pass\n"}
    )
    ids = suite.pytest().order
    assert len(ids) == len(params)
    plan = suite.plan(ids[:0:-2], ids[::2])
    ran = suite.pytest(f"--fastci-plan={plan}")
    assert ran.order == ids[:0:-2]
    assert "unknown" not in ran.output
    assert "missing" not in ran.output


_ITEMS = {
    "mod.py": '"""\n>>> 1 + 1\n2\n"""\ndef f():\n    """\n    >>> f()\n    """\n',
    "notes.txt": ">>> 2 + 2\n4\n",
    "test_unit.py": "import unittest\nclass A(unittest.TestCase):\n    def test_p(self): pass\n"
    "    def test_q(self): pass\n",
    "conftest.py": "import pytest\nclass Row(pytest.Item):\n    def runtest(self): pass\n"
    "class Sheet(pytest.File):\n    def collect(self):\n"
    "        for name in self.path.read_text().split():\n            yield Row.from_parent(self, name=name)\n"
    "def pytest_collect_file(parent, file_path):\n    if file_path.suffix == '.rows':\n"
    "        return Sheet.from_parent(parent, path=file_path)\n",
    "table.rows": "one two three",
}


def test_doctests_unittest_classes_and_foreign_items_follow_the_plan(make_suite):
    suite = make_suite(_ITEMS)
    flags = ["--doctest-modules", "--doctest-glob=*.txt"]
    ids = suite.pytest(*flags).order
    assert len(ids) == 8
    kept = [
        "table.rows::three",
        "test_unit.py::A::test_q",
        "mod.py::mod",
        "table.rows::one",
        "test_unit.py::A::test_p",
    ]
    plan = suite.plan(kept, [node_id for node_id in ids if node_id not in kept])
    ran = suite.pytest(f"--fastci-plan={plan}", *flags)
    assert (ran.code, ran.order) == (0, [kept[0], kept[3], kept[1], kept[4], kept[2]])


def test_conftest_that_raises_is_reported_as_without_a_plan(make_suite):
    suite = make_suite({"conftest.py": "1 / 0\n", "test_a.py": "def test_x(): pass\n"})
    plan = suite.plan([], ["test_a.py::test_x"])
    assert suite.pytest(f"--fastci-plan={plan}").code == suite.pytest().code != 0


def test_module_that_cannot_be_imported_is_never_turned_into_success(make_suite):
    suite = make_suite({"test_a.py": "1 / 0\n", "test_b.py": "def test_x(): pass\n"})
    plan = suite.plan([], ["test_a.py::test_x", "test_b.py::test_x"])
    assert suite.pytest(f"--fastci-plan={plan}").code == pytest.ExitCode.INTERRUPTED
    assert suite.pytest(f"--fastci-plan={plan}", "--continue-on-collection-errors").code == 1


def test_plugin_of_others_that_sorts_is_overruled_by_the_plan(make_suite):
    suite = make_suite(
        {
            "conftest.py": "import pytest\n@pytest.hookimpl(trylast=True)\n"
            "def pytest_collection_modifyitems(items):\n    items.sort(key=lambda i: i.name)\n",
            "test_a.py": "def test_x(): pass\ndef test_y(): pass\ndef test_z(): pass\n",
        }
    )
    order = [f"test_a.py::test_{c}" for c in "zxy"]
    assert suite.pytest(f"--fastci-plan={suite.plan(order)}").order == order


def test_failure_of_ours_while_applying_the_plan_runs_everything_unchanged(make_suite):
    suite = make_suite(
        {
            "conftest.py": "def pytest_deselected(items):\n    raise RuntimeError('another hook')\n",
            "test_a.py": "def test_x(): pass\ndef test_y(): pass\n",
        }
    )
    plan = suite.plan(["test_a.py::test_y"], ["test_a.py::test_x"])
    ran = suite.pytest(f"--fastci-plan={plan}")
    assert (ran.code, ran.order) == (0, ["test_a.py::test_x", "test_a.py::test_y"])
    assert "fastci failed, please report it: RuntimeError: another hook" in ran.output
    assert "running EVERYTHING" in ran.output


def test_plan_json_with_keys_of_the_future_is_followed(suite):
    plan = suite.plan([ALL[1]], [ALL[0], *ALL[2:]])
    document = json.loads(plan.read_text())
    document["new"] = document["tests"][0]["new"] = {"key": 1}
    plan.write_text(json.dumps(document))
    assert suite.pytest(f"--fastci-plan={plan}").order == [ALL[1]]


def test_stepwise_never_takes_a_test_for_passed_that_the_plan_put_later(make_suite):
    body = "def test_x(): assert 0\ndef test_y(): pass\ndef test_z(): assert 0\n"
    suite = make_suite({"test_a.py": body})
    ids = [f"test_a.py::test_{c}" for c in "xyz"]
    first = suite.pytest(f"--fastci-plan={suite.plan(ids[::-1])}", "--stepwise", has_cache=True)
    assert (first.code, first.order) == (pytest.ExitCode.INTERRUPTED, ids[:1])
    assert "in the usual order, for --stepwise" in first.output
    (suite.root / "test_a.py").write_text(body.replace("assert 0", "pass", 1))
    subprocess.run(["git", "commit", "-aqm", "fix x"], cwd=suite.root, check=True)
    second = suite.pytest(f"--fastci-plan={suite.plan(ids[::-1])}", "--stepwise", has_cache=True)
    assert (second.code, second.outcomes) == (
        pytest.ExitCode.INTERRUPTED,
        {ids[0]: "passed", ids[1]: "passed", ids[2]: "failed"},
    )


# What pytest-dependency does: a test that depends on one which has not passed yet is skipped, and the run is
# a success.
_DEPENDENCY = """
import pytest
passed = set()
def pytest_configure(config):
    config.addinivalue_line("markers", "dependency(depends=()): as in pytest-dependency")
def pytest_runtest_setup(item):
    mark = item.get_closest_marker("dependency")
    if mark and not passed.issuperset(mark.kwargs.get("depends", ())):
        pytest.skip("depends on what has not passed")
def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        passed.add(report.nodeid.rpartition(":")[2])
"""


def test_marked_dependencies_keep_the_usual_order_so_that_none_is_skipped(make_suite):
    suite = make_suite(
        {
            "conftest.py": _DEPENDENCY,
            "test_a.py": "import pytest\n@pytest.mark.dependency()\ndef test_x(): pass\n"
            "@pytest.mark.dependency(depends=['test_x'])\ndef test_y(): assert 0\n",
        }
    )
    ran = suite.pytest(f"--fastci-plan={suite.plan(ALL[1::-1])}")
    assert (ran.code, ran.order) == (pytest.ExitCode.TESTS_FAILED, ALL[:2])
    assert "in the usual order, for tests marked 'dependency' (pytest-dependency)" in ran.output

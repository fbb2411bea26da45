"""What `read_change` makes of every base that a CI has named: a known change, or a full run with a code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fastci_ml.cli.app import main
from fastci_ml.errors import GitError
from fastci_ml.planning.change import Change, read_change
from fastci_ml.sources.git.comparison import MAX_STARTS
from fastci_ml.sources.git.fetch import FetchLimits
from fastci_ml.sources.git.repository import Repository


def change_of(root: Path, base: str, head: str = "HEAD", **options: object) -> Change:
    with Repository(root) as repository:
        return read_change(repository, base, head, **options)


def codes(change: Change) -> list[str]:
    assert change.is_known is not bool(change.full_run)
    return [reason.code for reason in change.full_run]


@pytest.fixture
def repo(make_repo):
    repo = make_repo()
    repo.write("a.py", "x\n")
    repo.commit()
    repo.write("a.py", "y\n")
    repo.commit()
    return repo


@pytest.mark.parametrize(
    ("base", "code"),
    [
        ("0" * 40, "zero_base"),
        ("0" * 64, "zero_base"),
        ("", "no_base"),
        ("  ", "no_base"),
        ("1" * 40, "unknown_base"),
        ("origin/main", "unknown_base"),
        ("HEAD~9", "unknown_base"),
        ("HEAD:a.py", "unknown_base"),
        ("HEAD^{tree}", "unknown_base"),
        ("--all", "unknown_base"),
        ("a\nb", "unknown_base"),
    ],
)
def test_base_that_names_no_commit_is_a_full_run_with_its_code(repo, base, code):
    change = change_of(repo.root, base)
    assert codes(change) == [code]
    assert change.change_set.head == repo.git("rev-parse", "HEAD")
    assert change.change_set.head_tree == repo.git("rev-parse", "HEAD^{tree}")
    assert change.paths == {"a.py"}
    assert "what helps: " in change.full_run[0].text
    assert len(change.notes) == 1


def test_base_that_a_force_push_took_away_is_named(repo):
    orphan = repo.git("commit-tree", "-m", "gone", "HEAD^{tree}")
    (repo.root / ".git" / "objects" / orphan[:2] / orphan[2:]).unlink()
    change = change_of(repo.root, orphan, limits=FetchLimits())
    assert codes(change) == ["unknown_base"]
    assert orphan in change.full_run[0].text
    assert "has no remote" in change.full_run[0].text


def test_unrelated_history_is_a_full_run(repo):
    repo.git("checkout", "-q", "--orphan", "other")
    repo.commit("another root")
    assert codes(change_of(repo.root, "main")) == ["no_merge_base"]


def test_base_that_contains_the_head_is_a_full_run(repo):
    """A push back to an older commit: what the base had and the head lacks is no empty change."""
    change = change_of(repo.root, "HEAD", "HEAD~1")
    assert codes(change) == ["base_is_newer"]
    assert "~1" in change.full_run[0].text


def test_base_that_is_the_head_is_an_empty_change_and_says_so(repo):
    for base in ("HEAD", "main", repo.git("rev-parse", "HEAD")):
        change = change_of(repo.root, base)
        assert codes(change) == []
        assert change.change_set.files == ()
        assert change.notes == ("the change is empty: base and head are the same commit",)


def test_commit_without_a_difference_is_an_empty_change_and_says_so(repo):
    repo.commit("nothing")
    change = change_of(repo.root, "HEAD~1")
    assert codes(change) == []
    assert change.notes == ("the change is empty: no file differs",)


def test_tag_object_is_the_commit_that_it_points_to(repo):
    repo.git("tag", "-a", "-m", "x", "v1", "HEAD~1")
    repo.git("tag", "-a", "-m", "x", "v2", "v1")
    for base in ("v1", "v2", repo.git("rev-parse", "v2")):
        change = change_of(repo.root, base)
        assert [file.path for file in change.change_set.files] == ["a.py"]
        assert change.change_set.base == repo.git("rev-parse", "HEAD~1")


def test_tag_of_a_file_is_no_base(repo):
    repo.git("tag", "blob", "HEAD:a.py")
    assert codes(change_of(repo.root, "blob")) == ["unknown_base"]


def test_histories_merged_back_and_forth_count_what_differs_from_any_merge_base(make_repo):
    """Criss-cross: against one merge base alone the file that the other brought would be missing or alone."""
    repo = make_repo()
    repo.write("root", "x\n")
    repo.commit()
    repo.git("checkout", "-q", "-b", "left")
    repo.write("left.py", "x\n")
    left = repo.commit()
    repo.git("checkout", "-q", "-b", "right", "main")
    repo.write("right.py", "x\n")
    right = repo.commit()
    repo.merge(left)
    repo.write("head.py", "x\n")
    repo.commit()
    repo.git("checkout", "-q", "left")
    repo.merge(right)
    change = change_of(repo.root, "left", "right")
    assert codes(change) == []
    assert change.change_set.base in (left, right)
    assert [file.path for file in change.change_set.files] == ["head.py", "left.py", "right.py"]
    assert any("2 merge bases" in note for note in change.notes)


def test_more_merge_bases_than_say_anything_are_a_full_run(make_repo):
    repo = make_repo()
    repo.commit()
    tips = []
    for i in range(MAX_STARTS + 1):
        repo.git("checkout", "-q", "-b", f"b{i}", "main")
        tips.append(repo.commit(f"tip {i}"))
    parents = [word for tip in tips for word in ("-p", tip)]
    one = repo.git("commit-tree", "-m", "one", *parents, "HEAD^{tree}")
    other = repo.git("commit-tree", "-m", "other", *parents, "HEAD^{tree}")
    change = change_of(repo.root, one, other)
    assert codes(change) == ["many_merge_bases"]
    assert str(MAX_STARTS + 1) in change.full_run[0].text


def test_octopus_merge_is_what_it_brings_to_its_base(make_repo):
    repo = make_repo()
    repo.write("root", "x\n")
    base = repo.commit()
    for name in ("one", "two", "three"):
        repo.git("checkout", "-q", "-b", name, base)
        repo.write(f"{name}.py", "x\n")
        repo.commit()
    repo.git("checkout", "-q", "main")
    repo.git("merge", "-q", "--no-ff", "-m", "octopus", "one", "two", "three")
    change = change_of(repo.root, "HEAD^1")
    assert [file.path for file in change.change_set.files] == ["one.py", "three.py", "two.py"]
    assert [file.path for file in change_of(repo.root, "two").change_set.files] == ["one.py", "three.py"]


def test_damaged_repository_is_a_full_run_where_the_head_is_whole(repo):
    tree = repo.git("rev-parse", "HEAD~1^{tree}")
    (repo.root / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    change = change_of(repo.root, "HEAD~1")
    assert codes(change) == ["missing_objects"]


def test_head_that_is_not_there_is_an_error(repo):
    with pytest.raises(GitError, match="absent"):
        change_of(repo.root, "HEAD", "absent")


def test_project_in_a_folder_of_the_repository_has_its_own_paths(repo):
    repo.write("packages/core/pyproject.toml", "")
    repo.write("packages/core/core.py", "")
    repo.commit()
    change = change_of(repo.root / "packages" / "core", "HEAD~1")
    assert change.root == "packages/core"
    assert change.paths == {"pyproject.toml", "core.py"}
    # The change itself is the whole repository's: what lies beside the project can break it.
    assert change.change_set.files[0].path == "packages/core/core.py"


# --- through the command ------------------------------------------------------------------------------------


@pytest.fixture
def clone(make_repo, tmp_path, monkeypatch):
    upstream = make_repo("upstream")
    upstream.write("tests/test_a.py", "def test_a():\n    pass\n")
    upstream.write(".gitignore", ".fastci/\n")
    upstream.commit()
    for i in range(6):
        upstream.write("pkg/a.py", f"{i}\n")
        upstream.commit()
    upstream.git("clone", "-q", "--depth=1", f"file://{upstream.root}", str(tmp_path / "clone"))
    (tmp_path / "clone" / "ids.txt").write_text("tests/test_a.py::test_a\n")
    monkeypatch.chdir(tmp_path / "clone")
    return upstream


RANK = ("rank", "--lane", "cpu", "--collected", "ids.txt")


def of_change(plan):
    """Reasons for a full run but for those of a project without a history."""
    others = {"no_history", "no_model", "low_join_rate"}
    return [reason for reason in plan["full_run"] if reason["code"] not in others]


def test_rank_in_a_shallow_clone_deepens_it_and_knows_the_change(clone):
    """case 39 through the real program."""
    base = clone.git("rev-parse", "HEAD~3")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("fastci-ml")), *RANK, "--base", base],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(Path("plan.json").read_text())
    assert of_change(plan) == []
    assert plan["base"] == base
    assert "deepened by 50 commits from origin" in done.stderr


def test_rank_that_may_not_fetch_makes_a_full_run_and_says_why(clone):
    assert main([*RANK, "--base", clone.git("rev-parse", "HEAD~3"), "--deepen", "0"]) == 0
    plan = json.loads(Path("plan.json").read_text())
    (reason,) = of_change(plan)
    assert reason["code"] == "unknown_base"
    assert "the clone is shallow" in reason["text"]
    assert "git fetch origin" in reason["text"]
    assert [test["decision"] for test in plan["tests"]] == ["run"]


def test_rank_offline_in_a_shallow_clone_makes_a_full_run(clone):
    base = clone.git("rev-parse", "HEAD~3")
    subprocess.run(["git", "remote", "set-url", "origin", "file:///nowhere/at/all"], check=True)
    assert main([*RANK, "--base", base]) == 0
    (reason,) = of_change(json.loads(Path("plan.json").read_text()))
    assert reason["code"] == "unknown_base"
    assert "fetching did not help" in reason["text"]


def test_rank_for_a_new_branch_makes_a_full_run(clone):
    assert main([*RANK, "--base", "0" * 40]) == 0
    plan = json.loads(Path("plan.json").read_text())
    assert [reason["code"] for reason in of_change(plan)] == ["zero_base"]

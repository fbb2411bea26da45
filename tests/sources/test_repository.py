from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastci_ml.errors import GitError
from fastci_ml.records.changes import ChangeStatus, FileChange, Hunk
from fastci_ml.sources.git.repository import Repository

TEN_LINES = "".join(f"line {i}\n" for i in range(10))


def by_path(files) -> dict[str, FileChange]:
    return {file.path: file for file in files}


def words(files) -> list[tuple[str, str, str]]:
    return [(file.status.value, file.old_path, file.path) for file in files]


# --- what a change is -------------------------------------------------------------------------------------


def test_changes_names_status_paths_and_lines_of_every_file(make_repo):
    repo = make_repo()
    repo.write("gone.py", "x\n")
    repo.write("kept.py", "a\nb\n")
    repo.write("pkg/old.py", TEN_LINES)
    base = repo.commit()
    repo.git("rm", "-q", "gone.py")
    repo.write("kept.py", "a\nB\nc\n")
    repo.git("mv", "pkg/old.py", "moved.py")
    repo.write("moved.py", TEN_LINES + "one more\n")
    repo.write("blob.bin", b"\0\1\2")
    repo.write("src/new.py", "1\n2\n3\n")
    head = repo.commit()

    change = Repository(repo.root).changes(base, head)

    assert (change.base, change.head) == (base, head)
    assert change.head_tree == repo.git("rev-parse", "HEAD^{tree}")
    assert words(change.files) == [
        ("A", "", "blob.bin"),
        ("D", "", "gone.py"),
        ("M", "", "kept.py"),
        ("R", "pkg/old.py", "moved.py"),
        ("A", "", "src/new.py"),
    ]
    counts = {file.path: (file.n_added, file.n_deleted) for file in change.files}
    assert math.isnan(counts["blob.bin"][0])
    assert math.isnan(counts["blob.bin"][1])
    assert counts["gone.py"] == (0, 1)
    assert counts["kept.py"] == (2, 1)
    assert counts["moved.py"] == (1, 0)
    assert counts["src/new.py"] == (3, 0)


def test_changes_without_counts_says_nan_and_the_same_files(make_repo):
    repo = make_repo()
    repo.write("a", "1\n")
    base = repo.commit()
    repo.write("a", "2\n")
    head = repo.commit()
    (file,) = Repository(repo.root).changes(base, head, with_counts=False).files
    assert (file.path, file.status) == ("a", ChangeStatus.MODIFIED)
    assert math.isnan(file.n_added)


def test_names_that_are_not_ascii_or_not_utf8_survive(make_repo):
    repo = make_repo()
    repo.commit()
    names = [
        "src/é.py",
        "a b\tc",
        'q"uote',
        "new\nline",
        "日本/x",
        b"bad\xff.py".decode("utf-8", "surrogateescape"),
    ]
    for name in names:
        repo.write(name, "x\n")
    repo.commit()
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    assert [file.path for file in change.files] == sorted(names)
    assert all(file.n_added == 1 for file in change.files)
    assert all(len(source.hunks(change, file)) == 1 for file in change.files)


def test_type_change_and_mode_change_are_told(make_repo):
    repo = make_repo()
    repo.write("link", "x\n")
    tool = repo.write("tool", "x\n")
    repo.commit()
    (repo.root / "link").unlink()
    (repo.root / "link").symlink_to("tool")
    tool.chmod(0o755)
    repo.commit()
    files = Repository(repo.root).changes("HEAD~1", "HEAD").files
    assert words(files) == [("T", "", "link"), ("M", "", "tool")]


def test_change_starts_at_the_merge_base_not_at_the_tip_of_the_base(make_repo):
    repo = make_repo()
    repo.write("shared", "x\n")
    fork = repo.commit()
    repo.git("checkout", "-q", "-b", "topic")
    repo.write("topic.py", "x\n")
    repo.commit()
    repo.git("checkout", "-q", "main")
    repo.write("trunk.py", "x\n")
    repo.commit()

    source = Repository(repo.root)
    change = source.changes("main", "topic")

    assert source.merge_base("main", "topic") == fork
    assert change.base == fork
    assert words(change.files) == [("A", "", "topic.py")]


def test_head_that_the_base_contains_changes_nothing(make_repo):
    repo = make_repo()
    repo.write("a", "x\n")
    first = repo.commit()
    repo.write("a", "y\n")
    second = repo.commit()
    assert Repository(repo.root).changes(second, first).files == ()


def test_empty_base_compares_with_nothing(make_repo):
    repo = make_repo()
    repo.write("a", "x\n")
    first = repo.commit()
    source = Repository(repo.root)
    change = source.changes("", first)
    assert change.base == ""
    assert words(change.files) == [("A", "", "a")]
    assert source.hunks(change, change.files[0]) == (
        Hunk(old_start=0, old_length=0, new_start=1, new_length=1),
    )


def test_empty_base_works_in_a_sha256_repository(make_repo, tmp_path):
    repo = make_repo()
    repo.git("init", "-q", "--object-format=sha256", str(tmp_path / "wide"))
    repo.root = tmp_path / "wide"
    repo.write("a", "x\n")
    head = repo.commit()
    assert len(head) == 64
    assert words(Repository(repo.root).changes("", head).files) == [("A", "", "a")]


# --- what commits did -------------------------------------------------------------------------------------


def test_commit_changes_gives_each_commit_in_the_order_asked(make_repo):
    repo = make_repo()
    repo.write("a", "x\n")
    first = repo.commit()
    repo.git("mv", "a", "b")
    second = repo.commit()
    empty = repo.commit()
    found = list(Repository(repo.root).commit_changes([empty, "HEAD~2", second, first]))
    assert [sha for sha, _ in found] == [empty, first, second, first]
    assert [words(files) for _, files in found] == [[], [("A", "", "a")], [("R", "a", "b")], [("A", "", "a")]]


def test_a_merge_commit_did_what_it_brought_to_its_first_parent(make_repo):
    repo = make_repo()
    repo.write("a", "x\n")
    repo.commit()
    repo.git("checkout", "-q", "-b", "topic")
    repo.write("topic.py", "x\n")
    repo.commit()
    repo.git("checkout", "-q", "main")
    repo.write("trunk.py", "x\n")
    repo.commit()
    merge = repo.merge("topic")
    ((sha, files),) = Repository(repo.root).commit_changes([merge])
    assert sha == merge
    assert words(files) == [("A", "", "topic.py")]


def test_commit_changes_of_more_commits_than_a_batch(make_repo, monkeypatch):
    monkeypatch.setattr("fastci_ml.sources.git.repository._BATCH", 3)
    repo = make_repo()
    shas = []
    for i in range(8):
        repo.write(f"f{i}", "x\n")
        shas.append(repo.commit())
    found = list(Repository(repo.root).commit_changes(iter(shas)))
    assert [sha for sha, _ in found] == shas
    assert [files[0].path for _, files in found] == [f"f{i}" for i in range(8)]


# --- hunks ------------------------------------------------------------------------------------------------


def test_hunks_are_the_changed_ranges_without_context(make_repo):
    repo = make_repo()
    lines = TEN_LINES.splitlines(keepends=True)
    repo.write("a", TEN_LINES)
    repo.commit()
    # Line 2 replaced, a line inserted after the fifth, the last two deleted; text that looks like a header.
    repo.write("a", "".join([lines[0], "@@ -9,9 +9,9 @@\n", *lines[2:5], "new\n", *lines[5:8]]))
    repo.commit()
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    assert source.hunks(change, change.files[0]) == (
        Hunk(old_start=2, old_length=1, new_start=2, new_length=1),
        Hunk(old_start=5, old_length=0, new_start=6, new_length=1),
        Hunk(old_start=9, old_length=2, new_start=9, new_length=0),
    )


def test_hunks_of_a_rename_are_those_of_the_pair(make_repo):
    repo = make_repo()
    repo.write("old", TEN_LINES)
    repo.commit()
    repo.git("mv", "old", "new")
    repo.write("new", TEN_LINES.replace("line 4", "line four"))
    repo.commit()
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    assert source.hunks(change, change.files[0]) == (
        Hunk(old_start=5, old_length=1, new_start=5, new_length=1),
    )


def test_hunks_of_a_file_named_like_a_pattern_are_its_own(make_repo):
    repo = make_repo()
    repo.write("*.py", "a\n")
    repo.write("b.py", "a\n")
    repo.commit()
    repo.write("*.py", "b\n")
    repo.write("b.py", "b\nc\nd\n")
    repo.commit()
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    assert source.hunks(change, by_path(change.files)["*.py"]) == (
        Hunk(old_start=1, old_length=1, new_start=1, new_length=1),
    )


def test_hunks_of_a_binary_file_are_empty(make_repo):
    repo = make_repo()
    repo.write("a", b"\0\1")
    repo.commit()
    repo.write("a", b"\0\2")
    repo.commit()
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    assert source.hunks(change, change.files[0]) == ()


def test_hunk_lengths_sum_to_the_counted_lines(make_repo):
    repo = make_repo()
    text = [f"{i % 7}\n" for i in range(200)]
    repo.write("a", "".join(text))
    repo.commit()
    repo.write("a", "".join(line for i, line in enumerate(text) if i % 11) + "end")
    repo.commit()
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    (file,) = change.files
    found = source.hunks(change, file)
    assert sum(hunk.new_length for hunk in found) == file.n_added
    assert sum(hunk.old_length for hunk in found) == file.n_deleted


# --- agreement with git's own words -----------------------------------------------------------------------

names = st.sampled_from(["a", "b/c", "b/d.py", "é", "x y"])
contents = st.sampled_from([TEN_LINES, TEN_LINES + "tail\n", "short\n", "", "\0binary"])
trees = st.dictionaries(names, contents, max_size=5)


@given(before=trees, after=trees)
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_changes_agree_with_git_name_status(make_repo, tmp_path_factory, before, after):
    repo = make_repo(tmp_path_factory.mktemp("any") / "repo")
    for tree in (before, after):
        repo.git("rm", "-rq", "--ignore-unmatch", "--", ".")
        for name, text in tree.items():
            repo.write(name, text)
        repo.commit()
    said = repo.git("diff", "--name-status", "-z", "-M", "HEAD~1", "HEAD").rstrip("\0")
    tokens = iter(said.split("\0") if said else [])
    expected = []
    for status in tokens:
        old = next(tokens) if status[0] == "R" else ""
        expected.append((status[0], old, next(tokens)))
    source = Repository(repo.root)
    files = source.changes("HEAD~1", "HEAD").files
    assert words(files) == sorted(expected, key=lambda file: file[2])
    ((_, same),) = source.commit_changes(["HEAD"])
    assert words(same) == words(files)


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "revision", ["nope", "0" * 40, "HEAD~99", "-x", "--output=x", "", "HEAD\nHEAD", "main:a"]
)
def test_unknown_revision_is_named(make_repo, revision):
    repo = make_repo()
    repo.write("a", "x\n")
    repo.commit()
    with pytest.raises(GitError, match=r"is no revision|is named") as caught:
        Repository(repo.root).changes("HEAD", revision)
    assert repr(revision) in str(caught.value)


def test_folder_without_repository_is_refused(make_repo, tmp_path):
    make_repo()
    with pytest.raises(GitError, match="not a git repository") as caught:
        Repository(tmp_path)
    assert caught.value.exit_code == 4
    assert caught.value.hint


def test_missing_folder_is_not_taken_for_the_current_one(make_repo, monkeypatch):
    repo = make_repo()
    repo.commit()
    monkeypatch.chdir(repo.root)
    with pytest.raises(GitError, match="no such folder"):
        Repository(repo.root / "gone")


def test_unrelated_histories_have_no_merge_base(make_repo):
    repo = make_repo()
    repo.write("a", "x\n")
    repo.commit()
    repo.git("checkout", "-q", "--orphan", "other")
    repo.commit("another root")
    source = Repository(repo.root)
    assert source.merge_base("main", "other") is None
    with pytest.raises(GitError, match="no common ancestor of main and other") as caught:
        source.changes("main", "other")
    assert "fetch" in caught.value.hint


def test_shallow_clone_is_named_as_the_cause(make_repo, tmp_path):
    repo = make_repo()
    repo.write("a", "x\n")
    first = repo.commit()
    repo.write("a", "y\n")
    repo.commit()
    repo.git("clone", "-q", "--depth=1", f"file://{repo.root}", str(tmp_path / "shallow"))
    with pytest.raises(GitError, match="the clone is shallow") as caught:
        Repository(tmp_path / "shallow").changes(first, "HEAD")
    assert caught.value.hint == f"git fetch origin {first}"


# --- the target's configuration ---------------------------------------------------------------------------


def test_programs_that_the_repository_configures_are_not_run(make_repo, tmp_path):
    repo = make_repo()
    repo.write(".gitattributes", "*.txt diff=evil\n")
    repo.write("a.txt", "x\n")
    repo.commit()
    repo.write("a.txt", "y\n")
    repo.commit()
    trap, sprung = tmp_path / "trap.sh", tmp_path / "sprung"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\n")
    trap.chmod(0o755)
    for key in ("diff.external", "diff.evil.command", "diff.evil.textconv", "core.fsmonitor", "core.pager"):
        repo.git("config", key, str(trap))
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    assert len(source.hunks(change, change.files[0])) == 1
    assert len(list(source.commit_changes(["HEAD", "HEAD~1"]))) == 2
    assert not sprung.exists()
    repo.git("diff", "HEAD~1", "HEAD")
    assert sprung.exists(), "the trap works where nobody guards against it"


def test_settings_of_the_repository_do_not_change_the_answer(make_repo, monkeypatch):
    repo = make_repo()
    repo.write("old", TEN_LINES * 3)
    repo.write("é", TEN_LINES)
    repo.commit()
    repo.git("mv", "old", "new")
    repo.write("é", TEN_LINES.replace("line 1\n", "").replace("line 4\n", ""))
    repo.commit()

    def answer():
        source = Repository(repo.root)
        change = source.changes("HEAD~1", "HEAD")
        return change, [source.hunks(change, file) for file in change.files]

    plain = answer()
    for key, value in {
        "diff.renames": "false",
        "diff.renameLimit": "1",
        "diff.noprefix": "true",
        "diff.algorithm": "patience",
        "diff.context": "9",
        "diff.interHunkContext": "9",
        "diff.orderFile": "nowhere",
        "diff.relative": "true",
        "color.ui": "always",
        "core.quotePath": "false",
    }.items():
        repo.git("config", key, value)
    monkeypatch.setenv("GIT_DIFF_OPTS", "-u9")
    assert answer() == plain


def test_replaced_commits_are_not_followed(make_repo):
    repo = make_repo()
    repo.write("a", "x\n")
    first = repo.commit()
    tree = repo.git("rev-parse", "HEAD^{tree}")
    repo.write("a", "y\n")
    second = repo.commit()
    repo.git("replace", first, second)
    assert Repository(repo.root).tree(first) == tree


def test_worktree_folder_with_a_git_file_is_a_repository(make_repo, tmp_path):
    repo = make_repo()
    head = repo.commit()
    repo.git("worktree", "add", "-q", str(tmp_path / "linked"))
    assert (tmp_path / "linked" / ".git").is_file()
    with Repository(tmp_path / "linked") as source:
        assert source.resolve("HEAD") == head


def test_module_is_imported_without_a_git_program_as_a_git_error(tmp_path):
    code = (
        "from fastci_ml.errors import GitError\n"
        "try:\n    import fastci_ml.sources.git.repository\n"
        "except GitError as error:\n    print(error.exit_code, error.hint)\n"
    )
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("4 install git")

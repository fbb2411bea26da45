"""Submodules, linked worktrees and other places where `.git` is not a folder (case 46, last part)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fastci_ml.errors import GitError
from fastci_ml.planning.change import read_change
from fastci_ml.sources.git.repository import Repository

ALLOW = ("-c", "protocol.file.allow=always")


def words(files) -> list[tuple[str, str, str]]:
    return [(file.status.value, file.old_path, file.path) for file in files]


@pytest.fixture
def lib(make_repo):
    lib = make_repo("lib")
    lib.write("src/core.py", "1\n")
    lib.write("setup.py", "x\n")
    lib.commit("first")
    lib.write("src/core.py", "1\n2\n")
    lib.write("src/new.py", "x\n")
    lib.git("mv", "setup.py", "build.py")
    lib.commit("second")
    return lib


@pytest.fixture
def repo(make_repo, lib):
    """A repository whose submodule `libs/lib` is at the first commit of `lib`."""
    repo = make_repo()
    repo.write("app.py", "x\n")
    repo.git(*ALLOW, "submodule", "--quiet", "add", str(lib.root), "libs/lib")
    repo.git("-C", "libs/lib", "checkout", "-q", "HEAD~1")
    repo.commit("start")
    return repo


def bump(repo) -> None:
    repo.git("-C", "libs/lib", "checkout", "-q", "main")
    repo.write("app.py", "y\n")
    repo.commit("bump")


def test_changed_gitlink_is_expanded_into_the_files_of_the_submodule(repo, lib):
    """case 46: two-dot difference inside, paths from the top of the superproject."""
    bump(repo)
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    assert words(change.files) == [
        ("M", "", "app.py"),
        ("M", "", "libs/lib"),
        ("R", "libs/lib/setup.py", "libs/lib/build.py"),
        ("M", "", "libs/lib/src/core.py"),
        ("A", "", "libs/lib/src/new.py"),
    ]
    link = change.files[1]
    assert link.is_submodule
    assert not link.is_whole_tree
    assert (link.old_id, link.new_id) == (lib.git("rev-parse", "main~1"), lib.git("rev-parse", "main"))
    core = change.files[3]
    assert (core.n_added, core.n_deleted) == (1, 0)
    (hunk,) = source.hunks(change, core)
    assert (hunk.new_start, hunk.new_length) == (2, 1)
    assert change.notes == ()


def test_a_submodule_that_settings_hide_is_seen_all_the_same(repo):
    """`ignore = all` in .gitmodules, a tracked file, makes git's own difference silent."""
    repo.git("config", "-f", ".gitmodules", "submodule.libs/lib.ignore", "all")
    repo.commit("hide")
    repo.git("-C", "libs/lib", "checkout", "-q", "main")
    repo.git("add", "-f", "libs/lib")
    repo.git("commit", "-qm", "bump")
    repo.git("config", "diff.ignoreSubmodules", "all")
    assert repo.git("diff-tree", "-r", "--name-only", "HEAD~1", "HEAD") == ""
    source = Repository(repo.root)
    assert [file.path for file in source.changes("HEAD~1", "HEAD").files][:2] == [
        "libs/lib",
        "libs/lib/build.py",
    ]
    ((_, files),) = source.commit_changes(["HEAD"])
    assert words(files) == [("M", "", "libs/lib")]


@pytest.mark.parametrize(
    "how", ["not cloned", "folder gone", "old commit missing", "broken", "pointed outside"]
)
def test_submodule_that_cannot_be_asked_changes_as_a_whole(repo, lib, tmp_path, how):
    """case 46: absent, damaged or incomplete, whatever is below it counts as changed."""
    bump(repo)
    root, folder = repo.root, repo.root / "libs" / "lib"
    match how:
        case "not cloned":
            repo.git("clone", "-q", str(repo.root), str(tmp_path / "clone"))
            root = tmp_path / "clone"
        case "folder gone":
            shutil.rmtree(folder)
        case "old commit missing":
            shutil.rmtree(folder)
            repo.git("clone", "-q", "--depth=1", f"file://{lib.root}", str(folder))
        case "broken":
            (folder / ".git").write_text("gitdir: /nowhere\n")
        case "pointed outside":
            (folder / ".git").write_text("gitdir: ../../.git\n")  # the superproject's own
    change = Repository(root).changes("HEAD~1", "HEAD")
    assert words(change.files) == [("M", "", "app.py"), ("M", "", "libs/lib")]
    assert change.files[1].is_whole_tree
    assert change.touches("libs/lib/any/file.py")
    assert not change.touches("libs/library.py")
    (note,) = change.notes
    assert note.startswith("submodule libs/lib: everything below it counts as changed: ")
    if how in ("not cloned", "folder gone"):
        assert "is not checked out; what helps: git submodule update --init libs/lib" in note


def test_shell_variables_of_a_hook_do_not_lead_into_the_wrong_repository(repo, monkeypatch):
    bump(repo)
    monkeypatch.setenv("GIT_DIR", str(repo.root / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(repo.root))
    change = Repository(repo.root).changes("HEAD~1", "HEAD")
    assert change.files[1].is_whole_tree
    assert "GIT_DIR" in change.notes[0]


def test_added_submodule_adds_its_files_and_a_removed_one_changes_as_a_whole(repo, lib):
    source = Repository(repo.root)
    added = source.changes("", "HEAD")
    assert words(added.files)[1:] == [
        ("A", "", "app.py"),
        ("A", "", "libs/lib"),
        ("A", "", "libs/lib/setup.py"),
        ("A", "", "libs/lib/src/core.py"),
    ]
    repo.git("rm", "-q", "libs/lib")
    repo.commit("remove")
    removed = source.changes("HEAD~1", "HEAD")
    assert words(removed.files) == [("M", "", ".gitmodules"), ("D", "", "libs/lib")]
    assert removed.files[1].is_whole_tree


def test_moved_submodule_renames_each_of_its_files(repo):
    repo.git("mv", "libs/lib", "vendor")
    repo.commit("move")
    change = Repository(repo.root).changes("HEAD~1", "HEAD")
    assert words(change.files) == [
        ("M", "", ".gitmodules"),
        ("R", "libs/lib", "vendor"),
        ("R", "libs/lib/setup.py", "vendor/setup.py"),
        ("R", "libs/lib/src/core.py", "vendor/src/core.py"),
    ]
    assert all(file.is_content_same for file in change.files[1:])


def test_submodule_that_replaces_a_folder_of_the_same_name(repo, lib):
    repo.write("own/setup.py", "x\n")
    repo.commit("folder")
    repo.git("rm", "-rq", "own")
    repo.git(*ALLOW, "submodule", "--quiet", "add", str(lib.root), "own")
    repo.commit("submodule")
    change = Repository(repo.root).changes("HEAD~1", "HEAD")
    by_path = {(file.status.value, file.path) for file in change.files}
    assert {("A", "own"), ("A", "own/build.py"), ("D", "own/setup.py")} <= by_path


def test_new_url_alone_changes_the_file_that_holds_it(repo):
    repo.git("config", "-f", ".gitmodules", "submodule.libs/lib.url", "https://example.org/other.git")
    repo.commit("url")
    change = Repository(repo.root).changes("HEAD~1", "HEAD")
    assert words(change.files) == [("M", "", ".gitmodules")]


def test_nested_submodules_are_expanded_as_deep_as_they_are_there(repo, lib, make_repo):
    inner = make_repo("inner")
    inner.write("deep.py", "1\n")
    inner.commit()
    lib.git(*ALLOW, "submodule", "--quiet", "add", str(inner.root), "in ner")
    lib.commit("nest")
    repo.git("-C", "libs/lib", "fetch", "-q", "origin")
    repo.git("-C", "libs/lib", "checkout", "-q", "origin/main")
    repo.commit("bump")
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    (link,) = [file for file in change.files if file.path == "libs/lib/in ner"]
    assert link.is_whole_tree, "the nested one is not checked out"
    assert change.touches("libs/lib/in ner/deep.py")
    repo.git(*ALLOW, "submodule", "--quiet", "update", "--init", "--recursive")
    change = source.changes("HEAD~1", "HEAD")
    assert ("A", "", "libs/lib/in ner/deep.py") in words(change.files)
    assert not any(file.is_whole_tree for file in change.files)
    assert change.notes == ()


def test_tests_of_a_submodule_that_is_checked_out_are_there(repo, tmp_path):
    """Or a plan would take them for gone."""
    assert Repository(repo.root).paths("HEAD") == {
        ".gitmodules",
        "app.py",
        "libs/lib",
        "libs/lib/setup.py",
        "libs/lib/src/core.py",
    }
    repo.git("clone", "-q", str(repo.root), str(tmp_path / "clone"))
    assert Repository(tmp_path / "clone").paths("HEAD") == {".gitmodules", "app.py", "libs/lib"}


def test_submodule_is_a_repository_of_its_own(repo, lib):
    """case 46: in a submodule `.git` is a file."""
    bump(repo)
    folder = repo.root / "libs" / "lib"
    assert (folder / ".git").is_file()
    with Repository(folder) as source:
        change = read_change(source, "HEAD~1", "HEAD")
    assert change.root == ""
    assert [file.path for file in change.change_set.files] == ["build.py", "src/core.py", "src/new.py"]


@pytest.mark.parametrize(
    "how", ["worktree", "worktree of a submodule", "separate git dir", "bare", "alternates"]
)
def test_git_folders_in_other_places_give_the_same_change(repo, tmp_path, how):
    # case 46: further inputs of the kind, `.git` a file or not there at all.
    bump(repo)
    other = tmp_path / "other"
    match how:
        case "worktree":
            repo.git("worktree", "add", "-q", str(other), "HEAD")
        case "worktree of a submodule":
            repo.git("-C", "libs/lib", "worktree", "add", "-q", "--detach", str(other), "HEAD")
        case "separate git dir":
            repo.git("clone", "-q", f"--separate-git-dir={tmp_path}/git dir", str(repo.root), str(other))
        case "bare":
            repo.git("clone", "-q", "--bare", str(repo.root), str(other))
        case "alternates":
            repo.git("clone", "-q", "--shared", str(repo.root), str(other))
    with Repository(other) as source:
        change = read_change(source, "HEAD~1", "HEAD")
    assert change.is_known
    found = [file.path for file in change.change_set.files]
    if how == "worktree of a submodule":
        assert found == ["build.py", "src/core.py", "src/new.py"]
    else:
        assert found == ["app.py", "libs/lib"]
        assert change.change_set.files[1].is_whole_tree
    assert how == "bare" or (other / ".git").exists()


def test_repository_of_another_owner_is_refused_with_what_to_type(repo, monkeypatch):
    bump(repo)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(GitError, match="dubious ownership") as caught:
        Repository(repo.root)
    assert caught.value.hint == f"git config --global --add safe.directory {repo.root}"
    # Trusted itself, and not its submodule.
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(repo.root))
    change = Repository(repo.root).changes("HEAD~1", "HEAD")
    assert change.files[1].is_whole_tree
    assert f"git config --global --add safe.directory {repo.root}/libs/lib" in change.notes[0]


def test_index_file_of_a_hook_does_not_disturb(repo, monkeypatch):
    bump(repo)
    monkeypatch.setenv("GIT_INDEX_FILE", str(Path(repo.root) / ".git" / "next-index"))
    assert len(Repository(repo.root).changes("HEAD~1", "HEAD").files) == 5
    done = subprocess.run(["git", "status"], cwd=repo.root, check=False, capture_output=True)
    assert done.returncode == 0

from __future__ import annotations

import pytest

from fastci_ml.errors import GitError
from fastci_ml.sources.worktree import read_worktree


@pytest.fixture
def repo(make_repo):
    repo = make_repo()
    repo.write("pkg/a.py", "x\n")
    repo.commit()
    return repo


def test_clean_checkout_names_head_and_tree(repo):
    found = read_worktree(repo.root)
    assert found.head == repo.git("rev-parse", "HEAD")
    assert found.tree == repo.git("rev-parse", "HEAD^{tree}")
    assert not found.is_dirty


def test_any_folder_of_the_checkout_will_do(repo):
    assert read_worktree(repo.root / "pkg") == read_worktree(repo.root)


def test_untracked_files_do_not_make_it_dirty(repo):
    repo.write("build/out.o", "x\n")
    assert not read_worktree(repo.root).is_dirty


@pytest.mark.parametrize("how", ["edited", "staged", "deleted", "mode", "intent to add"])
def test_tracked_difference_makes_it_dirty(repo, how):
    file = repo.root / "pkg" / "a.py"
    if how == "deleted":
        file.unlink()
    elif how == "mode":
        file.chmod(0o755)
    elif how == "intent to add":
        repo.write("new", "x\n")
        repo.git("add", "-N", "new")
    else:
        file.write_text("y\n")
        if how == "staged":
            repo.git("add", "pkg/a.py")
    assert read_worktree(repo.root).is_dirty


def test_submodule_at_another_commit_is_dirty_even_where_settings_hide_it(repo, make_repo):
    inner = make_repo("inner")
    inner.commit()
    second = inner.commit("second")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.root), "sub")
    repo.commit()
    assert not read_worktree(repo.root).is_dirty
    repo.git("config", "submodule.sub.ignore", "all")
    repo.git("-C", "sub", "checkout", "-q", f"{second}~1")
    assert read_worktree(repo.root).is_dirty


def test_reading_does_not_write_the_index(repo):
    index = repo.root / ".git" / "index"
    (repo.root / "pkg" / "a.py").touch()
    before = index.read_bytes()
    read_worktree(repo.root)
    assert index.read_bytes() == before


def test_monitor_that_the_repository_configures_is_not_run(repo, tmp_path):
    trap, sprung = tmp_path / "trap.sh", tmp_path / "sprung"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\n")
    trap.chmod(0o755)
    repo.git("config", "core.fsmonitor", str(trap))
    read_worktree(repo.root)
    assert not sprung.exists()
    repo.git("status")
    assert sprung.exists(), "the trap works where nobody guards against it"


def test_no_repository_no_commit_and_no_folder_are_errors_with_a_hint(make_repo, tmp_path):
    empty = make_repo()
    for root in (tmp_path, empty.root, tmp_path / "gone"):
        with pytest.raises(GitError) as caught:
            read_worktree(root)
        assert str(root) in str(caught.value)
        assert caught.value.hint


def test_missing_git_program_is_an_error(repo, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="cannot run git"):
        read_worktree(repo.root)

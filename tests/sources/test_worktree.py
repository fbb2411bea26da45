from __future__ import annotations

import hashlib
import os

import pytest

from fastci_ml.errors import GitError
from fastci_ml.sources.git.worktree import read_worktree


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


# --- Git LFS without git-lfs --------------------------------------------------------------------------------

CONTENT = b"weights" * 100


@pytest.fixture
def lfs(repo, tmp_path):
    """Large files as `git lfs` checks them out: pointers in the repository, contents in the folder."""
    # Makes pointers as git-lfs does, which need not be installed, and leaves a witness.
    clean = tmp_path / "clean"
    clean.write_text(
        f"#!/bin/sh\n: > {tmp_path}/ran\ncat > {tmp_path}/content\n"
        "printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%s\\nsize %s\\n' "
        f"$(sha256sum < {tmp_path}/content | cut -d' ' -f1) $(wc -c < {tmp_path}/content)\n"
    )
    clean.chmod(0o755)
    repo.git("config", "filter.lfs.clean", str(clean))
    repo.git("config", "filter.lfs.required", "true")
    repo.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    for i in range(3):
        repo.write(f"{i}.bin", CONTENT + bytes([i]))
    repo.commit()
    # What a checkout within the same second leaves: git cannot tell from the times whether a file changed.
    for i in range(3):
        os.utime(repo.root / f"{i}.bin", ns=(0, i))
    (tmp_path / "ran").unlink()
    return repo


def test_contents_that_their_pointers_stand_for_are_clean(lfs, tmp_path):
    assert lfs.git("show", "HEAD:1.bin").startswith("version https://git-lfs")
    assert not read_worktree(lfs.root).is_dirty
    assert not (tmp_path / "ran").exists()
    assert lfs.git("status", "--porcelain", "-uno") == ""
    assert (tmp_path / "ran").exists(), "git itself runs the filter"


def test_pointers_that_were_left_as_they_are_are_clean(lfs):
    """What a checkout with GIT_LFS_SKIP_SMUDGE has."""
    pointer = lfs.write("1.bin", lfs.git("show", "HEAD:1.bin") + "\n")
    lfs.git("-c", "filter.lfs.clean=", "-c", "filter.lfs.required=false", "add", "1.bin")
    os.utime(pointer, ns=(0, 9))
    assert not read_worktree(lfs.root).is_dirty


@pytest.mark.parametrize("how", ["other content", "longer", "mode", "link", "gone", "staged", "other file"])
def test_anything_else_about_a_large_file_is_dirty(lfs, how):
    file = lfs.root / "1.bin"
    match how:
        case "other content":
            file.write_bytes(CONTENT + b"\x09")
        case "longer":
            file.write_bytes(CONTENT + b"\x01more")
        case "mode":
            file.chmod(0o755)
        case "link":
            file.unlink()
            file.symlink_to("2.bin")
        case "gone":
            file.unlink()
        case "staged":
            file.write_bytes(b"short")
            lfs.git("add", "1.bin")
        case "other file":
            (lfs.root / "pkg" / "a.py").write_text("y\n")
    assert read_worktree(lfs.root).is_dirty


def test_pointer_with_extensions_vouches_for_nothing(lfs):
    digest = hashlib.sha256(CONTENT).hexdigest()
    pointer = (
        "version https://git-lfs.github.com/spec/v1\n"
        f"ext-0-foo sha256:{digest}\noid sha256:{digest}\nsize {len(CONTENT)}\n"
    )
    lfs.git("config", "filter.lfs.clean", "cat")
    lfs.write("1.bin", pointer)
    lfs.commit()
    lfs.write("1.bin", CONTENT)
    assert read_worktree(lfs.root).is_dirty


# --- submodules and other places ----------------------------------------------------------------------------


@pytest.fixture
def nested(repo, make_repo):
    """A submodule in a submodule, both checked out."""
    allow = ("-c", "protocol.file.allow=always")
    deep, inner = make_repo("deep"), make_repo("inner")
    deep.write("d.py", "x\n")
    deep.commit()
    inner.write("i.py", "x\n")
    inner.git(*allow, "submodule", "--quiet", "add", str(deep.root), "deep")
    inner.commit()
    repo.git(*allow, "submodule", "--quiet", "add", str(inner.root), "sub")
    repo.git(*allow, "submodule", "--quiet", "update", "--init", "--recursive")
    repo.commit()
    return repo


@pytest.mark.parametrize("path", ["sub/i.py", "sub/deep/d.py"])
def test_edited_file_of_a_submodule_makes_it_dirty_however_deep(nested, path):
    assert not read_worktree(nested.root).is_dirty
    nested.write("sub/deep/untracked", "x\n")
    assert not read_worktree(nested.root).is_dirty
    nested.write(path, "y\n")
    assert read_worktree(nested.root).is_dirty


def test_submodule_that_is_not_checked_out_is_clean(nested, tmp_path):
    nested.git("clone", "-q", str(nested.root), str(tmp_path / "clone"))
    assert not read_worktree(tmp_path / "clone").is_dirty


def test_variables_of_a_hook_speak_of_the_superproject_alone(nested, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(nested.root / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(nested.root))
    assert not read_worktree(nested.root).is_dirty
    nested.write("sub/i.py", "y\n")
    assert read_worktree(nested.root).is_dirty


@pytest.mark.parametrize("how", ["worktree", "separate git dir", "submodule"])
def test_where_git_is_a_file_the_tree_is_read_all_the_same(nested, tmp_path, how):
    """case 46, its last part."""
    other = tmp_path / "other"
    match how:
        case "worktree":
            nested.git("worktree", "add", "-q", str(other), "HEAD")
        case "separate git dir":
            nested.git("clone", "-q", f"--separate-git-dir={tmp_path}/git dir", str(nested.root), str(other))
        case "submodule":
            other = nested.root / "sub"
    assert (other / ".git").is_file()
    found = read_worktree(other)
    assert found.top == other
    assert not found.is_dirty
    assert (found.tree == nested.git("rev-parse", "HEAD^{tree}")) is (how != "submodule")


def test_names_that_are_not_utf8_are_read(repo):
    name = os.fsdecode(b"new\nline \xff.py")
    repo.write(name, "x\n")
    repo.commit()
    assert not read_worktree(repo.root).is_dirty
    repo.write(name, "y\n")
    assert read_worktree(repo.root).is_dirty

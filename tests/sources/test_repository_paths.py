"""Names as trees hold them, and what happened to the files behind them (cases 41 and 42)."""

from __future__ import annotations

import subprocess

import pytest

from fastci_ml.records.changes import ChangeStatus, FileChange
from fastci_ml.sources.git.diff_records import RENAME_LIMIT
from fastci_ml.sources.git.repository import Repository

TEXT = "".join(f"line {i} of a text that is long enough\n" for i in range(30))

NAMES = [
    "src/é.py",
    b"src/bad\xff.py".decode("utf-8", "surrogateescape"),
    b"latin-1/\xe9\xe8.py".decode("utf-8", "surrogateescape"),
    "tab\there",
    "new\nline",
    "carriage\rreturn",
    'quo"te',
    "back\\slash",
    "-dash",
    "--output=x",
    ":(glob)**",
    ":/top",
    ":!not",
    "*.py",
    "[a]?",
    "trailing ",
    " leading",
    "dots...",
    "{a => b}",
    "a => b",
    "cafe\u0301.py",
    "caf\u00e9.py",
    "Case.py",
    "case.py",
    "\u202eright-to-left",
    "emoji-\U0001f600",
    "\x01control\x7f",
    "HEAD",
    "main",
    "x" * 255,
    "/".join(["deep" * 20] * 20),
]


def words(files) -> list[tuple[str, str, str]]:
    return [(file.status.value, file.old_path, file.path) for file in files]


@pytest.fixture
def repo(make_repo):
    return make_repo()


def changed(repo) -> tuple[FileChange, ...]:
    return Repository(repo.root).changes("HEAD~1", "HEAD").files


# --- case 41: names -----------------------------------------------------------------------------------------


def test_every_name_comes_back_as_the_tree_holds_it(repo):
    """case 41 (`src/é.py`, `src/bad<0xff>.py`) and a good many more of the kind, all in one change."""
    repo.commit()
    for name in NAMES:
        repo.write(name, "x\n")
    repo.commit()
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    assert [file.path for file in change.files] == sorted(NAMES)
    assert all(file.n_added == 1 for file in change.files)
    assert source.paths("HEAD") == set(NAMES)


def test_lines_of_a_file_of_any_name_are_its_own(repo):
    for i, name in enumerate(NAMES):
        repo.write(name, f"{i}\n{TEXT}")
    repo.commit()
    for i, name in enumerate(NAMES):
        repo.write(name, f"{i}\n{TEXT}" + "more\n" * (i + 1))
    repo.commit()
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    n_lines = {file.path: [hunk.new_length for hunk in source.hunks(change, file)] for file in change.files}
    assert n_lines == {name: [i + 1] for i, name in enumerate(NAMES)}


def test_a_name_that_no_file_system_would_take_is_told(repo):
    """A tree can hold what no checkout can: a name of 300,000 characters."""
    repo.write("a", "x\n")
    repo.commit()
    name = "long" * 75_000
    blob = repo.git("rev-parse", "HEAD:a")
    record = f"100644 blob {blob}\t{name}\0".encode()
    made = subprocess.run(
        ["git", "mktree", "-z"], cwd=repo.root, input=record, capture_output=True, check=True
    )
    head = repo.git("commit-tree", "-p", "HEAD", "-m", "x", made.stdout.decode().strip())
    assert words(Repository(repo.root).changes("HEAD", head).files) == [("R", "a", name)]


def test_the_order_is_that_of_the_names_not_that_of_the_settings(repo):
    repo.commit()
    for name in ("b", "a/x", "a-b", "a.b"):
        repo.write(name, name)
    repo.commit()
    assert [file.path for file in changed(repo)] == ["a-b", "a.b", "a/x", "b"]


# --- case 42: renames ---------------------------------------------------------------------------------------


def test_pure_rename_keeps_the_old_path_for_the_history_and_the_new_one_new(repo):
    """case 42 as written: `git mv big.py new.py`, which numstat abbreviates."""
    repo.write("src/big.py", TEXT)
    repo.commit()
    repo.git("mv", "src/big.py", "src/new.py")
    repo.commit()
    (file,) = changed(repo)
    assert words([file]) == [("R", "src/big.py", "src/new.py")]
    assert file.paths == ("src/big.py", "src/new.py")
    assert file.is_content_same
    assert not file.is_mode_only
    assert (file.n_added, file.n_deleted) == (0, 0)
    assert repo.git("diff", "--numstat", "HEAD~1") == "0\t0\tsrc/{big.py => new.py}"


def test_rename_with_an_edit_has_both_paths_and_its_lines(repo):
    # case 42: another input of the kind.
    repo.write("old.py", TEXT)
    repo.commit()
    repo.git("mv", "old.py", "pkg.py")
    repo.write("pkg.py", TEXT + "more\n")
    repo.commit()
    (file,) = changed(repo)
    assert words([file]) == [("R", "old.py", "pkg.py")]
    assert not file.is_content_same
    assert (file.n_added, file.n_deleted) == (1, 0)


def test_renamed_folder_renames_each_of_its_files(repo):
    # case 42: another input of the kind.
    for i in range(5):
        repo.write(f"old/sub/{i}.py", f"{TEXT}{i}\n")
    repo.commit()
    repo.git("mv", "old", "new")
    repo.commit()
    assert words(changed(repo)) == [("R", f"old/sub/{i}.py", f"new/sub/{i}.py") for i in range(5)]


def test_two_files_that_changed_places_are_both_modified(repo):
    repo.write("a.py", TEXT)
    repo.write("b.py", TEXT.replace("line", "row"))
    repo.commit()
    repo.git("mv", "a.py", "t")
    repo.git("mv", "b.py", "a.py")
    repo.git("mv", "t", "b.py")
    repo.commit()
    assert words(changed(repo)) == [("M", "", "a.py"), ("M", "", "b.py")]


def test_rename_in_case_alone_and_between_two_spellings_of_a_letter(repo):
    repo.write("readme.py", TEXT)
    repo.write("cafe\u0301.py", TEXT + "x")
    repo.commit()
    repo.git("mv", "readme.py", "README.py")
    repo.git("mv", "cafe\u0301.py", "caf\u00e9.py")
    repo.commit()
    assert words(changed(repo)) == [("R", "readme.py", "README.py"), ("R", "cafe\u0301.py", "caf\u00e9.py")]


def test_copy_is_a_new_file_whatever_the_settings_say(repo):
    repo.git("config", "diff.renames", "copies")
    repo.write("a.py", TEXT)
    repo.commit()
    repo.write("b.py", TEXT)
    repo.write("a.py", TEXT + "edit\n")
    repo.commit()
    assert words(changed(repo)) == [("M", "", "a.py"), ("A", "", "b.py")]


def test_rename_of_a_name_with_arrows_and_braces(repo):
    repo.write("{a => b}.py", TEXT)
    repo.commit()
    repo.git("mv", "{a => b}.py", "dir => x.py")
    repo.commit()
    assert words(changed(repo)) == [("R", "{a => b}.py", "dir => x.py")]


def test_more_renames_than_git_looks_for_are_told_as_such(repo):
    """Renames with edits of more files than the limit: each is a deletion and an addition, and a note."""
    n_files = RENAME_LIMIT + 1
    lines = []
    for commit, folder, end in (("one", "old", "a"), ("two", "new", "b")):
        lines += [
            "commit refs/heads/main",
            "committer A <a@b> 1700000000 +0000",
            f"data {len(commit)}",
            commit,
        ]
        lines += ["deleteall"]
        for i in range(n_files):
            text = f"{i} {end}"
            lines += [f"M 644 inline {folder}/{i}{end}.py", f"data {len(text)}", text]
    stream = "\n".join([*lines, ""]).encode()
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repo.root, check=True, input=stream)
    change = Repository(repo.root).changes("main~1", "main", with_counts=False)
    assert {file.status for file in change.files} == {ChangeStatus.ADDED, ChangeStatus.DELETED}
    assert len(change.files) == 2 * n_files
    assert any("look for renames" in note for note in change.notes)


# --- types and modes ----------------------------------------------------------------------------------------


def test_executable_bit_alone_is_a_change_of_mode(repo):
    tool = repo.write("tool.py", TEXT)
    other = repo.write("other.py", TEXT + "x\n")
    repo.commit()
    tool.chmod(0o755)
    other.chmod(0o755)
    other.write_text(TEXT + "y\n")
    repo.commit()
    edited, mode = changed(repo)
    assert (mode.path, mode.old_mode, mode.new_mode) == ("tool.py", "100644", "100755")
    assert mode.is_mode_only
    assert (edited.path, edited.is_mode_only) == ("other.py", False)


def test_file_link_folder_and_submodule_in_each_others_place(repo, make_repo):
    for name in ("file-to-link", "file-to-folder", "target", "other"):
        repo.write(name, f"{name}\n")
    repo.write("folder-to-file/x", "folder\n")
    (repo.root / "link").symlink_to("target")
    repo.commit()
    for name in ("file-to-link", "file-to-folder", "link"):
        (repo.root / name).unlink()
    repo.git("rm", "-rq", "folder-to-file")
    (repo.root / "file-to-link").symlink_to("target")
    repo.write("file-to-folder/y", "new\n")
    repo.write("folder-to-file", "new too\n")
    (repo.root / "link").symlink_to("other")
    repo.commit()
    files = {file.path: file for file in changed(repo)}
    assert {path: file.status.value for path, file in files.items()} == {
        "file-to-folder": "D",
        "file-to-folder/y": "A",
        "file-to-link": "T",
        "folder-to-file": "A",
        "folder-to-file/x": "D",
        "link": "M",
    }
    assert files["link"].is_symlink, "its target is another: what it leads to has changed"
    assert files["file-to-link"].is_symlink
    assert not files["folder-to-file"].is_symlink


def test_modes_and_ids_are_empty_where_there_is_no_file(repo):
    repo.write("gone", "x\n")
    repo.commit()
    repo.git("rm", "-q", "gone")
    repo.write("new", "y\n")
    repo.commit()
    gone, new = changed(repo)
    assert (gone.new_mode, gone.new_id, new.old_mode, new.old_id) == ("", "", "", "")
    assert gone.old_id == repo.git("rev-parse", "HEAD~1:gone")
    assert new.new_id == repo.git("rev-parse", "HEAD:new")
    assert not gone.is_content_same

"""What happened inside of files: line ends, binary contents, attributes, damage, size (cases 44 and 46)."""

from __future__ import annotations

import math
import resource
import subprocess
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastci_ml.records.changes import FileChange
from fastci_ml.sources.git.repository import Repository

LF = "".join(f"x{i} = {i}\n" for i in range(8))
CRLF = LF.replace("\n", "\r\n")
MIXED = LF.replace("\n", "\r\n", 3)


@pytest.fixture
def repo(make_repo):
    repo = make_repo()
    # As a repository that keeps what it is given; tests of attributes write their own.
    repo.git("config", "core.autocrlf", "false")
    return repo


def only(repo) -> FileChange:
    (file,) = Repository(repo.root).changes("HEAD~1", "HEAD").files
    return file


def edit(repo, before: str | bytes, after: str | bytes, path: str = "a.py") -> FileChange:
    repo.write(path, before)
    repo.commit()
    repo.write(path, after)
    repo.commit()
    return only(repo)


# --- case 46: line ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LF, CRLF),
        (CRLF, LF),
        (LF, MIXED),
        (MIXED, CRLF),
        ("a\r\nb\n", "a\nb\r\n"),  # both ways at once
        ("a\nb\n", "a\nb"),  # the newline at the end of the file
        ("a\nb", "a\nb\n"),
        ("é = 'ü'\n", "é = 'ü'\r\n"),
    ],
    ids=["to crlf", "to lf", "to mixed", "from mixed", "both ways", "last taken", "last given", "not ascii"],
)
def test_change_of_line_ends_alone_is_marked(repo, before, after):
    """case 46 (an EOL flip) and further inputs of the kind: no code has changed, and the bytes have."""
    file = edit(repo, before, after)
    assert file.is_eol_only
    assert not file.is_content_same
    assert file.n_added == file.n_deleted > 0
    compiled = [compile(text.encode(), "a.py", "exec", optimize=0) for text in (before, after)]
    assert compiled[0].co_code == compiled[1].co_code
    assert compiled[0].co_consts == compiled[1].co_consts


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LF, CRLF.replace("x3", "y3")),
        ("a\n", "a \n"),
        ("a\n\n", "a\n"),
        ("a\nb\n", "b\na\n"),
        ("a\n", "\ufeffa\n"),
        ("# coding: utf-8\na = 1\n", "# coding: latin-1\na = 1\n"),
        ("a\rb\n", "a\nb\n"),  # a carriage return alone is no line end for git
        (b"\0a\n", b"\0a\r\n"),
        ("", "\n"),
    ],
    ids=["edit", "blank", "empty line", "order", "bom", "cookie", "lone cr", "binary", "from nothing"],
)
def test_change_of_more_than_line_ends_is_not(repo, before, after):
    assert not edit(repo, before, after).is_eol_only


texts = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["\n", "\r\n"])), min_size=1, max_size=4)
versions = st.tuples(texts, st.booleans()).map(
    lambda drawn: "".join(map("".join, drawn[0]))[: -len(drawn[0][-1][1]) if drawn[1] else None]
)


@given(pairs=st.lists(st.tuples(versions, versions), min_size=1, max_size=20))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_line_ends_differ_where_the_lines_are_the_same(make_repo, tmp_path_factory, pairs):
    repo = make_repo(tmp_path_factory.mktemp("any") / "repo")
    for side in (0, 1):
        for i, pair in enumerate(pairs):
            repo.write(f"{i:02}.py", pair[side])
        repo.commit()
    change = Repository(repo.root).changes("HEAD~1", "HEAD")
    marked = {int(file.path[:2]) for file in change.files if file.is_eol_only}
    assert marked == {
        i
        for i, (before, after) in enumerate(pairs)
        if before != after and before.splitlines() == after.splitlines()
    }


def test_line_ends_of_many_files_are_told_one_by_one(repo):
    for i in range(6):
        repo.write(f"{i}.py", f"{i}\n{LF}")
    for name, content in {"mode.py": LF, "old.py": LF * 2, "x.bin": "\0\n", "gone": ""}.items():
        repo.write(name, content)
    repo.commit()
    repo.git("mv", "old.py", "moved.py")
    repo.git("rm", "-q", "gone")
    repo.write("new", "")
    repo.write("x.bin", "\0\r\n")
    (repo.root / "mode.py").chmod(0o755)
    for i in range(3):
        repo.write(f"{i}.py", f"{i}\n{LF}".replace("\n", "\r\n"))
    for i in range(3, 6):
        repo.write(f"{i}.py", f"-{i}\n{LF}")
    repo.git("mv", "2.py", "two.py")
    (repo.root / "1.py").chmod(0o755)
    repo.commit()
    files = Repository(repo.root).changes("HEAD~1", "HEAD").files
    assert {file.path for file in files if file.is_eol_only} == {"0.py", "1.py", "two.py"}
    assert {"mode.py", "moved.py", "x.bin", "new", "3.py"} <= {file.path for file in files}


def test_line_ends_that_git_itself_turns_are_no_change_in_the_repository(repo):
    repo.write(".gitattributes", "* text=auto eol=crlf\nkeep.py -text\n")
    repo.write("a.py", LF)
    repo.write("keep.py", LF)
    repo.commit()
    repo.write("a.py", CRLF)
    repo.write("keep.py", CRLF)
    repo.commit()
    file = only(repo)
    assert (file.path, file.is_eol_only) == ("keep.py", True)


def test_first_attribute_that_normalises_every_file_is_a_change_of_line_ends(repo):
    repo.write("a.py", CRLF)
    repo.commit()
    repo.write(".gitattributes", "* text=auto\n")
    repo.git("add", "--renormalize", ".")
    repo.commit()
    files = Repository(repo.root).changes("HEAD~1", "HEAD").files
    assert [(file.path, file.is_eol_only) for file in files] == [(".gitattributes", False), ("a.py", True)]


# --- case 46: binary ----------------------------------------------------------------------------------------


def test_binary_file_is_changed_without_lines(repo):
    """case 46: numstat says `-`."""
    file = edit(repo, b"\x89PNG\0\1", b"\x89PNG\0\2", "a.png")
    assert file.is_binary
    assert math.isnan(file.n_added)
    assert math.isnan(file.n_deleted)
    assert not file.is_content_same


def test_text_that_becomes_binary_and_a_declared_binary_are_binary(repo):
    assert edit(repo, LF, LF + "\0").is_binary
    repo.write(".gitattributes", "*.lock -diff\n*.dat binary\n")
    for name in ("a.lock", "a.dat"):
        repo.write(name, LF)
    repo.commit()
    for name in ("a.lock", "a.dat"):
        repo.write(name, LF + "x\n")
    repo.commit()
    assert [file.is_binary for file in Repository(repo.root).changes("HEAD~1", "HEAD").files] == [True, True]


def test_pointer_of_large_file_storage_is_a_change_of_the_data_behind_it(repo):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12\n"
    repo.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    file = edit(repo, pointer.format("a" * 64), pointer.format("b" * 64), "weights.bin")
    assert (file.path, file.status.value, file.is_eol_only) == ("weights.bin", "M", False)


@pytest.mark.parametrize(
    "attributes",
    [
        "*.py export-ignore\n",
        "*.py linguist-generated=true\n",
        "*.py merge=ours\n",
        "*.py diff=python\n",
        "*.py working-tree-encoding=UTF-16LE\n",
        "*.py ident\n",
        "*.py whitespace=cr-at-eol\n",
        "[attr]odd -diff\n*.txt odd\n",
        "".join(f"folder{i}/*.py diff=d{i} -merge\n" for i in range(10_000)),
        '!*.py text\n\xff\0 odd\n"unclosed diff\n',
    ],
    ids=lambda text: text[:20].strip() if len(text) < 200 else "10,000 lines",
)
def test_attributes_that_mean_something_to_others_hide_nothing(repo, attributes):
    repo.write(".gitattributes", attributes.encode("latin-1"))
    before, after = ("a = 1\n" * 3, "a = 1\n" * 4)
    if "UTF-16LE" in attributes:
        before, after = before.encode("utf-16-le"), after.encode("utf-16-le")
    file = edit(repo, before, after)
    assert (file.path, file.n_added, file.n_deleted) == ("a.py", 1, 0)


# --- stand-ins and damage -----------------------------------------------------------------------------------


def test_replaced_and_grafted_commits_do_not_change_what_is_compared(repo):
    for i in range(4):
        repo.write(f"{i}.py", f"{i}\n")
        repo.commit()
    source = Repository(repo.root)
    plain = source.changes("HEAD~2", "HEAD")
    first, head = repo.git("rev-parse", "HEAD~3"), repo.git("rev-parse", "HEAD")
    (repo.root / ".git" / "info").mkdir(exist_ok=True)
    (repo.root / ".git" / "info" / "grafts").write_text(f"{head} {first}\n")
    assert repo.git("rev-list", "--count", "HEAD") == "2", "git itself believes the graft"
    assert source.changes(plain.base, head) == plain
    (repo.root / ".git" / "info" / "grafts").unlink()
    repo.git("replace", "--graft", head, first)
    assert repo.git("rev-list", "--count", "HEAD") == "2", "and the replacement"
    assert source.changes(plain.base, head) == plain
    repo.git("replace", "-d", head)
    repo.git("replace", "HEAD:1.py", "HEAD:2.py")
    assert source.changes(plain.base, head) == plain


def test_a_missing_content_costs_its_lines_not_the_list_of_files(repo):
    repo.write("whole.py", LF)
    repo.write("lost.py", CRLF)
    repo.commit()
    repo.write("whole.py", LF + "x\n")
    repo.write("lost.py", CRLF + "x\n")
    repo.git("mv", "whole.py", "moved.py")
    repo.commit()
    # Not the new one: git would read the checked out file in its place.
    blob = repo.git("rev-parse", "HEAD~1:lost.py")
    (repo.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    change = Repository(repo.root).changes("HEAD~1", "HEAD")
    assert [(file.status.value, file.path) for file in change.files] == [
        ("M", "lost.py"),
        ("A", "moved.py"),
        ("D", "whole.py"),
    ]
    assert "contents are missing" in change.notes[0]


# --- case 44: size ------------------------------------------------------------------------------------------


def import_files(repo, n_files: int) -> None:
    """Two commits; the second changes every file."""
    lines = []
    for mark, text in enumerate(("one", "two"), start=1):
        lines += ["blob", f"mark :{mark}", f"data {len(text)}", text]
        lines += ["commit refs/heads/main", "committer A <a@b> 1700000000 +0000", "data 1", "c"]
        lines += [f"M 644 :{mark} pkg{i % 97}/file{i}.py" for i in range(n_files)]
    stream = "\n".join([*lines, ""]).encode()
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repo.root, check=True, input=stream)


@pytest.mark.parametrize("n_files", [300, 3_001, 20_000])
def test_a_change_of_any_number_of_files_is_whole(repo, n_files):
    """case 44: 3,001 files (a forge's list ends at 300 or 3,000; git's does not), and two more sizes."""
    import_files(repo, n_files)
    started_s = time.process_time()
    change = Repository(repo.root).changes("main~1", "main")
    assert len({file.path for file in change.files}) == n_files
    assert all(file.n_added == 1 for file in change.files)
    assert time.process_time() - started_s < 10


def test_a_file_of_fifty_megabytes_is_told_without_loading_its_lines(repo):
    text = b"0123456789abcdef\n" * (50 * 1024 * 1024 // 17)
    file = edit(repo, text, text + b"one more\n", "large.txt")
    assert file.is_binary
    source = Repository(repo.root)
    change = source.changes("HEAD~1", "HEAD")
    assert source.hunks(change, file) == ()
    largest_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert largest_kib < 2 * 1024 * 1024

from __future__ import annotations

import math

import pytest

from fastci_ml.records.changes import ChangeSet, ChangeStatus, FileChange, FileKind, file_kind
from fastci_ml.records.ids import CommitSha


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("tests/test_a.py", FileKind.TEST),
        ("tests/data/builder.py", FileKind.TEST),
        ("pkg/test_a.py", FileKind.TEST),
        ("pkg/a_test.py", FileKind.TEST),
        ("conftest.py", FileKind.TEST),
        ("src/main/FooTest.java", FileKind.TEST),
        ("pkg/testing.py", FileKind.SOURCE),
        ("pkg/contests.py", FileKind.SOURCE),
        ("csrc/adam.cu", FileKind.SOURCE),
        ("TensorBase.h", FileKind.SOURCE),
        ("PKG/A.PY", FileKind.SOURCE),
        ("pyproject.toml", FileKind.CONFIG),
        ("tests/data/config.yaml", FileKind.CONFIG),
        ("README.md", FileKind.DOCS),
        ("Makefile", FileKind.OTHER),
        (".bashrc", FileKind.OTHER),
        ("weights.safetensors", FileKind.OTHER),
        ("", FileKind.OTHER),
    ],
)
def test_kind_follows_from_the_name_and_unknown_is_never_harmless(path, kind):
    assert file_kind(path) is kind


def test_a_renamed_file_is_known_by_both_paths():
    renamed = FileChange(path="new.py", old_path="old.py", status=ChangeStatus.RENAMED)
    assert renamed.paths == ("old.py", "new.py")
    assert FileChange(path="a.py", status=ChangeStatus.MODIFIED).paths == ("a.py",)


def test_lines_that_were_not_counted_are_unknown_not_zero():
    file = FileChange(path="a.bin", status=ChangeStatus.ADDED)
    assert math.isnan(file.n_added)
    assert math.isnan(file.n_deleted)


def test_what_nobody_told_of_a_file_is_not_taken_for_no_change():
    """A run's own list of changes has neither modes nor ids."""
    file = FileChange(path="a.py", status=ChangeStatus.MODIFIED)
    assert not file.is_content_same
    assert not file.is_mode_only
    assert not any((file.is_submodule, file.is_symlink, file.is_binary, file.is_eol_only))


def test_change_of_mode_alone_is_neither_a_rename_nor_an_edit():
    file = FileChange(
        path="a.py",
        status=ChangeStatus.MODIFIED,
        old_mode="100644",
        new_mode="100755",
        old_id="1",
        new_id="1",
    )
    assert file.is_mode_only
    renamed = FileChange(
        path="b.py",
        old_path="a.py",
        status=ChangeStatus.RENAMED,
        old_mode="100644",
        new_mode="100755",
        old_id="1",
        new_id="1",
    )
    assert renamed.is_content_same
    assert not renamed.is_mode_only


def test_whole_tree_touches_what_is_below_by_either_path_and_nothing_beside():
    moved = FileChange(path="vendor", old_path="lib", status=ChangeStatus.RENAMED, is_whole_tree=True)
    plain = FileChange(path="b.py", old_path="a.py", status=ChangeStatus.RENAMED)
    change = ChangeSet(base=CommitSha(""), head=CommitSha(""), head_tree="", files=(moved, plain))
    for path in ("vendor", "vendor/x/y.py", "lib/x.py", "a.py", "b.py"):
        assert change.touches(path), path
    for path in ("vendored.py", "library/x.py", "b.py/x", "c.py", ""):
        assert not change.touches(path), path

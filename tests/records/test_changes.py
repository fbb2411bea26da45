from __future__ import annotations

import math

import pytest

from fastci_ml.records.changes import ChangeStatus, FileChange, FileKind, file_kind


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

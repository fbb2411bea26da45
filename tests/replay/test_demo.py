from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fastci_ml.errors import DataError
from fastci_ml.replay.demo import FAST_TESTS, make_repository
from fastci_ml.settings import load_settings
from fastci_ml.sources.git.repository import Repository

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def demo(tmp_path):
    if not (CHECKOUT / ".git").exists():
        pytest.skip("no git checkout, so no tracked files to list")
    return make_repository(CHECKOUT, tmp_path / "repo")


def test_change_of_the_demo_is_one_fault_in_one_file(demo):
    change = Repository(demo.root).changes(demo.base, demo.head)
    (file,) = change.files
    assert (file.path, file.status.value, file.n_added, file.n_deleted) == (demo.path, "M", 1, 1)
    ast.parse((demo.root / demo.path).read_text())


def test_tests_of_the_demo_are_in_its_repository(demo):
    assert all((demo.root / name).exists() for name in FAST_TESTS)


def test_settings_of_the_demo_name_the_recorded_lane(demo):
    assert load_settings(demo.root).lane.startswith("cpython-")


def test_same_files_give_the_same_shas(demo, tmp_path):
    again = make_repository(CHECKOUT, tmp_path / "again")
    assert (again.base, again.head) == (demo.base, demo.head)


def test_checkout_without_recorded_runs_is_refused(tmp_path):
    with pytest.raises(DataError, match="expected a checkout of fastci-ml") as caught:
        make_repository(tmp_path, tmp_path / "repo")
    assert caught.value.hint

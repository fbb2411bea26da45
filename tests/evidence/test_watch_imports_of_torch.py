"""With the profile hook torch is imported unseen: what it asks for of the repository is a gap."""

from __future__ import annotations

import pytest
from watched_programs import watch_program

from fastci_ml.records.evidence_kinds import Gap

PROGRAM = """
import sys

HOOKS = []


def check_imports():
    before()
    import torch
    after()
    assert torch.NAME == 1


def check_afterwards():
    after()


def before():
    return 1


def after():
    return 1
"""
ASKS = "import importlib\nimportlib.import_module('plugin').load()\nNAME = 1\n"
BEHIND_IMPORTS = """
import sys


class Finder:
    def find_spec(self, name, path=None, target=None):
        found()


def found():
    return None


sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    return root


def watch(root, torch, program=PROGRAM):
    packages = root.parent / "packages"
    (packages / "torch").mkdir(parents=True)
    (packages / "torch" / "__init__.py").write_text(torch)
    return watch_program(root, program, before=f"sys.path.insert(0, {str(packages)!r})")


def test_what_runs_before_and_after_is_seen(root):
    watched = watch(root, "def inner():\n    return 1\n\nNAME = inner()\n")
    assert watched.gaps("check_imports") == set()
    assert {"check_imports", "before", "after"} <= watched.codes("check_imports")
    assert "after" in watched.codes("check_afterwards")


def test_module_that_it_asks_for_is_a_gap(root):
    (root / "plugin.py").write_text("def load():\n    return 1\n")
    watched = watch(root, ASKS)
    is_profile = watched.bundle.provenance.backend == "profile"
    assert watched.gaps("check_imports") == ({Gap.SLOT_LOST} if is_profile else set())
    assert watched.gaps("check_afterwards") == set()
    # Its module is executed in a capture of its own, as ever.
    assert "plugin.py" in watched.imports("check_imports")


def test_nothing_rests_where_the_repository_stands_behind_imports(root):
    watched = watch(root, "import colorsys\nNAME = 1\n", BEHIND_IMPORTS + PROGRAM)
    assert watched.gaps("check_imports") == set()
    assert "found" in watched.codes("check_imports")


def test_failing_import_ends_the_rest(root):
    program = PROGRAM.replace("    import torch\n    after()\n    assert torch.NAME == 1\n", FAILING)
    watched = watch(root, "raise ImportError('broken')\n", program)
    assert watched.gaps("check_imports") == set()
    assert "after" in watched.codes("check_imports")


FAILING = """
    try:
        import torch
    except ImportError:
        after()
"""

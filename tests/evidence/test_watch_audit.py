"""The one audit hook: several handlers, none, and another hook that refuses it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from interpreters import RUNNING, VERSIONS, find_python

import fastci_ml

SCRIPT = """
import sys
from fastci_ml.evidence.recorder.audit import add_handlers, remove_handlers

first, second = [], []
one, other = {"ours.event": first.append}, {"ours.event": second.append, "ours.other": second.append}
add_handlers(one)
add_handlers(other)
sys.audit("ours.event", 1)
sys.audit("ours.other", 2)
assert (first, second) == ([(1,)], [(1,), (2,)])
remove_handlers(one)
sys.audit("ours.event", 3)
assert (first, second) == ([(1,)], [(1,), (2,), (3,)])
remove_handlers(other)
remove_handlers(other)
sys.audit("ours.event", 4)
sys.audit("ours.other", 4)
assert (first, second) == ([(1,)], [(1,), (2,), (3,)])


class Late:
    def __del__(self):
        open("/dev/null").close()


# The hook is called until the very end of the interpreter.
sys.late = Late()
add_handlers({"open": lambda arguments: None})
"""
REFUSED = """
import sys

def refuse(event, arguments):
    if event == "sys.addaudithook":
        raise RuntimeError("no more hooks")

sys.addaudithook(refuse)
from fastci_ml.evidence.recorder.audit import add_handlers
try:
    add_handlers({"open": print})
except RuntimeError as error:
    assert "refuses" in str(error), error
else:
    raise AssertionError
"""


@pytest.mark.parametrize("script", [SCRIPT, REFUSED], ids=["handlers", "refused"])
@pytest.mark.parametrize("version", VERSIONS)
def test_audit_hook_serves_its_handlers_and_says_when_it_cannot(tmp_path, version, script):
    python = sys.executable if version == RUNNING else find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    (tmp_path / "fastci_ml").symlink_to(fastci_ml.__path__[0])
    done = subprocess.run(
        [python, "-c", script], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")

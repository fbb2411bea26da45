"""Merging on every supported interpreter: the same bundles and sources give the same evidence."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from bundle_makers import STARTED_US, Recording, store_content
from interpreters import VERSIONS, find_python

import fastci_ml
from fastci_ml.evidence.merge.merge import merge_bundles
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

MODEL = """\
import functools
import torch
from pkg import table

_STATE = {}


def fill(name):
    if name not in _STATE:
        _STATE[name] = [scale(x) for x in range(3)]
    return _STATE[name]


def scale(x):
    return x * 2 if x else sum(y for y in table.ROWS)


class Flash(torch.autograd.Function):
    @staticmethod
    def backward(ctx, grad):
        def inner(value):
            return lambda: value

        return inner(grad)
"""
TESTS = (
    "from pkg.model import fill\n\n\ndef test_fill():\n    fill('a')\n\n\ndef test_again():\n    fill('a')\n"
)
TEST = "tests/test_model.py"

# Interpreters differ in how deep they read, and in the code objects that they make of comprehensions.
_MERGE = f"""
import sys
from pathlib import Path
from fastci_ml.evidence.bundle.lines import seal
from fastci_ml.evidence.bundle.unseal import unseal
from fastci_ml.evidence.merge.merge import merge_bundles
assert unseal(seal(["file", 0, "\\udcff", None])) == ["file", 0, "\\udcff", None]
for text in ("[" * 100_000, '["a",' + "[" * 50_000 + "]" * 50_000 + "]", '["a",' + "9" * 10_000 + "]"):
    import zlib
    assert unseal(b"%08x %s\\n" % (zlib.crc32(text.encode()), text.encode())) is None
summary = merge_bundles([Path(sys.argv[1])], Path(sys.argv[2]), root=Path(sys.argv[1]), now_us={STARTED_US})
assert summary.n_merged == 2 and not summary.problems, summary
for name in ("numpy", "pandas", "git", "pytest", "torch"):
    assert name not in sys.modules, name
"""


@pytest.fixture
def bundles(tmp_path: Path) -> Path:
    for number, backend in enumerate(("profile", "monitoring")):
        recording = Recording(
            tmp_path / "bundles",
            f"{number:04x}",
            backend=backend,
            started_us=STARTED_US + number * 10**6,
            lane=backend,
        )
        recording.source("pkg/model.py", MODEL)
        recording.source("pkg/table.py", "ROWS = [row for row in 'ab']\n")
        recording.source(TEST, TESTS)
        model = [recording.code("pkg/model.py", name) for name in ("fill", "scale")]
        recording.capture(
            CaptureKind.IMPORT,
            "pkg/model.py",
            recording.code("pkg/model.py", "<module>"),
            reads=[recording.file("config.json", "a" * 40)],
            imports=[recording.source("pkg/table.py", "ROWS = [row for row in 'ab']\n")],
        )
        recording.test(f"{TEST}::test_fill", recording.code(TEST, "test_fill"), *model)
        gaps = [(Gap.THREAD_UNSEEN, "\udcff")]
        recording.test(f"{TEST}::test_again", recording.code(TEST, "test_again"), model[0], gaps=gaps)
        recording.writer.close()
    return tmp_path / "bundles"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_merge_on_any_interpreter_gives_the_same_store(tmp_path: Path, bundles: Path, version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"no python{version} here")
    expected = tmp_path / "expected.sqlite"
    merge_bundles([bundles], expected, root=bundles, now_us=STARTED_US)
    store = tmp_path / "evidence.sqlite"
    root = Path(fastci_ml.__file__).parent.parent
    done = subprocess.run(
        # Without packages of that interpreter's: merging needs the standard library alone.
        [python, "-S", "-c", _MERGE, str(bundles), str(store)],
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert store_content(store) == store_content(expected)

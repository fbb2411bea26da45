"""Files that import statements can name: none of those that Python would load is left out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fastci_ml.sources.blocks.block import ImportSeen
from fastci_ml.sources.blocks.imports import resolve_imports
from fastci_ml.sources.blocks.reader import read_blocks

FILES = frozenset(
    {
        "pkg/__init__.py",
        "pkg/a.py",
        "pkg/sub/__init__.py",
        "pkg/sub/b.py",
        "pkg/sub/a.py",
        "pkg/space/c.py",
        "src/lib/__init__.py",
        "src/lib/d.py",
        "tests/__init__.py",
        "tests/conftest.py",
        "tests/helper.py",
        "tests/unit/helper.py",
        "tests/unit/test_x.py",
        "helper.py",
    }
)


def resolved(source: str, module_path: str) -> list[str]:
    imports = read_blocks(source.encode()).imports
    return sorted(resolve_imports(imports, module_path, FILES.__contains__))


@pytest.mark.parametrize(
    ("source", "module_path", "expected"),
    [
        ("import pkg", "x.py", ["pkg/__init__.py"]),
        ("import pkg.sub.b", "x.py", ["pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/b.py"]),
        ("from pkg import a", "x.py", ["pkg/__init__.py", "pkg/a.py"]),
        ("from pkg import sub, name", "x.py", ["pkg/__init__.py", "pkg/sub/__init__.py"]),
        ("from pkg.a import name", "x.py", ["pkg/__init__.py", "pkg/a.py"]),
        ("from pkg import *", "x.py", ["pkg/__init__.py"]),
        # Folders without __init__ are packages as well.
        ("import pkg.space.c", "x.py", ["pkg/__init__.py", "pkg/space/c.py"]),
        ("from pkg.space import c", "x.py", ["pkg/__init__.py", "pkg/space/c.py"]),
        # Roots: the repository's, src, the module's folder and those around it.
        ("import lib.d", "tests/unit/test_x.py", ["src/lib/__init__.py", "src/lib/d.py"]),
        ("import helper", "tests/unit/test_x.py", ["helper.py", "tests/helper.py", "tests/unit/helper.py"]),
        ("import conftest", "tests/unit/test_x.py", ["tests/conftest.py"]),
        ("import helper", "pkg/a.py", ["helper.py"]),
        # Relative: by the folder of the module, whether it is a package's own file or not.
        ("from . import a", "pkg/x.py", ["pkg/__init__.py", "pkg/a.py"]),
        ("from . import a", "pkg/__init__.py", ["pkg/__init__.py", "pkg/a.py"]),
        ("from .sub.b import name", "pkg/a.py", ["pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/b.py"]),
        ("from .. import a", "pkg/sub/b.py", ["pkg/__init__.py", "pkg/a.py"]),
        ("from ..a import name", "pkg/sub/b.py", ["pkg/__init__.py", "pkg/a.py"]),
        ("from .a import *", "pkg/sub/b.py", ["pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/a.py"]),
        ("from .... import a", "pkg/sub/b.py", []),
        ("from . import helper", "x.py", ["helper.py"]),
        # What the repository does not hold.
        ("import os, torch.nn as nn", "pkg/a.py", []),
    ],
)
def test_files_that_statements_can_name(source: str, module_path: str, expected: list[str]) -> None:
    assert resolved(source, module_path) == expected


def test_nothing_imported_is_nothing() -> None:
    assert resolve_imports((), "a.py", FILES.__contains__) == frozenset()
    assert (
        resolve_imports([ImportSeen(module="", level=1, names=("*",), line=1)], "a.py", FILES.__contains__)
        == set()
    )


def test_all_that_python_loads_is_among_them(tmp_path: Path) -> None:
    sources = {
        "pkg/__init__.py": "from .a import A\nfrom pkg.sub import b",
        "pkg/a.py": "import json\nA = 1",
        "pkg/sub/__init__.py": "from .. import a as other\nfrom . import c",
        "pkg/sub/b.py": "def f():\n    from ..late import L\n    return L",
        "pkg/sub/c.py": "import helper",
        "pkg/late.py": "from .space.d import D\nL = D",
        "pkg/space/d.py": "D = 1",
        "pkg/unused.py": "",
        "tests/helper.py": "",
        "tests/test_a.py": "import pkg.sub.b as b\nimport helper\nb.f()",
    }
    for path, source in sources.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source)
    program = (
        "import json, runpy, sys; sys.path[:0] = ['tests', '.']; runpy.run_path('tests/test_a.py');"
        "print(json.dumps([m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    files = [Path(tmp_path, name).resolve() for name in json.loads(done.stdout)]
    loaded = {
        file.relative_to(tmp_path.resolve()).as_posix()
        for file in files
        if file.is_relative_to(tmp_path.resolve())
    }
    reached, todo = set(), ["tests/test_a.py"]
    while todo:
        path = todo.pop()
        if path not in reached:
            reached.add(path)
            seen = read_blocks((tmp_path / path).read_bytes()).imports
            # From where it is imported: pytest's roots are the folders of the tests.
            todo += resolve_imports(seen, path, sources.__contains__)
            todo += resolve_imports(seen, f"tests/{Path(path).name}", sources.__contains__)
    assert len(loaded) == 8
    assert loaded <= reached
    assert "pkg/unused.py" not in reached

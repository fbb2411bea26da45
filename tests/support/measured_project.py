"""A small project that coverage.py and pytest-testmon measure, and how they are run on it.

    python tests/support/measured_project.py PYTHON FOLDER

records it anew with the sysmon core, in one process and in two, as SQL text: PYTHON is 3.12 or later, with
coverage, pytest-cov and pytest-xdist.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCES = {
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
    "pkg/__init__.py": "",
    "pkg/registry.py": """\
KNOWN = {}


def register(name):
    def keep(function):
        KNOWN[name] = function
        return function

    return keep
""",
    "pkg/lib.py": '''\
"""Functions of every shape."""

import pkg.registry


def f(x):
    """One line of its own."""
    y = x + 1
    if y > 3:
        y = -y
        y = -y
    return y


def g(x):
    return f(x) * 2


def one(x): return x


def outer(x):
    def inner(y):
        return y + 1

    return inner(x)


def pairs(n):
    for i in range(n):
        yield i, f(i)


class Step:
    """A class with a method."""

    size = 4

    @property
    def width(
        self,
    ):
        return self.size


@pkg.registry.register("later")
def later():
    return f(10)


def only_child(x):
    z = x + 2
    return z


def unused():
    return 1
''',
    "tests/conftest.py": """\
import pytest

import pkg.lib


@pytest.fixture(scope="session")
def shared():
    return pkg.lib.g(1)


@pytest.fixture
def step():
    yield pkg.lib.Step()
    pkg.lib.one(1)
""",
    "tests/test_lib.py": """\
import subprocess
import sys
import unittest

import pytest

from pkg import lib


def test_f():
    assert lib.f(1) == 2


def test_f_large():
    assert lib.f(10) == 11


def test_g():
    assert lib.g(1) == 4


def test_shared(shared):
    assert shared == 4


def test_shared_again(shared):
    assert shared == 4


def test_step(step):
    assert step.width == 4


@pytest.mark.parametrize("n", [1, 2, 9, "a|b", "a::b"])
def test_p(n):
    if n == 1:
        lib.outer(1)
    assert list(lib.pairs(2))


class TestGroup:
    def test_inside(self):
        assert lib.f(3) == 4


class Case(unittest.TestCase):
    def setUp(self):
        lib.one(1)

    def test_case(self):
        self.assertEqual(lib.f(1), 2)


def test_child():
    subprocess.check_call([sys.executable, "-c", "import pkg.lib; pkg.lib.only_child(4)"])
""",
}


# Data of coverage.py about it, as small as it can be: two tests that share a function.
DATA = """
CREATE TABLE coverage_schema (version integer);
INSERT INTO coverage_schema VALUES (7);
CREATE TABLE meta (key text, value text, unique (key));
CREATE TABLE file (id integer primary key, path text, unique (path));
CREATE TABLE context (id integer primary key, context text, unique (context));
CREATE TABLE line_bits (file_id integer, context_id integer, numbits blob);
CREATE TABLE arc (file_id integer, context_id integer, fromno integer, tono integer);
INSERT INTO file VALUES (1, 'pkg/lib.py'), (2, 'tests/test_lib.py');
INSERT INTO context VALUES (1, ''), (2, 'tests/test_lib.py::test_f|run');
INSERT INTO context VALUES (3, 'tests/test_lib.py::test_g|run');
INSERT INTO line_bits VALUES (1, 2, x'0013'), (1, 3, x'000301'), (2, 2, x'0008');
"""
PYTEST_COV = ("pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_cov", "--cov=.", "--cov-report=")


def write_project(root: Path) -> None:
    """Write it, as something that was there for a while."""
    for path, text in SOURCES.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    age(root)


def age(root: Path, seconds: float = 60.0) -> None:
    """Let every Python file look older."""
    then = time.time() - seconds
    for file in root.rglob("*.py"):
        os.utime(file, (then, then))


def run_tests(
    root: Path, *arguments: str, python: str = sys.executable, settings: str = "", **environment: str
) -> None:
    """Run its tests, with those plugins alone that are named; data files lie in its folder then."""
    (root / ".coveragerc").write_text(f"[run]\n{settings}")
    base = {
        name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST", "TESTMON"))
    }
    done = subprocess.run(
        [python, "-m", *arguments],
        cwd=root,
        env={**base, "PYTHONPATH": str(root), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def measure(root: Path, *arguments: str, **options: str) -> Path:
    """Measure it with pytest-cov and a context for each test."""
    run_tests(root, *PYTEST_COV, "--cov-context=test", *arguments, **options)
    return root / ".coverage"


def load(dump: Path, target: Path) -> Path:
    """Make a data file of its text."""
    return make_data(target, dump.read_text())


def make_data(target: Path, *scripts: str) -> Path:
    """Make a database by SQL."""
    connection = sqlite3.connect(target)
    for script in scripts:
        connection.executescript(script)
    connection.close()
    return target


def _main(python: str, folder: Path) -> None:
    for name, arguments in {"sysmon": (), "sysmon-two-workers": ("-n2",)}.items():
        with tempfile.TemporaryDirectory() as root:
            write_project(Path(root))
            data = measure(
                Path(root),
                *arguments,
                python=python,
                settings="relative_files = true\n",
                COVERAGE_CORE="sysmon",
            )
            connection = sqlite3.connect(data)
            (folder / f"{name}.sql").write_text("\n".join(connection.iterdump()) + "\n")
            connection.close()


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))

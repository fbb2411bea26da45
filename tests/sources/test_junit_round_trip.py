"""Ids of a suite that pytest really runs come back from the JUnit file that pytest really writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.records.ids import read_collected, split_node_id
from fastci_ml.sources.junit.ids import JunitIds, mangle, manglings
from fastci_ml.sources.junit.reader import read_junit

# case 23: `::` in parameters, with and without classes, nested classes. Three more: inherited tests, a
# parametrized class, a file and a class of the same dotted name.
SEPARATORS = r"""
import pytest

@pytest.mark.parametrize("v", ["v1.0::q", "::", "a::b[c::d]", "test_a.py::TestA"])
def test_x(v): assert v != "::"

class TestA:
    class TestB:
        class TestC:
            def test_y(self): pass
            @pytest.mark.parametrize("p", ["p::q"])
            def test_x(self, p): pass

    @pytest.mark.parametrize("p", ["p::q", "]", "["])
    def test_x(self, p): assert p != "["

@pytest.mark.parametrize("stage", ["1::2", "3"])
class TestParametrized:
    def test_inside(self, stage): pass
    def test_left_out(self, stage): pytest.skip("::")
"""
INHERITED = r"""
from base_cases import BaseCases

class TestHeir(BaseCases):
    class TestInner(BaseCases):
        pass
"""
BASE = r"""
import pytest

class BaseCases:
    @pytest.mark.parametrize("v", ["a.b::c"])
    def test_inherited(self, v): assert v == "x"
"""
# case 24: the values that the case names; more: line ends, tabs, a null, quotes and markup of XML, a name
# that looks like an escape of pytest, blanks, separators of shells and listings, very long values, bytes.
ESCAPES = r"""
import pytest

VALUES = [
    "é", "日本", "\x1b[0m", "a/b", "a\\b", "", "x[1]",
    "a\nb", "\t", "\0", "\x7f", "<&\"'>", "]]>", "#x1B", "\\x1b", " ", "a - b", "a @ b", "a@b", "-", "--",
    "😀", "\u2028", "\x85", "\ufffe", "x" * 99, "x" * 300, "../../etc/passwd", "C:\\x", "*?|", "$(x)", "%s{}",
    b"\xff\x00",
]

@pytest.mark.parametrize("v", VALUES)
def test_value(v): assert v != "a/b"

@pytest.mark.parametrize("w", ["", "é"])
@pytest.mark.parametrize("v", ["", "[]"])
def test_both(v, w): pass

def test_größe(): pass
"""
# Items that are no Python functions, with names and folders that only plugins and people make.
CONFTEST = r"""
import pytest

class YamlFile(pytest.File):
    def collect(self):
        for line in self.path.read_text(encoding="utf-8").splitlines():
            name = line.encode().decode("unicode_escape")
            yield YamlItem.from_parent(self, name=name)

class YamlItem(pytest.Item):
    def runtest(self): assert not self.name.startswith("bad")
    def repr_failure(self, excinfo): return "bad"
    def reportinfo(self): return self.path, 0, self.name

def pytest_collect_file(parent, file_path):
    if file_path.suffix == ".yaml":
        return YamlFile.from_parent(parent, path=file_path)

def pytest_generate_tests(metafunc):
    if "generated" in metafunc.fixturenames:
        metafunc.parametrize("generated", [1, 2], ids=["g::1", "g 2/3"])
"""
NAMES = [
    "case one",
    "bad::two",
    "three[x::y]",
    "four[",
    "five] six",
    "seven - eight @ nine",
    "a.b.c",
    r"\x1b[0m",
]
DOCTEST = '''
def double(x):
    """Twice.

    >>> double(2)
    4
    """
    return 2 * x

class Doc:
    def method(self):
        """
        >>> 1
        2
        """
'''


def _write_suite(root: Path) -> None:
    python = {
        "tests/test_separators.py": SEPARATORS,
        "tests/unit.v2/test_escapes.py": ESCAPES,
        "tests/unit.v2/test_separators.py": SEPARATORS,  # the same basename in two folders
        "tests/[odd] folder/test_x[1].py": SEPARATORS,
        "tests/test_heirs.py": INHERITED,
        "tests/pkg/__init__.py": "def test_in_package(): pass\n",
        "tests/pkg/test_generated.py": "def test_generated(generated): pass\n",
        "tests/base_cases.py": BASE,
        "tests/conftest.py": CONFTEST,
        "lib/mod.py": DOCTEST,
        "lib/guide.rst": ">>> 1\n1\n",
        "tests/specs/api.yaml": "\n".join(NAMES),
        "tests/specs/a::b.yaml": "case",
    }
    for name, text in python.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (root / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\npythonpath = ["tests"]\npython_files = ["test_*.py", "__init__.py"]\n'
        'addopts = "--import-mode=importlib --doctest-modules --doctest-glob=*.rst -p no:cacheprovider"\n',
        encoding="utf-8",
    )


@dataclass(frozen=True)
class Suite:
    """A suite of ours below the folder where the user stands."""

    root: Path
    start: Path
    collected: list[str]

    def report(self, *options: str) -> Path:
        path = self.start / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", "services/a", f"--junitxml={path}", *options]
        done = subprocess.run(command, cwd=self.start, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stdout + done.stderr
        return path


# pytest's own record of what it collected: a listing cannot tell a line end in a name from its own.
LISTER = r"""
import json, os

def pytest_collection_finish(session):
    with open(os.environ["IDS"], "w", encoding="utf-8") as file:
        json.dump([item.nodeid for item in session.items], file)
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    start = tmp_path_factory.mktemp("repo")
    root = start / "services" / "a"
    root.mkdir(parents=True)
    _write_suite(root)
    (start / "lister.py").write_text(LISTER, encoding="utf-8")
    environment = {**os.environ, "IDS": str(start / "ids.json"), "PYTHONPATH": str(start)}
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "services/a", "-p", "lister"]
    done = subprocess.run(command, cwd=start, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    collected = json.loads((start / "ids.json").read_text(encoding="utf-8"))
    listed = read_collected(done.stdout)
    # What the listing shows is the literal ids.
    assert listed == collected
    return Suite(root, start, collected)


@pytest.mark.parametrize(
    ("family", "prefix"), [("xunit1", ""), ("xunit2", ""), ("xunit1", "a b"), ("xunit2", "linux.py3")]
)
def test_ids_of_a_real_suite_come_back_exactly(suite: Suite, family: str, prefix: str) -> None:
    assert len(suite.collected) > 80
    options = [f"--junit-prefix={prefix}"] if prefix else []
    path = suite.report("-o", f"junit_family={family}", *options)
    report = read_junit(path, JunitIds(suite.collected))
    assert sorted(report.node_ids.to_pylist()) == sorted(suite.collected)
    assert report.is_joined.all()
    # Without them: what is said to be certain is right, and most is.
    alone = read_junit(path, JunitIds(root=suite.root))
    pairs = list(zip(suite.collected, alone.node_ids.to_pylist(), alone.is_joined.tolist(), strict=True))
    assert [(node_id, found) for node_id, found, is_certain in pairs if is_certain and node_id != found] == []
    assert prefix or sum(is_certain for *_, is_certain in pairs) > 0.9 * len(pairs)


def test_ids_survive_a_listing_of_another_commit(suite: Suite) -> None:
    path = suite.report("-k", "not escapes")
    known = [node_id for node_id in suite.collected if "test_x" not in node_id and "escapes" not in node_id]
    report = read_junit(path, JunitIds(known, suite.root))
    found = dict(zip(report.node_ids.to_pylist(), report.is_joined.tolist(), strict=True))
    assert all(found[node_id] for node_id in known)
    wrong = found.keys() - set(suite.collected)
    assert not any(found[node_id] for node_id in wrong)


printable = st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")
names = st.text(alphabet="abT_9", min_size=1, max_size=5)
ids_of_pytest = st.builds(
    lambda folders, file, classes, params: (
        "/".join([*folders, f"{file}.py"]) + "::" + "::".join(classes) + params
    ),
    st.lists(st.text(alphabet="ab_.[] -", min_size=1, max_size=4), max_size=3),
    st.text(alphabet="ab_.[] -", min_size=1, max_size=6),
    st.lists(names, min_size=1, max_size=4),
    st.just("") | st.text(printable, max_size=12).map("[{}]".format),
)


@given(st.lists(ids_of_pytest, min_size=1, max_size=12, unique=True), st.sampled_from(["", "p.q"]))
def test_any_ids_come_back_from_junit_names(ids: list[str], prefix: str) -> None:
    """id -> JUnit -> id, for every id whose names no other has."""
    reported = [mangle(node_id) for node_id in ids]
    classnames = [f"{prefix}.{classname}" if prefix else classname for classname, _ in reported]
    found, is_joined = JunitIds(ids).map(classnames, [name for _, name in reported])
    # The forms of older releases are known too: an id may also clash with one of these.
    known = [form for node_id in ids for form in set(manglings(node_id))]
    for node_id, names, given_id, is_certain in zip(ids, reported, found.to_pylist(), is_joined, strict=True):
        if known.count(names) == 1 and not prefix:
            assert (given_id, is_certain) == (node_id, True)
        if is_certain:
            assert given_id == node_id or known.count(names) > 1


@given(ids_of_pytest)
def test_taking_an_id_apart_loses_nothing(node_id: str) -> None:
    parts = split_node_id(node_id)
    assert parts.join() == node_id
    assert parts.path.endswith(".py")

"""Class names find their way back to the node ids that pytest had."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from _pytest.junitxml import bin_xml_escape, mangle_test_address
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.records.ids import read_collected
from fastci_ml.sources.junit.ids import JunitIds, mangle
from fastci_ml.sources.junit.reader import read_junit

IDS = [
    "tests/unit/test_a.py::test_x",
    "tests/unit/test_a.py::TestB::TestC::test_x[v1.0::q]",
    "tests/unit/test_a.py::test_x[a/b.py::c[1]]",
    "tests/test_pkg/test_mod.py::TestB::test_y[]",
    "tests/test_pkg/test_mod.py::test_y[\\xe9-\\x1b[0m]",
    "pkg/mod.py::pkg.mod.function",
    "README.md::README.md",
    "tests/test_broken.py",
]


def map_one(ids: JunitIds, classname: str, name: str, file: str | None = None) -> tuple[str, bool]:
    node_ids, is_joined = ids.map([classname], [name], [] if file is None else [file])
    return node_ids[0].as_py(), bool(is_joined[0])


@pytest.mark.parametrize("node_id", IDS)
def test_mangling_is_that_of_the_installed_pytest(node_id: str) -> None:
    *classes, name = mangle_test_address(node_id)
    assert mangle(node_id) == (".".join(classes), bin_xml_escape(name))


@given(st.from_regex(r"(\w{1,3}/){0,2}\w{1,4}\.py(::\w{1,4}){1,3}(\[[ -~]{0,8}\])?", fullmatch=True))
def test_mangling_is_that_of_the_installed_pytest_for_any_id(node_id: str) -> None:
    *classes, name = mangle_test_address(node_id)
    assert mangle(node_id) == (".".join(classes), bin_xml_escape(name))


@pytest.mark.parametrize("node_id", IDS)
def test_a_collected_id_is_found_exactly(node_id: str) -> None:
    assert map_one(JunitIds(IDS), *mangle(node_id)) == (node_id, True)


def test_two_ids_with_the_same_name_in_junit_are_a_guess() -> None:
    twins = ["a/b.py::C::test_x", "a/b/C.py::test_x"]
    found, is_joined = map_one(JunitIds(twins), "a.b.C", "test_x")
    assert found in twins
    assert not is_joined


def test_a_test_that_is_gone_keeps_its_module_as_a_guess() -> None:
    ids = JunitIds(["lib/checks.py::Suite::test_x"])
    assert map_one(ids, "lib.checks.Suite", "test_old") == ("lib/checks.py::Suite::test_old", False)


def test_the_file_that_xunit1_names_settles_it() -> None:
    assert map_one(JunitIds(), "a.checks.B", "t[x::y]", "a/checks.py") == ("a/checks.py::B::t[x::y]", True)
    assert map_one(JunitIds(), "a.checks.B", "t", "a\\checks.py") == ("a/checks.py::B::t", True)
    # An inherited test: the file is that of the base class.
    assert map_one(JunitIds(), "a.test_c.B", "t", "a/base.py") == ("a/test_c.py::B::t", False)


def test_a_file_that_exists_settles_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "checks.py").touch()
    ids = JunitIds(root=tmp_path)
    assert map_one(ids, "a.checks.B", "t") == ("a/checks.py::B::t", True)
    assert map_one(ids, "a.test_gone.B", "t") == ("a/test_gone.py::B::t", False)
    assert map_one(ids, "a.../../checks", "t") == ("a.../../checks::t", False)


def test_two_files_that_a_name_can_mean_are_a_guess(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/b.py", "a/b/C.py", "a/v1.2 x.py", "a/notes.rst"):
        (tmp_path / name).touch()
    ids = JunitIds(root=tmp_path)
    assert map_one(ids, "a.b.C", "t") == ("a/b/C.py::t", False)
    assert map_one(ids, "a.b.D", "t") == ("a/b.py::D::t", True)
    assert map_one(ids, "a.v1.2 x.D", "t") == ("a/v1.2 x.py::D::t", True)
    assert map_one(ids, "a.notes.rst", "notes.rst") == ("a/notes.rst::notes.rst", True)


def test_files_outside_of_the_root_settle_nothing(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "x.py").touch()
    ids = JunitIds(root=tmp_path / "root")
    for name in ("...x", "../x", f"{tmp_path}/x", "..x", "a\0.x", "n" * 300):
        assert not map_one(ids, name, "t")[1]


def test_one_class_alone_is_no_certain_prefix() -> None:
    """It may as well be the file of another folder, which is gone; two classes that agree are not."""
    ids = JunitIds(["tests/test_a.py::test_x", "tests/test_b.py::test_y", "tests/test_b.py::test_z"])
    assert map_one(ids, "linux.tests.test_a", "test_x") == ("tests/test_a.py::test_x", False)
    found, is_joined = ids.map(["linux.tests.test_a", "linux.tests.test_b"], ["test_x", "test_new"])
    assert found.to_pylist() == ["tests/test_a.py::test_x", "tests/test_b.py::test_new"]
    assert is_joined.tolist() == [True, False]
    # Where one name is known as it is, pytest wrote no prefix.
    found, is_joined = ids.map(["tests.test_a", "linux.tests.test_b"], ["test_x", "test_y"])
    assert found.to_pylist() == ["tests/test_a.py::test_x", "linux/tests/test_b.py::test_y"]
    assert is_joined.tolist() == [True, False]


def test_other_parameters_of_a_collected_function_are_certain() -> None:
    """case 25: parameters that change between runs are still those of the function."""
    ids = JunitIds(["a/checks.py::C::t[<X at 0x7f00c0ffee10>]", "a/checks.py::C::u"])
    assert map_one(ids, "a.checks.C", "t[<X at 0x7f00c0ffee20>]") == (
        "a/checks.py::C::t[<X at 0x7f00c0ffee20>]",
        True,
    )
    assert map_one(ids, "a.checks.C", "gone[1]") == ("a/checks.py::C::gone[1]", False)


def test_what_pytest_spelled_out_is_no_certain_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").touch()
    (tmp_path / "b.py").touch()
    ids = JunitIds(root=tmp_path)
    assert map_one(ids, "b", "t[#x1B]") == ("b.py::t[#x1B]", False)
    assert map_one(ids, "b", "t[#xyz]") == ("b.py::t[#xyz]", True)
    assert map_one(ids, "a.yaml", "case[]") == ("a.yaml::case[]", False)
    assert map_one(ids, "a.yaml", "case") == ("a.yaml::case", True)


def test_doctests_and_packages_are_guessed_by_their_names() -> None:
    ids = JunitIds()
    assert map_one(ids, "src.pkg.mod", "pkg.mod.f") == ("src/pkg/mod.py::pkg.mod.f", False)
    assert map_one(ids, "pkg.__init__.TestA", "t") == ("pkg/__init__.py::TestA::t", False)
    assert map_one(ids, "app.tests.TestA", "t") == ("app/tests.py::TestA::t", False)
    assert map_one(ids, "com.foo.BarTest", "runs") == ("com.foo.BarTest::runs", False)


def test_without_anything_else_the_naming_convention_is_a_guess() -> None:
    ids = JunitIds()
    assert map_one(ids, "tests.test_pkg.test_mod.TestB", "t[a.b]") == (
        "tests/test_pkg/test_mod.py::TestB::t[a.b]",
        False,
    )
    assert map_one(ids, "pkg.optim_test", "t") == ("pkg/optim_test.py::t", False)
    assert map_one(ids, "org.apache.FooSuite", "runs") == ("org.apache.FooSuite::runs", False)


SUITE = r"""
import pytest
class TestOuter:
    class TestInner:
        @pytest.mark.parametrize("x", ["v1.0::q", "a/b", "x[1]", "", "é", "日本", "\x1b[0m", "a\\b", "a b"])
        def test_x(self, x): assert x != "a/b"
def test_plain(): pass
"""


@pytest.mark.parametrize("family", ["xunit1", "xunit2"])
def test_real_reports_join_completely(tmp_path: Path, family: str) -> None:
    folder = tmp_path / "pkg.v2" / "test_dir"
    folder.mkdir(parents=True)
    (folder / "test_suite.py").write_text(textwrap.dedent(SUITE), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    listing = subprocess.run(
        [*command, "--collect-only"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    collected = read_collected(listing.stdout)
    assert len(collected) == 10
    subprocess.run([*command, "--junitxml=j.xml", "-o", f"junit_family={family}"], cwd=tmp_path, check=False)
    exact = read_junit(tmp_path / "j.xml", JunitIds(collected))
    assert exact.node_ids.to_pylist() == collected
    assert exact.is_joined.all()
    alone = read_junit(tmp_path / "j.xml")
    if family == "xunit1":
        assert alone.is_joined.all()
        assert alone.node_ids.to_pylist() == collected
    else:
        assert not alone.is_joined.any()

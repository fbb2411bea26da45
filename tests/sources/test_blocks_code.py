"""Every code object that an interpreter makes of a file finds the block that it belongs to."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import blocks_probe
import pytest
from _pytest.assertion.rewrite import rewrite_asserts
from interpreters import OTHERS, find_python

from fastci_ml.sources.blocks.block import FILE_BLOCK
from fastci_ml.sources.blocks.reader import read_blocks

STDLIB = Path(sysconfig.get_path("stdlib"))

SOURCE = '''\
"""Doc."""
import functools
lam = lambda: [x for x in range(3)]
if any(n for n in [1]):
    table = {k: (lambda: k) for k in "ab"}
@functools.wraps(
    lam
)
@(lambda f: f)
def deco(x=lambda: 0, *, y=[a for a in "b"]):
    """Doc."""
    def inner():
        class Local(int):
            z = lambda self: {i for i in "c"}
            def m(self, d=lambda: 1):
                return (g for g in "d")
        return Local
    async def co():
        return [a async for a in b]
    return inner
class A(dict, metaclass=(lambda: type)()):
    attr = [lambda: 2]
    if True:
        attr2 = [lambda: 3]
    @property
    def p(self): return 1
    @p.setter
    def p(self, v): return 2
    class B:
        def __hidden(self): return lambda: 4
    @staticmethod
    @functools.cache
    def s(): pass
if lam:
    def twice(): return 1
else:
    def twice(): return [lambda: 5]
for i in range(3):
    def in_loop(d=lambda: 6): return lambda: 7
    class InLoop:
        a = lambda: 8
        def m(self): pass
    c = lambda: 9
try:
    with open(lam()) as f, (lambda: f)() as g:
        h = lambda: 10
except (lambda: ValueError)():
    pass
def outer():
    global GlobalClass, global_function
    class GlobalClass:
        def m(self): return lambda: 11
    def global_function(): return lambda: 12
class WithGlobal:
    global module_level
    def module_level(): return lambda: 13
match lam:
    case [q] if (lambda: q)():
        r = lambda: 14
assert (lambda: 15)(), [w for w in "x"]
'''
FOUND = {
    "<module>:1": None,
    "<lambda>:3": "lam",
    "<lambda>.<locals>.<listcomp>:3": "lam",
    "<genexpr>:4": "<if any(...)>",
    "<dictcomp>:5": "table",
    "<dictcomp>.<lambda>:5": "table",
    "<lambda>:5": "table",  # 3.12 and later have no code object of the comprehension
    "<lambda>:9": "deco",
    "<lambda>:10": "deco",
    "<listcomp>:10": "deco",
    "deco:6": "deco",
    "deco.<locals>.inner:12": "deco.<locals>.inner",
    "deco.<locals>.inner.<locals>.Local:13": "deco.<locals>.inner.<locals>.Local",
    "deco.<locals>.inner.<locals>.Local.<lambda>:14": "deco.<locals>.inner",
    "deco.<locals>.inner.<locals>.Local.<lambda>.<locals>.<setcomp>:14": "deco.<locals>.inner",
    "deco.<locals>.inner.<locals>.Local.<lambda>:15": "deco.<locals>.inner.<locals>.Local.m",
    "deco.<locals>.inner.<locals>.Local.m:15": "deco.<locals>.inner.<locals>.Local.m",
    "deco.<locals>.inner.<locals>.Local.m.<locals>.<genexpr>:16": "deco.<locals>.inner.<locals>.Local.m",
    "deco.<locals>.co:18": "deco.<locals>.co",
    "deco.<locals>.co.<locals>.<listcomp>:19": "deco.<locals>.co",
    "<lambda>:21": "A",
    "A:21": "A",
    "A.<lambda>:22": "A.attr",
    "A.<lambda>:24": "A.attr2",
    "A.p:25": "A.p",
    "A.p:27": "A.p#2",
    "A.B:29": "A.B",
    "A.B.__hidden:30": "A.B.__hidden",
    "A.B.__hidden.<locals>.<lambda>:30": "A.B.__hidden",
    "A.s:31": "A.s",
    "twice:35": "twice",
    "twice:37": "twice#2",
    "twice.<locals>.<lambda>:37": "twice#2",
    "<lambda>:39": "in_loop",
    "in_loop:39": "in_loop",
    "in_loop.<locals>.<lambda>:39": "in_loop",
    "InLoop:40": "InLoop",
    "InLoop.<lambda>:41": "<effect for i in range(3)>",
    "InLoop.m:42": "InLoop.m",
    "<lambda>:43": "<effect for i in range(3)>",
    "<lambda>:45": "<effect with open(lam()), ...()>",
    "<lambda>:46": "h",
    "<lambda>:47": "<effect except ...()>",
    "outer:49": "outer",
    "GlobalClass:51": "GlobalClass",
    "GlobalClass.m:52": "GlobalClass.m",
    "GlobalClass.m.<locals>.<lambda>:52": "GlobalClass.m",
    "global_function:53": "global_function",
    "global_function.<locals>.<lambda>:53": "global_function",
    "WithGlobal:54": "WithGlobal",
    "module_level:56": "module_level",
    "module_level.<locals>.<lambda>:56": "module_level",
    "<lambda>:58": "<effect match lam>",
    "<lambda>:59": "r",
    "<lambda>:60": "<effect assert ...()>",
    "<listcomp>:60": "<effect assert ...()>",
}

TYPED = """\
type X[T: (lambda: int)] = list[T]
def f[T: int, *U](x: T = (lambda: 0)()) -> [a for a in []]:
    def g[V: int](): return [lambda: 1]
    type Z = list[int]
    return g
class A[T: str](list[(lambda: T)]):
    @dec(lambda: 1)
    def m[K](self, x=lambda: 0): pass
    type W[Q] = list[Q]
    class B[R: int]:
        def n(self): pass
"""
FOUND_TYPED = {
    "<generic parameters of X>:1": "X",
    "T:1": "X",
    "X:1": "X",
    "<generic parameters of f>:2": "f",
    "T:2": "f",
    "f:2": "f",
    "f.<locals>.<generic parameters of g>:3": "f.<locals>.g",
    "f.<locals>.g:3": "f.<locals>.g",
    "f.<locals>.g.<locals>.<lambda>:3": "f.<locals>.g",
    "f.<locals>.Z:4": "f",
    "<generic parameters of A>:6": "A",
    "A:6": "A",
    "A.<generic parameters of m>:7": "A.m",
    "A.m:7": "A.m",
    "A.<generic parameters of W>:9": "A.W",
    "A.W:9": "A.W",
    "A.<generic parameters of B>:10": "A.B",
    "A.B:10": "A.B",
    "A.B.n:11": "A.B.n",
}


def sample(folder: Path, step: int) -> list[str]:
    """Every so-manieth Python file below a folder, packages of others left out."""
    files = sorted(
        path for path in folder.rglob("*.py") if "site-packages" not in path.relative_to(folder).parts
    )
    return [str(path) for path in files[::step]]


def check_found(found: dict[str, str | None], expected: dict[str, str | None]) -> None:
    wrong = {
        key: (name, expected.get(key, "?")) for key, name in found.items() if expected.get(key, "?") != name
    }
    assert not wrong
    # Interpreters differ in which comprehensions have code objects, and in nothing else.
    assert [key for key in expected.keys() - found.keys() if "comp>" not in key and key != "<lambda>:5"] == []


def test_each_kind_of_code_object_finds_its_block() -> None:
    found = blocks_probe.found_blocks(SOURCE.encode())
    check_found(found, FOUND)


@pytest.mark.parametrize("version", OTHERS)
def test_each_kind_of_code_object_finds_its_block_on_other_interpreters(version: str) -> None:
    program = find_python(version)
    if program is None:
        pytest.skip(f"no Python {version} on this machine")
    found, typed = blocks_probe.ask_probe(program, "found", [SOURCE, TYPED])
    check_found(found, FOUND)
    missing = {key: name for key, name in FOUND_TYPED.items() if typed.get(key) != name}
    assert not missing
    assert [key for key, name in typed.items() if name is None] == ["<module>:1"]


def test_code_objects_of_the_standard_library_find_their_blocks() -> None:
    lost = {}
    n_codes = 0
    for path in sample(STDLIB, 60):
        n_found, lost_here = blocks_probe.lost_codes(Path(path).read_bytes())
        n_codes += n_found
        if lost_here:
            lost[path] = lost_here
    assert not lost
    assert n_codes > 500


@pytest.mark.parametrize("version", OTHERS)
def test_code_objects_of_other_standard_libraries_find_their_blocks(version: str) -> None:
    program = find_python(version)
    if program is None:
        pytest.skip(f"no Python {version} on this machine")
    code = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    stdlib = subprocess.run([program, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    files = sample(Path(stdlib), 60)
    answers = blocks_probe.ask_probe(program, "lost", files)
    assert {path: lost for path, (_, lost) in zip(files, answers, strict=True) if lost} == {}
    assert sum(n_codes for n_codes, _ in answers) > 500


@pytest.mark.slow
@pytest.mark.parametrize("version", ["", *OTHERS])
def test_all_code_objects_of_what_is_installed_find_their_blocks(version: str) -> None:
    program = find_python(version) if version else sys.executable
    if program is None:
        pytest.skip(f"no Python {version} on this machine")
    code = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    stdlib = subprocess.run([program, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    files = sample(Path(stdlib), 1)
    for name in ("torch", "hypothesis", "mlflow", "pandas"):
        files += sample(Path(sysconfig.get_path("purelib")) / name, 1)
    answers = blocks_probe.ask_probe(program, "lost", files)
    lost = {path: codes for path, (_, codes) in zip(files, answers, strict=True) if codes}
    # Two statements of one line, each with a lambda: by name and line they cannot be told apart.
    lost = {path: codes for path, codes in lost.items() if not _share_a_line(Path(path).read_bytes(), codes)}
    assert lost == {}
    assert sum(n_codes for n_codes, _ in answers) > 70_000


def _share_a_line(source: bytes, codes: list[str]) -> bool:
    lines = [int(code.rpartition(":")[2]) for code in codes]
    body = ast.parse(source).body
    return all(sum(node.lineno <= line <= (node.end_lineno or 0) for node in body) > 1 for line in lines)


def test_rewritten_asserts_keep_names_and_lines() -> None:
    source = b"""\
import pytest
@pytest.mark.parametrize("n", [1])
def test_a(n):
    assert [x for x in range(n)] == [0], "message"
    assert (lambda: n)() or any(y for y in "a")
class TestB:
    def test_c(self):
        assert {z for z in "a"} != 1
"""
    tree = ast.parse(source)
    rewrite_asserts(tree, source)
    code = compile(tree, "test_it.py", "exec", dont_inherit=True)
    blocks = read_blocks(source)
    found = {
        item.co_qualname.replace("TestB.", ""): getattr(
            blocks.at(item.co_qualname, item.co_firstlineno), "name", None
        )
        for item in blocks_probe.code_objects(code)
    }
    assert found["test_a"] == "test_a"
    assert found["test_c"] == "TestB.test_c"
    assert found["test_a.<locals>.<lambda>"] == "test_a"
    assert found["test_a.<locals>.<genexpr>"] == "test_a"
    assert [name for name, block in found.items() if block is None] == ["<module>"]


@pytest.mark.parametrize(
    ("qualname", "line"),
    [
        ("g", 1),
        ("f", 2),
        ("f.<locals>.g", 1),
        ("<lambda>", 4),
        ("A.f", 1),
        ("f.<locals>.<lambda>", 3),
        ("", 1),
    ],
)
def test_what_the_file_does_not_hold_is_not_guessed(qualname: str, line: int) -> None:
    assert read_blocks(b"def f():\n    return lambda: 0\nx = 1\n").at(qualname, line) is None


def test_two_statements_of_one_line_are_not_told_apart() -> None:
    blocks = read_blocks(b"a = lambda: 0; b = lambda: 1\nc = lambda: 2; d = 3\n")
    assert blocks.at("<lambda>", 1) is None
    assert blocks.at("<lambda>", 2) is None


def test_code_of_a_file_that_does_not_parse_belongs_to_the_file() -> None:
    blocks = read_blocks(b"def f(:\n")
    assert blocks.at("f", 1) is blocks.by_name[FILE_BLOCK]
    assert blocks.at("<module>", 1) is None


def test_owners_go_from_the_innermost_out() -> None:
    blocks = read_blocks(SOURCE.encode())
    method = blocks.by_name["deco.<locals>.inner.<locals>.Local.m"]
    assert [block.name for block in blocks.owners(method)] == [
        "deco.<locals>.inner.<locals>.Local",
        "deco.<locals>.inner",
        "deco",
    ]
    assert blocks.owners(blocks.by_name["deco"]) == ()
    assert [block.name for block in blocks.owners(blocks.by_name["A.B.__hidden"])] == ["A.B", "A"]


def test_lines_of_a_function_are_those_of_the_interpreter() -> None:
    blocks = read_blocks(inspect.getsource(sys.modules[__name__]).encode())
    for name, item in _functions().items():
        block = blocks.at(item.__code__.co_qualname, item.__code__.co_firstlineno)
        assert block is not None
        assert block.name == name
        lines, first_line = inspect.getsourcelines(item)
        assert (block.first_line, block.last_line) == (first_line, first_line + len(lines) - 1)


def _functions() -> dict[str, Any]:
    module = sys.modules[__name__]
    return {
        name: inspect.unwrap(item)
        for name, item in vars(module).items()
        if inspect.isfunction(item) and item.__module__ == module.__name__
    }

"""What the statements of a file become: names, kinds, and what else changes with each."""

from __future__ import annotations

import pytest

from fastci_ml.records.evidence_kinds import BlockKind
from fastci_ml.sources.blocks.block import FILE_BLOCK, Block
from fastci_ml.sources.blocks.module_blocks import ModuleBlocks
from fastci_ml.sources.blocks.reader import read_blocks

BINDING, EFFECT = BlockKind.BINDING, BlockKind.EFFECT


def read(source: str) -> ModuleBlocks:
    blocks = read_blocks(source.encode())
    assert blocks.is_parsed
    assert len(blocks.by_name) == len(blocks.blocks)
    return blocks


def only(source: str) -> Block:
    (block,) = read(source).blocks
    return block


def changed(before: str, after: str) -> set[str]:
    """Names whose fingerprints differ, those added and taken away included."""
    old = {block.name: block.fingerprint for block in read(before).blocks}
    new = {block.name: block.fingerprint for block in read(after).blocks}
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


@pytest.mark.parametrize(
    ("source", "name", "binds"),
    [
        ("A = 1", "A", ("A",)),
        ("A: int = 1", "A", ("A",)),
        ("A: int", "A", ("A",)),
        ("A = B = 1", "A,B", ("A", "B")),
        ("(A, [B, *C]), D = f()", "A,B,C,D", ("A", "B", "C", "D")),
        ("A = logging.getLogger(__name__)", "A", ("A",)),
        ("A = [x for x in range(3)]", "A", ("A",)),
        ("A = (B := 1)", "A,B", ("A", "B")),
        ("del A", "A", ("A",)),
        ("__all__ = ['a']", "__all__", ("__all__",)),
        ("__all__ += ['a']", "__all__", ("__all__",)),
        ("import a.b.c", "a", ("a",)),
        ("import a.b.c as d", "d", ("d",)),
        ("from .a import b as c", "c", ("c",)),
        ("from ..a.b import *", "..a.b.*", ("..a.b", "*")),
        ("for a in (1, 2): b = a", "a,b", ("a", "b")),
    ],
)
def test_statements_that_bind(source: str, name: str, binds: tuple[str, ...]) -> None:
    block = only(source)
    assert (block.kind, block.name, block.binds) == (BINDING, name, binds)
    in_class = read(f"class K:\n    {source}\n") if "*" not in source else None
    if in_class is not None:
        block = in_class.blocks[1]
        assert (block.kind, block.name, block.owner, block.binds) == (BINDING, f"K.{name}", "K", binds)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("register( 'x' , Foo )", "<effect register('x', Foo)>"),
        ("A.b = 1", "<effect A.b = 1>"),
        ("A['b'] = f", "<effect A['b'] = f>"),
        ("os.environ['X'] = '1'", "<effect os.environ['X'] = '1'>"),
        ("del A[1]", "<effect del A[1]>"),
        ("A += 1", "<effect A Add= 1>"),
        ("A = registry.register(f)", "<effect A = registry.register(f)>"),
        ("A, B.c = 1, 2", "<effect (A, B.c) = (1, 2)>"),
        ("for a in b: register(a)", "<effect for a in b>"),
        ("for a in b: R[a] = 1", "<effect for a in b>"),
        ("while f(): pass", "<effect while f()>"),
        ("assert f()", "<effect assert f()>"),
        ("raise E('x')", "<effect raise E('x')>"),
        ("x = 1\n'no docstring'", "<effect 'no docstring'>"),
        ("with f(): pass", "<effect with f()>"),
        ("if setup(): pass", "<effect if setup()>"),
        ("if (a := 1): pass", "<effect if ...>"),
        ("match f(): \n case 1: pass", "<effect match f()>"),
        ("match A: \n case [x]: pass", "<effect match A>"),
        ("from __future__ import annotations", "<effect from __future__ import annotations>"),
        ("f('" + "x" * 100 + "')", "<effect f('" + "x" * 54 + "...>"),
    ],
)
def test_statements_for_their_effect(source: str, name: str) -> None:
    effect = read(source).blocks[-1]
    assert (effect.kind, effect.name) == (EFFECT, name)


def test_effects_keep_their_names_when_others_come_and_go() -> None:
    before = read("a()\nb()\na()\n")
    after = read("b()\nnew()\na()\na()\n")
    assert [block.name for block in before.blocks] == ["<effect a()>", "<effect b()>", "<effect a()>#2"]
    assert set(before.by_name) < set(after.by_name)


def test_order_of_effects_and_of_what_is_computed_after_them_counts() -> None:
    assert changed("a()\nb()\n", "b()\na()\n")
    assert changed("seed(0)\nX = rand()\n", "X = rand()\nseed(0)\n") >= {"X"}
    assert changed("os.environ['A'] = '1'\nimport torch\n", "import torch\nos.environ['A'] = '1'\n") >= {
        "torch"
    }
    # Plain values and functions stand where they stand.
    assert changed("a()\nX = 1\ndef f(): pass\n", "X = 1\ndef f(): pass\na()\n") == set()


def test_a_name_more_in_an_import_touches_no_other() -> None:
    assert changed("from a import (b, c)", "from a import (b, d, c)") == {"d"}
    assert changed("import a, b", "import b") == {"a"}


def test_what_occurs_again_is_told_apart() -> None:
    source = """
@overload
def f(a: int): ...
@overload
def f(a: str): ...
def f(a):
    def g(): return 1
    def g(): return 2
class A:
    x = 1
    x = 2
    def x(self): ...
A = 1
"""
    assert [block.name for block in read(source).blocks] == [
        "f", "f#2", "f#3", "f#3.<locals>.g", "f#3.<locals>.g#2", "A", "A.x", "A.x#2", "A.x#3", "A#2",
    ]  # fmt: skip


def test_blocks_of_every_depth_stand_in_file_order() -> None:
    source = """
def f():
    class A:
        def m(self):
            def g(): pass
    def h(): pass
class B:
    class C:
        def m(self): pass
    def n(self): pass
"""
    blocks = read(source)
    assert [(block.name, block.owner) for block in blocks.blocks] == [
        ("f", ""),
        ("f.<locals>.A", "f"),
        ("f.<locals>.A.m", "f.<locals>.A"),
        ("f.<locals>.A.m.<locals>.g", "f.<locals>.A.m"),
        ("f.<locals>.h", "f"),
        ("B", ""),
        ("B.C", "B"),
        ("B.C.m", "B.C"),
        ("B.n", "B"),
    ]
    lines = [block.first_line for block in blocks.blocks]
    assert lines == sorted(lines)
    assert (blocks.by_name["f"].first_line, blocks.by_name["f"].last_line) == (2, 6)


def test_statements_in_conditions_are_blocks_of_their_own() -> None:
    before = "if TYPE_CHECKING:\n    from a import b\nelse:\n    b = 1\n"
    after = "if TYPE_CHECKING:\n    from a import b\n    C = 1\nelse:\n    b = 1\n"
    assert changed(before, after) == {"C"}
    assert changed(before, before.replace("TYPE_CHECKING", "not TYPE_CHECKING")) == {"b", "b#2"}
    assert changed("if a:\n  X = 1\nelif b:\n  Y = 1", "if a:\n  X = 1\nelif c:\n  Y = 1") == {"Y"}
    assert changed("match a:\n case 1:\n  X = 1\n", "match a:\n case 2:\n  X = 1\n") == {"X"}
    deep = "if a:\n  if b:\n    try: X = 1\n    finally: Y = 1\n"
    assert changed(deep, deep.replace("if a", "if c")) == {"X", "Y"}
    nested = "class A:\n    if a:\n        def f(self): pass\n        class B:\n            x = 1\n"
    assert changed(nested, nested.replace("if a", "if b")) == {"A.f", "A.B", "A.B.x"}


def test_a_condition_that_does_something_is_an_effect_by_itself() -> None:
    source = "if setup():\n    X = 1\n"
    assert [block.name for block in read(source).blocks] == ["<effect if setup()>", "X"]
    assert changed(source, source.replace("setup()", "setup(1)")) == {
        "<effect if setup()>", "<effect if setup(1)>", "X",
    }  # fmt: skip
    assert [block.name for block in read("if torch.cuda.is_available():\n    X = 1\n").blocks] == ["X"]


TRY = """\
try:
    import flash
    HAS = True
except ImportError:
    HAS = False
else:
    OTHER = 1
"""


def test_what_may_raise_in_a_try_decides_over_all_of_it() -> None:
    assert changed(TRY, TRY.replace("import flash", "import flash, flash.extra as e")) == {
        "flash", "e", "HAS", "HAS#2", "OTHER",
    }  # fmt: skip
    assert changed(TRY, TRY.replace("ImportError", "ValueError")) == {"flash", "HAS", "HAS#2", "OTHER"}
    # A plain value cannot.
    assert changed(TRY, TRY.replace("    HAS = True", "    HAS = True\n    MORE = 1")) == {"MORE"}
    for value in ("None", "-1", "[1, ('a', {'b': 2})]"):
        assert changed(TRY, TRY.replace("HAS = True", f"HAS = {value}")) == {"HAS"}
    for value in ("f()", "a.b", "a[0]", "-'a'", "{[]: 1}", "[f()]"):
        after = TRY.replace("HAS = True", f"HAS = {value}")
        assert changed(TRY, after) == {"flash", "HAS", "HAS#2", "OTHER"}
    suppress = TRY.replace("try:", "with suppress(ImportError):").split("except")[0]
    assert changed(suppress, suppress.replace("import flash", "import flash, e")) == {"flash", "e", "HAS"}


def test_a_loop_is_one_block_and_its_functions_are_others() -> None:
    source = "for i in x:\n    def f(): return 1\n    R[i] = f\n"
    loop, function = read(source).blocks
    assert (loop.name, loop.kind, function.name) == ("<effect for i in x>", EFFECT, "f")
    assert {"f", "i"} <= set(loop.binds)
    assert changed(source, source.replace("return 1", "return 2")) == {"<effect for i in x>", "f"}


@pytest.mark.parametrize(
    ("decorator", "is_effect"),
    [
        ("register('x')", True),
        ("app.route('/')", True),
        ("registry.models.register", True),
        ("torch.library.custom_op('a::b')", True),
        ("own", True),
        ("handlers[0]", True),
        ("(lambda f: f)", True),
        ("pytest.fixture(autouse=True)", True),
        ("pytest.fixture(autouse=False)", False),
        ("pytest.fixture", False),
        ("pytest.mark.parametrize('a', [1])", False),
        ("pytest.mark.gpu", False),
        ("mock.patch.object(a, 'b')", False),
        ("property", False),
        ("x.setter", False),
        ("functools.lru_cache(maxsize=None)", False),
        ("dataclass(frozen=True)", False),
        ("torch.no_grad()", False),
        ("triton.jit", False),
        ("given(st.integers())", False),
    ],
)
def test_decorators_that_may_register_are_an_effect_beside_the_definition(
    decorator: str, is_effect: bool
) -> None:
    for head in ("def f(): pass", "class f: pass"):
        kinds = [block.kind for block in read(f"@{decorator}\n{head}\n").blocks]
        assert kinds[1:] == ([EFFECT] if is_effect else [])


def test_the_effect_of_decorators_changes_with_them_and_not_with_the_body() -> None:
    source = "class A:\n    @register('x')\n    def f(self): return 1\n"
    name = "A.<effect @register('x') f>"
    assert read(source).by_name[name].owner == "A"
    assert changed(source, source.replace("return 1", "return 2")) == {"A.f"}
    assert changed(source, source.replace("    @register('x')\n", "")) == {"A.f", name}


def test_the_body_of_a_class_is_not_its_head() -> None:
    source = "class A(B):\n    x = 1\n    def f(self): return 1\n"
    assert changed(source, source.replace("x = 1", "x = 2")) == {"A.x"}
    assert changed(source, source.replace("return 1", "return 2")) == {"A.f"}
    assert changed(source, source.replace("(B)", "(C)")) == {"A"}
    # Within a function it is the function's doing.
    local = "def g():\n" + "".join(f"    {line}\n" for line in source.splitlines())
    assert changed(local, local.replace("x = 1", "x = 2")) == {"g"}
    assert changed(local, local.replace("return 1", "return 2")) == {"g", "g.<locals>.A.f"}
    assert changed(local, local.replace("(B)", "(C)")) == {"g", "g.<locals>.A"}


def test_all_imports_are_seen_wherever_they_stand() -> None:
    source = """
import a, b.c as d
if TYPE_CHECKING:
    from .e import f as g, h
def k():
    from .. import l
    class M:
        import n
    def o(p=lambda: __import__("q")):
        import r
for s in t:
    import u
try:
    from v import *
except ImportError:
    import w
class X:
    import y
"""
    seen = read(source).imports
    assert [(item.module, item.level, item.names, item.line) for item in seen] == [
        ("a", 0, (), 2),
        ("b.c", 0, (), 2),
        ("e", 1, ("f", "h"), 4),
        ("", 2, ("l",), 6),
        ("n", 0, (), 8),
        ("r", 0, (), 10),
        ("u", 0, (), 12),
        ("v", 0, ("*",), 14),
        ("w", 0, (), 16),
        ("y", 0, (), 18),
    ]


@pytest.mark.parametrize("source", ["", "\n\n", "# comment\n", '"""Doc."""\n', "pass\n", "if a: pass\n"])
def test_files_that_do_nothing_have_no_blocks(source: str) -> None:
    assert read(source).blocks == ()


def test_a_file_that_does_not_parse_is_one_block_of_its_bytes() -> None:
    one, other = read_blocks(b"def f(:\n  pass\n"), read_blocks(b"def f(: \n  pass\n")
    (block,) = one.blocks
    assert not one.is_parsed
    assert (block.name, block.kind, block.first_line, block.last_line) == (FILE_BLOCK, BlockKind.FILE, 1, 3)
    assert block.is_dynamic
    assert len(block.fingerprint) == 16
    assert block.fingerprint != other.blocks[0].fingerprint

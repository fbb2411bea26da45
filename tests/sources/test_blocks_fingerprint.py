"""What changes a fingerprint: all that the code does, and nothing else, on every interpreter alike."""

from __future__ import annotations

import ast
import io
import itertools
import sysconfig
import tokenize
from pathlib import Path

import blocks_probe
import pytest
from block_programs import Program, programs
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreters import OTHERS, find_python

from fastci_ml.records.evidence_kinds import BlockKind
from fastci_ml.sources.blocks.module_blocks import ModuleBlocks
from fastci_ml.sources.blocks.reader import read_blocks

STDLIB = Path(sysconfig.get_path("stdlib"))


def fingerprints(source: str) -> dict[str, str]:
    blocks = read_blocks(source.encode("utf-8", "surrogatepass"))
    assert blocks.is_parsed, source
    return {block.name: block.fingerprint for block in blocks.blocks}


def changed(before: str, after: str) -> set[str]:
    """Names whose fingerprints differ, those added and taken away included."""
    old, new = fingerprints(before), fingerprints(after)
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def facts(blocks: ModuleBlocks) -> list[object]:
    """All but lines."""
    return [
        [
            (b.name, b.kind, b.fingerprint, b.doc_fingerprint, b.owner, b.binds, b.reads)
            for b in blocks.blocks
        ],
        [(seen.module, seen.level, seen.names) for seen in blocks.imports],
        blocks.doc_fingerprint,
    ]


# Constants that are easily taken for one another.
LITERALS = [
    "0", "1", "True", "False", "None", "...", "0.0", "1.0", "-0.0", "1j", "1e400", "'1'", "b'1'", "''", "b''",
    "'a'", "b'a'", "'...'", "'None'", "'a\\n'", "'\\ud800'", "'?'", "'\\ud83d\\ude00'", "'\\U0001f600'",
    "'\\x00'", "'é'", "'e\\u0301'", "(1,)", "()", "[]", "{}", "{1}", "(1)", "not 1", "~1", "-1", "+1",
    "'a' 'b'", "'a', 'b'", "f'a'", "f'{a}'", "f'{a!r}'", "f'{a:b}'", "f'{a}b'", "a", "'_a'",
    "0x" + "f" * 5000,
    "10 ** 20", str(10**20), "1_000", "'a#1'", "'a#2'",
]  # fmt: skip


def test_each_literal_has_its_own_fingerprint() -> None:
    found = {literal: fingerprints(f"X = {literal}")["X"] for literal in LITERALS}
    same = {"1": "(1)"}
    for one, other in itertools.combinations(LITERALS, 2):
        assert (found[one] == found[other]) == (same.get(one) == other), (one[:20], other[:20])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("X = 1000", "X=(  1_000  )  # more"),
        ("X = 'ab'", 'X = "a" \\\n  "b"'),
        ("X = {'a': 1}", "X = {\n  'a': 1,\n}"),
        ("X = f'a{b}c'", "X = f'a' f'{b}' 'c'"),
        ("X = f'{b:}'", "X = f'{b}'"),
        ("X = u'a'", "X = 'a'"),
        ("X = 0x10", "X = 16"),
        ("X = a + b * c", "X = (a + (b * c))"),
        ("X = 1", "\ufeff# coding: utf-8\n\n\nX = 1;"),
        ("def X(a, b=1): return a", "def X(\n  a,\n  b = 1,\n):\n    # why\n    return (a)"),
        ("def X():\n  '''doc'''\n  return 1", "def X():\n  return 1"),
        ("class X(A): pass", "class X(A,):\n  '''doc'''\n  ..."),
        ("if a:\n  X = 1", "if (a): X = 1"),
        (
            "def X():\n\tif a: return 1\n\telse:\n\t\tif b: pass",
            "def X():\n if a:\n  return 1\n elif b:\n  pass",
        ),
    ],
)
def test_what_is_written_differently_and_does_the_same_is_equal(one: str, other: str) -> None:
    assert fingerprints(one)["X"] == fingerprints(other)["X"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # A10: what looks like a comment or docstring and is none.
        ('C = "a#1"', 'C = "a#2"'),
        (
            'K = """\n__global__ void f() { x[0] = 1; }\n"""',
            'K = """\n__global__ void f() { x[0] = 2; }\n"""',
        ),
        ('def f():\n  a()\n  """kernel 1"""', 'def f():\n  a()\n  """kernel 2"""'),
        ('def f():\n  b"doc"\n  return 1', 'def f():\n  b"doc2"\n  return 1'),
        ('def f():\n  f"doc"\n  return 1', 'def f():\n  f"doc2"\n  return 1'),
        ('x = 1\n"""no docstring"""', 'x = 1\n"""no docstring 2"""'),
        ("def f(): return 'a'", "def f(): return 'b'"),
        # Strings that look like the words between strings.
        ('X = ["x\\n\'\\ny", "z"]', 'X = ["y", "z\\n\'\\nx"]'),
        # Each thing of a function that runs.
        ("def f(): pass", "async def f(): pass"),
        ("def f(a): pass", "def f(b): pass"),
        ("def f(a): pass", "def f(*a): pass"),
        ("def f(a): pass", "def f(a, /): pass"),
        ("def f(a, b): pass", "def f(a, *, b): pass"),
        ("def f(*a, b): pass", "def f(*, a, b): pass"),
        ("def f(a, b=1): pass", "def f(a=1, b=2): pass"),
        ("def f(*, a=1, b): pass", "def f(*, a, b=1): pass"),
        ("def f(a: int): pass", "def f(a) -> int: pass"),
        ("@a\n@b\ndef f(): pass", "@b\n@a\ndef f(): pass"),
        ("@cache\ndef f(a): pass", "def f(a=cache): pass"),
        ("def f():\n  'doc'", "def f():\n  return 'doc'"),
        ("def f():\n  global x\n  x = 1", "def f():\n  x = 1"),
        ("def f():\n  def g(): return 1", "def f():\n  def g(): return 2"),
        ("def f():\n  class A:\n    x = 1", "def f():\n  class A:\n    x = 2"),
        ("def f():\n  class A:\n    def m(self): 1", "def f():\n  class A:\n    def m(self): 2"),
        ("def f():\n  def g(): 1\n  def h(): 2", "def f():\n  def h(): 2\n  def g(): 1"),
        ("class A(B): pass", "class A(C): pass"),
        ("class A(B): pass", "class A(x=B): pass"),
        ("@d\nclass A: pass", "class A: pass"),
        ("a = b = 1", "a = 1"),
        ("a: int = 1", "a: str = 1"),
        ("from a import b", "from .a import b"),
        ("from a import b", "from c import b"),
        ("import a.b", "import a.c"),
        ("import a as c", "import b as c"),
        ("if a:\n  X = 1\nelse:\n  Y = 1", "if a:\n  Y = 1\nelse:\n  X = 1"),
    ],
)
def test_what_does_something_else_differs(one: str, other: str) -> None:
    assert changed(one, other)


def test_a_true_docstring_counts_by_itself() -> None:
    one = read_blocks(b'"""M."""\nclass A:\n  """C."""\n  def f(self):\n    """F."""\n')
    other = read_blocks(b'"""M2."""\nclass A:\n  """C2."""\n  def f(self):\n    """F2."""\n')
    assert one.doc_fingerprint != other.doc_fingerprint
    for name in ("A", "A.f"):
        assert one.by_name[name].fingerprint == other.by_name[name].fingerprint
        assert one.by_name[name].doc_fingerprint != other.by_name[name].doc_fingerprint
    bare = read_blocks(b"class A:\n  def f(self): ...\n")
    assert [bare.doc_fingerprint, *(block.doc_fingerprint for block in bare.blocks)] == ["", "", ""]


# Forms of expressions by their holes: near misses of one another, with lists of every length.
ATOMS = ["a", "1", "()", "f()"]
FORMS = [
    "({}).a", "({})()", "({},)", "[{}]", "-({})", "not ({})", "lambda: ({})", "lambda a: ({})", "f(*{})",
    "lambda a, /, b: ({})", "lambda *a, b: ({})", "lambda *, a, b: ({})", "f(**{})", "({})[:]", "({})[::]",
    "[a for a in ({}) if a if b for a in d]", "[a for a in ({}) if a for b in d if a]", "(a := ({}))",
    "[a for a in b for c in ({})]", "[a for a in b if ({})]", "(a for a in ({}))", "[a for a in ({})]",
    "f'{{({})}}'", "f'{{({})!r}}'", "f'{{({}):x}}'", "f'a{{({})}}'", "f(a=({}))", "f(b=({}))", "{{({})}}",
    "({})({})", "({}, {})", "[{}, {}]", "({}) + ({})", "({}) - ({})", "({}) < ({})", "({})[{}]", "({})[{}:]",
    "({})[:{}]", "({})[::{}]", "{{({}): ({})}}", "{{**{}, a: ({})}}", "({}) and ({})", "({}) is ({})",
    "({}) in ({})", "lambda a=({}): ({})", "lambda *, a=({}): ({})", "lambda a, b=({}): ({})", "f(a({}), {})",
    "f(a, g({}), {})", "f({}, a=({}))", "f'{{({})}}{{({})}}'", "f'{{({}):{{({})}}}}'", "({}) or ({})",
    "({}, *{})", "a if ({}) else ({})", "({}) and ({}) and a", "(({}) and ({})) and a", "({}) < ({}) < a",
    "(({}) < ({})) < a",
]  # fmt: skip
CORE = ["({}).a", "({})()", "({})({})", "({})({}, {})", "({})(a={})", "({},)", "({}, {})"]
STATEMENTS = [
    "a = 1", "pass", "return a", "a", "del a", "del a, b", "global a", "import a", "import a as b",
    "import a, b", "from a import b", "from a import b as c", "from . import b", "a += 1", "a: int",
    "a: b = 1", "(a): int", "a = b = 1", "assert a", "assert a, b", "raise a", "raise a from b", "return",
]  # fmt: skip
COMPOUNDS = [
    "if a:\n{0}", "if a:\n{0}\nelse:\n{1}", "while a:\n{0}", "while a:\n{0}\nelse:\n{1}",
    "for a in b:\n{0}", "for a in b:\n{0}\nelse:\n{1}", "with a:\n{0}", "with a as b:\n{0}",
    "with a, b:\n{0}", "try:\n{0}\nexcept a:\n{1}", "try:\n{0}\nexcept a as b:\n{1}",
    "try:\n{0}\nfinally:\n{1}", "try:\n{0}\nexcept* a:\n{1}", "try:\n{0}\nexcept:\n{1}",
    "try:\n{0}\nexcept a: pass\nelse:\n{1}", "match a:\n case b:\n{0}", "match a:\n case [b, *c]:\n{0}",
    "match a:\n case {{1: b, **c}}:\n{0}", "match a:\n case A(b, c=d):\n{0}", "match a:\n case None:\n{0}",
    "match a:\n case 1 | 2 as b:\n{0}", "match a:\n case True:\n{0}",
    "match a:\n case False:\n{0}", "match a:\n case b if c:\n{0}",
    "def g():\n{0}", "def g(a):\n{0}", "class A:\n{0}", "class A:\n def m(self):\n{0}", "{0}\n{1}",
    "async def g():\n{0}",
]  # fmt: skip


def expressions(forms: list[str], atoms: list[str], max_size: int) -> list[str]:
    """All expressions of up to so many forms and atoms in each other."""
    by_size: list[list[str]] = [[], atoms]
    for size in range(2, max_size + 1):
        texts = []
        for form in forms:
            n_holes = form.replace("{{", "").count("{")
            for sizes in itertools.product(range(1, size), repeat=n_holes):
                if sum(sizes) == size - 1:
                    texts += [form.format(*part) for part in itertools.product(*(by_size[s] for s in sizes))]
        by_size.append(texts)
    return [text for texts in by_size for text in texts]


def functions() -> list[str]:
    """Functions of two statements in each other."""
    bodies = [_indent(atom) for atom in STATEMENTS]
    texts = [_at_left(form, pair) for form in COMPOUNDS for pair in itertools.product(bodies[::2], bodies)]
    inner = [_indent(text) for text in texts[::97]]
    texts += [_at_left(form, (body, "   pass")) for form in COMPOUNDS for body in inner]
    return list(dict.fromkeys("def f():\n" + _indent(text) for text in [*STATEMENTS, *texts]))


def _indent(text: str) -> str:
    return "".join(f"   {line}\n" for line in text.splitlines()).rstrip("\n")


def _at_left(form: str, bodies: tuple[str, str]) -> str:
    if form.startswith("{0}"):
        bodies = tuple("\n".join(line[3:] for line in body.splitlines()) for body in bodies)  # type: ignore[assignment]
    return form.format(*bodies)


@pytest.mark.parametrize(
    "sources",
    [
        [f"X = {text}" for text in expressions(FORMS, ATOMS, 3)],
        [f"X = {text}" for text in expressions(CORE, ["a"], 6)],
        functions(),
    ],
    ids=["expressions", "deep calls", "functions"],
)
def test_fingerprints_are_equal_where_trees_are(sources: list[str]) -> None:
    by_tree: dict[str, str] = {}
    by_fingerprint: dict[str, str] = {}
    for source in sources:
        try:
            tree = ast.dump(ast.parse(source))
        except SyntaxError:
            continue
        fingerprint = next(iter(fingerprints(source).values()))
        assert by_tree.setdefault(tree, fingerprint) == fingerprint, source
        assert by_fingerprint.setdefault(fingerprint, tree) == tree, source
    assert len(by_tree) > 200


@settings(max_examples=30)
@given(programs(), st.data())
def test_a_changed_literal_changes_the_blocks_around_it_and_no_others(
    program: Program, data: st.DataObject
) -> None:
    values = [str(number) for number in range(100, 100 + len(program.owners))]
    number = data.draw(st.integers(0, len(values) - 1))
    others = ["'text'", "0.5", "-1", "None", "b''", "True"]
    after = [*values]
    after[number] = data.draw(st.sampled_from(others))
    assert changed(program.text(values), program.text(after)) == program.owners[number]


def comments_added(source: str, data: st.DataObject) -> str:
    """A source with comments, blank lines and other docstrings where they change nothing."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    lines = source.splitlines()
    for token in reversed(tokens):
        if token.type == tokenize.NEWLINE and data.draw(st.booleans()):
            row = token.start[0] - 1
            extra = data.draw(st.sampled_from(["  # why", "   ", "\n\n", "\n# left of all\n", "  # '''"]))
            lines[row] = lines[row][: token.start[1]] + extra + lines[row][token.start[1] :]
    return "\n".join(lines).replace('"""Doc."""', '"""Other doc."""') + "\n"


@settings(max_examples=30)
@given(programs(), st.data())
def test_comments_blank_lines_and_docstrings_change_nothing(program: Program, data: st.DataObject) -> None:
    source = program.text([f"({number}, 'x')" for number in range(len(program.owners))])
    assert changed(source, comments_added(source, data)) == set()


@settings(max_examples=30)
@given(programs())
def test_names_kinds_and_owners_are_those_of_the_program(program: Program) -> None:
    source = program.text(["1"] * len(program.owners))
    blocks = read_blocks(source.encode())
    assert {block.name for block in blocks.blocks} == set().union(*program.owners)
    for block in blocks.blocks:
        line = source.splitlines()[block.first_line - 1].strip()
        is_class, is_function = line.startswith("class "), line.startswith(("def ", "@"))
        expected = BlockKind.CLASS if is_class else BlockKind.FUNCTION if is_function else BlockKind.BINDING
        assert block.kind is expected
        if block.owner:
            assert block.name.startswith(f"{block.owner}.")
            assert blocks.by_name[block.owner].kind in (BlockKind.CLASS, BlockKind.FUNCTION)


def stdlib_files(n_files: int) -> list[Path]:
    files = sorted(
        path
        for path in STDLIB.rglob("*.py")
        if "site-packages" not in path.parts and path.stat().st_size < 60_000 and path.name[:3] != "bad"
    )
    return files[:: len(files) // n_files][:n_files]


def test_real_files_written_anew_are_equal() -> None:
    n_blocks = 0
    for path in stdlib_files(30):
        source = path.read_bytes()
        blocks = read_blocks(source)
        if not blocks.is_parsed:
            continue
        again = read_blocks(ast.unparse(ast.parse(source)).encode("utf-8", "surrogatepass"))
        assert facts(again) == facts(blocks), path
        n_blocks += len(blocks.blocks)
    assert n_blocks > 500


@pytest.mark.parametrize("version", OTHERS)
def test_interpreters_agree_on_everything(version: str) -> None:
    program = find_python(version)
    if program is None:
        pytest.skip(f"no Python {version} on this machine")
    paths = stdlib_files(70)
    sources = [path.read_bytes() for path in paths]
    answers = blocks_probe.ask_probe(program, "describe", [str(path) for path in paths])
    for path, source, answer in zip(paths, sources, answers, strict=True):
        assert answer == blocks_probe.described(read_blocks(source)), path


STRINGS = r'''
A = f"a" "b" f"{c}" f"" "" f"d{e!r:>{w}}f" rf"\d{g}"
B = f"{a=}", f"{a = !s}", f"{a:%Y-%m-%d}", f"{{}}", f"{{{a}}}", f'{a["b"]}', f"{a:{b}{c}}", f"{a!a:}"
C = f"""
{a
 + b}
""", f"{lambda_}", f"{a if b else c}", f"{(lambda x: x)(1)}", f"{a:{'>'}{10}}", f"\N{BULLET}{a}"
D = b"a" b"\xff", "\ud800", 1e22, 1.5e-7, 0.1 + 0.2j, 1e16, 5e-324, 123456789.123456789
def f[T](): pass
'''


@pytest.mark.parametrize("version", OTHERS)
def test_interpreters_agree_on_odd_strings(version: str, tmp_path: Path) -> None:
    program = find_python(version)
    if program is None:
        pytest.skip(f"no Python {version} on this machine")
    file = tmp_path / "strings.py"
    source = STRINGS.replace("def f[T](): pass\n", "").encode()
    file.write_bytes(source)
    assert blocks_probe.ask_probe(program, "describe", [str(file)]) == [
        blocks_probe.described(read_blocks(source))
    ]

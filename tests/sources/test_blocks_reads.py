"""Which names the code of a block uses, and what else is known of it without running it."""

from __future__ import annotations

import pytest

from fastci_ml.sources.blocks.block import Block
from fastci_ml.sources.blocks.reader import read_blocks


def block(source: str, name: str = "f") -> Block:
    return read_blocks(source.encode()).by_name[name]


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("def f(a, *b, c, **d): return a, b, c, d", set()),
        ("def f(): return A", {"A"}),
        ("def f(): a = A; return a", {"A"}),
        ("def f(): return a.b.c", {"a", "b", "c"}),
        ("def f(x): x.y = 1", {"y"}),
        ("def f(x): return x.y", {"y"}),
        # What is evaluated around the function.
        ("def f(a=A): return a", {"A"}),
        ("def f(a: A) -> B: return a", {"A", "B"}),
        ("def f(a=a): return a", {"a"}),
        ("@d(A)\ndef f(): pass", {"d", "A"}),
        # Names that the function declares to be others'.
        ("def f():\n  global A\n  A = 1", {"A"}),
        ("def f(A):\n  def g():\n    global A\n    return A\n  return g", {"A"}),
        # Nested functions see names of those around them, classes hide none.
        ("def f(a):\n  b = 1\n  def g(c): return a, b, c, D\n  return g", {"D"}),
        ("def f():\n  class A:\n    b = 1\n    def m(self): return b\n  return A", {"b"}),
        ("def f():\n  x = 1\n  def g():\n    nonlocal x\n    x = 2", set()),
        # Comprehensions and lambdas have scopes of their own, but for what they are made over and `:=`.
        ("def f(): return [a for a in B]", {"B"}),
        ("def f(): return [a for a in a]", {"a"}),
        ("def f(): return [(a, c) for a in B for c in a], c", {"B", "c"}),
        ("def f(): return [b := a for a in C], b", {"C"}),
        ("def f(): return {k: v for k, v in A.items() if B}", {"A", "items", "B"}),
        ("def f(): return lambda a, b=C: (a, b, D)", {"C", "D"}),
        ("def f(): return (lambda a: a)(1), a", {"a"}),
        # All other ways to bind a name.
        ("def f():\n  for a in B: pass\n  return a", {"B"}),
        ("def f():\n  with A as a: return a", {"A"}),
        ("def f():\n  try: pass\n  except A as a: return a", {"A"}),
        ("def f(x):\n  match x:\n    case [a, *b]: return a, b\n    case {'k': c, **d}: return c, d", {"k"}),
        ("def f(x):\n  match x:\n    case A(b=1) as c: return c", {"A", "b"}),
        ("def f():\n  a += 1", set()),
        ("def f():\n  def a(): pass\n  class b: pass\n  return a, b", set()),
        # Imports name what they take.
        ("def f():\n  from a.b import c as d\n  return d.e", {"a", "b", "c", "e"}),
        ("def f():\n  import a.b as c\n  return c", {"a", "b"}),
        # Strings: names, dotted paths, code.
        ("def f(): return getattr(x, 'name')", {"getattr", "x", "name"}),
        ("def f(): patch('pkg.mod.Name')", {"patch", "pkg", "mod", "Name"}),
        ("def f(): return 'pkg.mod:Name'", {"pkg", "mod", "Name"}),
        ("def f(): return '_target_: pkg.Name, and more.'", {"pkg", "Name"}),
        ("def f(): return 'from pkg import NAME; print(NAME)'", {"from", "pkg", "import", "NAME", "print"}),
        ("def f(): return 'a sentence', b'name', 'a b'", set()),
        ("def f(a: 'pkg.A'): pass", {"pkg", "A"}),
        ("def f(): return f'{A}', f'{b.c:{D}}'", {"A", "b", "c", "D"}),
        # Examples in docstrings are code, their prose is not.
        ("def f():\n  '''Adds NAME.\n\n  >>> add(ONE)\n  TWO\n  '''", {"add", "ONE"}),
        # Parameters of tests and fixtures are names of fixtures.
        ("@pytest.fixture\ndef f(data): return data", {"pytest", "fixture", "data"}),
    ],
)
def test_names_that_a_function_uses(source: str, reads: set[str]) -> None:
    assert block(source).reads == reads


@pytest.mark.parametrize(
    ("source", "name", "reads"),
    [
        ("X = A.b + c('d')", "X", {"A", "b", "c", "d"}),
        ("X = [y for y in Z]", "X", {"Z"}),
        ("__all__ = ['a', 'b']", "__all__", {"a", "b"}),
        ("__all__ += ['a']", "__all__", {"__all__", "a"}),
        (
            "LAZY = {'Name': '.mod', 'Other': 'pkg.sub'}",
            "LAZY",
            {"Name", "mod", "Other", "pkg", "sub"},
        ),
        ("from a.b import c as d", "d", {"a", "b", "c"}),
        ("import a.b", "a", {"a", "b"}),
        ("class K(A, metaclass=B):\n  x = C", "K", {"A", "B"}),
        ("class K(A, metaclass=B):\n  x = C", "K.x", {"C"}),
        ("if A:\n  x = B", "x", {"A", "B"}),
        ("if A:\n  pass\nelif B:\n  def f(): return C", "f", {"A", "B", "C"}),
        ("try:\n  import a\nexcept E:\n  x = 1", "x", {"a", "E"}),
        ("with A as b:\n  x = C", "x", {"A", "C"}),
        ("def test_a(data, tmp_path): pass", "test_a", {"data", "tmp_path"}),
        ("class TestA:\n  def test_b(self, data): pass", "TestA.test_b", {"self", "data"}),
    ],
)
def test_names_that_a_statement_uses(source: str, name: str, reads: set[str]) -> None:
    assert block(source, name).reads == reads


@pytest.mark.parametrize(
    "code",
    [
        "getattr(a, b)", "getattr(a, 'b' + c)", "getattr(a, f'{b}')", "hasattr(a, b)", "setattr(a, b, 1)",
        "operator.attrgetter(a)", "methodcaller(a)", "globals()['a']", "vars(a)", "dir(a)", "eval(a)",
        "exec(a)", "a.__dict__", "importlib.import_module(a)", "import_module(a)", "__import__(a)",
        "sys.modules[a]",
        "dataclasses.fields(a)", "asdict(a)", "a.__subclasses__()", "inspect.getmembers(a)", "a.model_fields",
        "typing.get_type_hints(a)", "pkgutil.walk_packages(a)", "(lambda: getattr(a, b))()",
        "[getattr(a, b) for b in c]",
    ],
)  # fmt: skip
def test_names_that_are_computed_are_noted(code: str) -> None:
    assert block(f"def f(a, b): return {code}").is_dynamic
    assert block(f"def f():\n  def g(): return {code}\n  return g").is_dynamic
    assert block(f"def f(a, b, c={code}): pass").is_dynamic
    assert block(f"X = {code}", "X").is_dynamic


@pytest.mark.parametrize(
    "code",
    [
        "getattr(a, 'b')", "getattr(a, 'b', None)", "hasattr(a, 'b')", "attrgetter('a', 'b')", "model.eval()",
        "model.modules()", "a.fields", "a.b", "a['b']", "'globals'", "importlib.metadata",
        "inspect.signature(a)",
    ],
)  # fmt: skip
def test_names_that_stand_in_the_text_are_not_computed(code: str) -> None:
    assert not block(f"def f(a): return {code}").is_dynamic


@pytest.mark.parametrize(
    ("head", "is_dynamic"),
    [
        ("@dataclass\nclass K: pass", True),
        ("@dataclasses.dataclass(frozen=True)\nclass K: pass", True),
        ("class K(BaseModel): pass", True),
        ("class K(enum.Enum): pass", True),
        ("class K(A, metaclass=M): pass", True),
        ("class K(nn.Module): pass", False),
        ("class K: pass", False),
    ],
)
def test_classes_whose_fields_are_read_unnamed(head: str, is_dynamic: bool) -> None:
    assert block(head, "K").is_dynamic == is_dynamic


def test_readers_of_docstrings_are_known() -> None:
    assert block("def f(a): return a.__doc__").reads_doc
    assert block("def f(a): return inspect.getdoc(a)").reads_doc
    assert block("def f(a):\n  import doctest\n").reads_doc
    assert not block("def f(a):\n  '''__doc__'''\n  return a.doc").reads_doc


MODULE = "import os, config\n_CACHE = {}\nclass K: table = {}\n"


@pytest.mark.parametrize(
    "source",
    [
        "@functools.lru_cache\ndef f(): pass",
        "@cache\ndef f(): pass",
        "@cached_property\ndef f(self): pass",
        "@memoize(10)\ndef f(): pass",
        "@run_once\ndef f(): pass",
        "@lazy_property\ndef f(self): pass",
        "def f():\n  global _X\n  _X = 1",
        "def f(k): _CACHE[k] = 1",
        "def f(k): _CACHE[k].x = 1",
        "def f(k): return _CACHE.setdefault(k, 1)",
        "def f(k): _CACHE.update(k)",
        "def f(k): return [_CACHE.setdefault(k) for k in k]",
        "def f(k): K.table[k] = 1",
        "def f(k): K.last = k",
        "def f(cls, k): cls.last = k",
        "def f(self, k): type(self).last = k",
        "def f(self, k): self.__class__.table[k] = 1",
        "def f(k): config.cache[k] = 1",
        "def f(self):\n  if self._x is None:\n    self._x = make()\n  return self._x",
        "def f(self):\n  if not hasattr(self, '_x'):\n    self._x = make()",
        "def f(self, k):\n  if k not in self._t:\n    self._t[k] = make()",
        "def f(self):\n  try: return self._x\n  except AttributeError:\n    self._x = make()",
    ],
)
def test_functions_that_keep_what_they_computed(source: str) -> None:
    assert block(MODULE + source).is_memo


@pytest.mark.parametrize(
    "source",
    [
        "def f(k):\n  _CACHE = {}\n  _CACHE[k] = 1",
        "def f(_CACHE, k): _CACHE[k] = 1",
        "def f(k): return _CACHE[k]",
        "def f(k): del _CACHE[k]",
        "def f(k): _CACHE.clear()",
        "def f(k): return _CACHE.get(k)",
        "def f(self, k): self.x = k",
        "def f(self, k): self.items.append(k)",
        "def f(x=None):\n  if x is None:\n    x = 1\n  return x",
        "def f(self, x=None):\n  if x is None:\n    x = self.x\n  return x",
        "def f(self):\n  if self.x is None:\n    x = 1\n  return x",
        "def f(self):\n  if self.n > 3:\n    self.n = 0",
        "def f(k): os.environ['X'] = k",
        "@property\ndef f(self): return 1",
        "@torch.autocast('cuda', memory=1)\ndef f(): pass",
    ],
)
def test_functions_that_keep_nothing(source: str) -> None:
    assert not block(MODULE + source).is_memo


@pytest.mark.parametrize(
    ("body", "is_memo"),
    [
        ("if k not in seen:\n      seen[k] = fn(k)", True),
        ("try: return seen[k]\n    except KeyError:\n      seen[k] = fn(k)", True),
        ("nonlocal value\n    if value is None:\n      value = fn(k)", True),
        ("cache[k] = fn(k)", True),
        ("seen[k] = k", False),
        ("seen.append(k)", False),
        ("nonlocal value\n    value += 1", False),
    ],
)
def test_what_keeps_is_the_nested_function_that_asks_and_fills(body: str, is_memo: bool) -> None:
    head = "def deco(fn):\n  seen, cache, value = {}, {}, None\n  def inner(k):\n    "
    source = f"{head}{body}\n  return inner\n"
    blocks = read_blocks(source.encode())
    assert blocks.by_name["deco.<locals>.inner"].is_memo == is_memo
    assert not blocks.by_name["deco"].is_memo


def test_what_a_caching_call_is_bound_to_keeps() -> None:
    assert block("f = functools.lru_cache(None)(g)").is_memo


@pytest.mark.parametrize(
    ("source", "name", "is_implicit"),
    [
        ("def __getattr__(name): pass", "__getattr__", True),
        ("class K:\n  def __eq__(self, other): pass", "K.__eq__", True),
        ("def pytest_configure(config): pass", "pytest_configure", True),
        ("class K:\n  def setUp(self): pass", "K.setUp", True),
        ("def setup_module(): pass", "setup_module", True),
        ("@pytest.fixture(autouse=True)\ndef f(): pass", "f", True),
        ("@pytest.fixture\ndef f(): pass", "f", False),
        ("def f(): pass", "f", False),
        ("class K(Base): pass", "K", True),
        ("class K(metaclass=M): pass", "K", True),
        ("class K(nn.Module, ABC, Generic[T]): pass", "K", False),
        ("class K(MyError): pass", "K", False),
        ("class K: pass", "K", False),
    ],
)
def test_what_machinery_finds_unnamed(source: str, name: str, is_implicit: bool) -> None:
    assert block(source, name).is_implicit == is_implicit

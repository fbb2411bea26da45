"""Whatever the bytes, there is an answer, and where the interpreter can read them it is a whole one."""

from __future__ import annotations

import ast
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.sources.blocks.reader import read_blocks

UNREADABLE = {
    "null byte": b"a = 1\0",
    "unknown encoding": b"# coding: nosuch\n",
    "no encoding of text": b"# coding: hex\n",
    "undefined encoding": b"# coding: undefined\n",
    "not utf-8": b"x = '\xe9'",
    "utf-16": "x = 1".encode("utf-16"),
    "open parentheses": b"(" * 10_000,
    "too many minus": b"-" * 100_000 + b"1",
    "attributes too deep": b"a" + b".b" * 100_000,
    "sum too deep": b"+".join([b"1"] * 100_000),
    "number too long": b"x = " + b"9" * 5000,
    "unknown character": b"x = '\\N{nosuch}'",
    "tabs and blanks": b"if a:\n\tx = 1\n        y = 2\n",
    "python 2": b"print 'a'\n",
    "conflict": b"<<<<<<< HEAD\nx = 1\n",
}
READABLE = {
    "other encoding": b"# coding: latin-1\nx = '\xe9'",
    "byte order mark": b"\xef\xbb\xbfx = 1",
    "carriage returns": b"x = 1\rx = 2\r\nx = 3\n",
    "form feed": b"\x0cx = 1\n",
    "lone surrogate": b"x = '\\ud800'",
    "long number": b"x = 0x" + b"f" * 50_000,
    "odd escape": b"x = '\\d'",
    "no last newline": b"x = 1 # end",
    "long sum": b"x = " + b"+".join([b"1"] * 400),
    "wide condition": b"x = " + b" and ".join([b"a"] * 50_000),
    "long chain": b"if a: x = 1\n" + b"".join(b"elif a == %d: x = 2\n" % number for number in range(800)),
    "long chain in a function": b"def f():\n if a: x = 1\n" + b" elif a: x = 2\n" * 800,
    "many branches": b"match a:\n" + b" case 1: x = 2\n" * 1000,
    "many blocks": b"x = 1\n" * 20_000,
    "deep functions": b"".join(b" " * depth + b"def f():\n" for depth in range(95)) + b" " * 95 + b"x = 1\n",
    "deep classes": b"".join(b" " * depth + b"class A:\n" for depth in range(95)) + b" " * 95 + b"x = 1\n",
    "deep conditions": b"".join(b" " * depth + b"if a:\n" for depth in range(95)) + b" " * 95 + b"x = 1\n",
    "deep comprehensions": b"x = " + b"[" * 90 + b"a" + b" for a in b]" * 90,
    "deep lambdas": b"x = " + b"lambda: " * 200 + b"1",
}


@pytest.mark.parametrize("source", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_the_interpreter_refuses_is_one_block(source: bytes) -> None:
    blocks = read_blocks(source)
    assert not blocks.is_parsed
    assert len(blocks.blocks) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((SyntaxError, ValueError, MemoryError, RecursionError)):
            ast.parse(source)


@pytest.mark.parametrize("source", READABLE.values(), ids=READABLE.keys())
def test_what_the_interpreter_takes_is_read_whole(source: bytes) -> None:
    blocks = read_blocks(source)
    assert blocks.is_parsed
    assert len(blocks.by_name) == len(blocks.blocks) > 0


@settings(max_examples=150)
@given(st.binary(max_size=60) | st.text(alphabet="adef()[]{}:=,.*'\"\\\n \t#@lmbx01\0\ud800é", max_size=60))
def test_any_bytes_have_blocks(source: bytes | str) -> None:
    content = source if isinstance(source, bytes) else source.encode("utf-8", "surrogatepass")
    blocks = read_blocks(content)
    assert blocks.is_parsed or len(blocks.blocks) == 1


@settings(max_examples=150)
@given(st.data())
def test_damaged_files_have_blocks(data: st.DataObject) -> None:
    with open(__file__, "rb") as stream:  # noqa: PTH123
        source = stream.read()
    start = data.draw(st.integers(0, len(source)))
    end = data.draw(st.integers(start, min(len(source), start + 400)))
    damaged = source[:start] + data.draw(st.binary(max_size=6)) + source[end:]
    blocks = read_blocks(damaged)
    assert len(blocks.by_name) == len(blocks.blocks) > 0
    for block in blocks.blocks:
        assert 1 <= block.first_line <= block.last_line
        assert [item.name for item in blocks.owners(block)] == [block.owner][: len(block.owner)]

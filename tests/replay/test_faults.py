from __future__ import annotations

from pathlib import Path

import pytest

from fastci_ml.replay.faults import find_faults

PACKAGE = Path(__file__).parents[2] / "fastci_ml"


def slips(source: str, operator: str) -> list[str]:
    return [fault.apply(source) for fault in find_faults(source) if fault.operator == operator]


@pytest.mark.parametrize(
    ("operator", "source", "expected"),
    [
        ("swap-comparison", "a = b < c", ["a = b <= c"]),
        ("swap-comparison", "a = b not in c", ["a = b in c"]),
        ("swap-comparison", "a = 0 < b < 1", ["a = 0 <= b < 1"]),
        ("swap-arithmetic", "a = b * (c + d)", ["a = (b + (c + d))", "a = b * ((c - d))"]),
        ("swap-and-or", "a = b and c and d", ["a = (b or c or d)"]),
        ("off-by-one", "a = [0, True, 1.5, -2]", ["a = [1, True, 1.5, -2]", "a = [0, True, 1.5, -3]"]),
        ("negate-condition", "while a:\n    a()", ["while not (a):\n    a()"]),
        ("negate-condition", "a = b if c else d", ["a = b if not (c) else d"]),
        ("drop-statement", "a.b()\nc = 1\nd.e = 2\nf += 1", [
            "pass\nc = 1\nd.e = 2\nf += 1", "a.b()\nc = 1\npass\nf += 1", "a.b()\nc = 1\nd.e = 2\npass"]),
        ("return-none", "def f():\n    return a(\n        1,\n    )\n", ["def f():\n    return None\n"]),
        ("return-none", "def f():\n    return None\n", []),
        ("swap-arguments", "f(a, b, c, d=1)", ["f(b, a, c, d=1)"]),
        ("swap-arguments", "f(*a, b)", []),
        ("wrong-default", "def f(a, b=True, *, c='x', d=''): ...", [
            "def f(a, b=False, *, c='x', d=''): ...", "def f(a, b=True, *, c='', d=''): ...",
            "def f(a, b=True, *, c='x', d='x'): ..."]),
    ],
)  # fmt: skip
def test_operator_makes_its_slips_and_no_others(operator, source, expected):
    assert slips(source, operator) == expected


def test_characters_of_many_bytes_do_not_shift_the_span():
    assert slips('a = "日本é"; b = 1  # ü', "off-by-one") == ['a = "日本é"; b = 2  # ü']


def test_what_never_runs_gets_no_fault():
    source = (
        '"""Text, 1 < 2."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\n'
        "def f(a: Literal[1], b: X[2]) -> Y[3]:\n    '''1'''\n    c: Literal[4]\n    x = f'{a < 1}'\n"
    )
    assert find_faults(source) == []


def test_what_changes_nothing_is_no_fault():
    assert [fault.operator for fault in find_faults("x = f(a, a)")] == []
    assert [fault.after for fault in find_faults("x = f(a, b)")] == ["f(b, a)"]


def test_fault_of_another_text_is_refused():
    (fault,) = find_faults("a = 1")
    with pytest.raises(ValueError, match="expected b'1'"):
        fault.apply("a = 2")


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("records/*.py")), ids=lambda path: path.name)
def test_every_fault_of_our_own_source_changes_it_and_compiles(path):
    source = path.read_text()
    faults = find_faults(source)
    assert faults == find_faults(source)
    for fault in faults:
        changed = fault.apply(source)
        compile(changed, path.name, "exec")
        same = source[: len(source.encode()[: fault.start].decode())]
        assert changed.startswith(same)
        assert changed != source

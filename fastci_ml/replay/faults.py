"""Seeded faults: small, plausible mistakes put into Python source, one at a time.

The demo commits one; the recording of the project's own history uses many. Each replaces one span of text,
so that the change has the size of a real slip and everything else keeps its place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# Operator -> what a slip makes of it.
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
# Fields whose value never runs, or that no fault of ours may touch: annotations are text under
# `from __future__ import annotations`, and Python 3.11 gives wrong places inside f-strings.
_SKIPPED_FIELDS = frozenset({"annotation", "returns", "decorator_list"})
_SKIPPED_NODES = (ast.JoinedStr, ast.Import, ast.ImportFrom)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One mistake that one place of a source text could hold.

    Attributes
    ----------
    operator : str
        Kind of the slip, such as ``"swap-comparison"``.
    line : int
        Line where the replaced span starts, from 1.
    before, after : str
        The replaced text and its replacement.
    start : int
        Offset of the span in the UTF-8 bytes of the source.
    """

    operator: str
    line: int
    before: str
    after: str
    start: int

    def apply(self, source: str) -> str:
        """Source with the fault in it.

        Raises
        ------
        ValueError
            If the span of `source` does not hold `before`: the fault was found in another text.
        """
        raw, before = source.encode(), self.before.encode()
        end = self.start + len(before)
        if raw[self.start : end] != before:
            raise ValueError(f"line {self.line}: found {raw[self.start : end]!r}, expected {before!r}")
        return (raw[: self.start] + self.after.encode() + raw[end:]).decode()


def find_faults(source: str) -> list[Fault]:
    """Every fault that `source` could get, by place, then by operator.

    Examples
    --------
    >>> [(fault.operator, fault.before, fault.after) for fault in find_faults("if a < 3: b()")]
    [('negate-condition', 'a < 3', 'not (a < 3)'), ('swap-comparison', 'a < 3', 'a <= 3'),
     ('off-by-one', '3', '4'), ('drop-statement', 'b()', 'pass')]
    """
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    raw = source.encode()
    faults = []
    for node, operator, after in _slips(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before = raw[start:end].decode()
        if after == before:
            continue  # `f(a, a)` with its arguments swapped
        faults.append(Fault(operator=operator, line=node.lineno, before=before, after=after, start=start))
    return sorted(faults, key=lambda fault: (fault.start, fault.operator, fault.after))


def _slips(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """Replaced node, operator and new text, for every place and operator."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        for operator, make in _OPERATORS.items():
            for replaced, after in make(node):
                yield replaced, operator, after
        for name, value in ast.iter_fields(node):
            if name not in _SKIPPED_FIELDS:
                children = value if isinstance(value, list) else [value]
                pending += [
                    child for child in children if isinstance(child, ast.AST) and not _is_skipped(child)
                ]


def _is_skipped(node: ast.AST) -> bool:
    is_typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_typing or is_text or isinstance(node, _SKIPPED_NODES)


_Slips = Iterator[tuple[Any, str]]


def _swap_comparison(node: ast.AST) -> _Slips:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        other = _COMPARISONS[type(node.ops[0])]()
        swapped = ast.Compare(left=node.left, ops=[other, *node.ops[1:]], comparators=node.comparators)
        yield node, ast.unparse(swapped)


def _swap_arithmetic(node: ast.AST) -> _Slips:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        other = _ARITHMETIC[type(node.op)]()
        # In brackets: what stands around may bind tighter than the new operator.
        yield node, f"({ast.unparse(ast.BinOp(left=node.left, op=other, right=node.right))})"


def _swap_and_or(node: ast.AST) -> _Slips:
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, f"({ast.unparse(ast.BoolOp(op=other, values=node.values))})"


def _off_by_one(node: ast.AST) -> _Slips:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield node, str(node.value + 1)


def _negate_condition(node: ast.AST) -> _Slips:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield node.test, f"not ({ast.unparse(node.test)})"


def _drop_statement(node: ast.AST) -> _Slips:
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    # Dropping the assignment of a name mostly ends in a NameError: too easy to find.
    is_update = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name)
    if is_call or is_update or isinstance(node, ast.AugAssign):
        yield node, "pass"


def _return_none(node: ast.AST) -> _Slips:
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield node, "return None"


def _swap_arguments(node: ast.AST) -> _Slips:
    if isinstance(node, ast.Call) and len(node.args) > 1:
        first, second, *rest = node.args
        if not any(isinstance(argument, ast.Starred) for argument in (first, second)):
            yield (
                node,
                ast.unparse(ast.Call(func=node.func, args=[second, first, *rest], keywords=node.keywords)),
            )


def _wrong_default(node: ast.AST) -> _Slips:
    if isinstance(node, ast.arguments):
        for default in [*node.defaults, *node.kw_defaults]:
            if isinstance(default, ast.Constant) and isinstance(default.value, bool):
                yield default, str(not default.value)
            elif isinstance(default, ast.Constant) and isinstance(default.value, str):
                yield default, repr("" if default.value else "x")


_OPERATORS: dict[str, Callable[[ast.AST], _Slips]] = {
    "swap-comparison": _swap_comparison,
    "swap-arithmetic": _swap_arithmetic,
    "swap-and-or": _swap_and_or,
    "off-by-one": _off_by_one,
    "negate-condition": _negate_condition,
    "drop-statement": _drop_statement,
    "return-none": _return_none,
    "swap-arguments": _swap_arguments,
    "wrong-default": _wrong_default,
}

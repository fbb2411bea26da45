"""Short texts of statements: names for those that bind none."""

from __future__ import annotations

import ast
from typing import Any

_MAX_TEXT = 60


def describe(node: ast.AST) -> str:
    """Short text of a statement for its effect: the same on every interpreter, whatever the formatting.

    Examples
    --------
    >>> describe(ast.parse("registry.register( 'x',  make(1)[0], **more )").body[0])
    "registry.register('x', make(1)[0], **more)"
    """
    text = _text(node, 0)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _text(node: Any, depth: int) -> str:  # noqa: C901  one line for each kind of node
    if depth > 6:
        return "..."
    deeper = depth + 1
    match node:
        case ast.Expr():
            return _text(node.value, depth)
        case ast.Name():
            return str(node.id)
        case ast.Attribute():
            return f"{_text(node.value, deeper)}.{node.attr}"
        case ast.Constant(value=str() | bytes() as value):
            return ascii(value[:_MAX_TEXT])
        case ast.Constant(value=bool() | float() | None as value):
            return repr(value)
        case ast.Constant(value=int() as value):
            return f"{value}" if abs(value) < 1 << 64 else "..."
        case ast.Call():
            parts = [_text(item, deeper) for item in node.args[:4]]
            parts += [
                f"{word.arg}={_text(word.value, deeper)}" if word.arg else f"**{_text(word.value, deeper)}"
                for word in node.keywords[:4]
            ]
            return f"{_text(node.func, deeper)}({', '.join(parts)})"
        case ast.Subscript():
            return f"{_text(node.value, deeper)}[{_text(node.slice, deeper)}]"
        case ast.Starred():
            return f"*{_text(node.value, deeper)}"
        case ast.Assign():
            return " = ".join(_text(item, deeper) for item in (*node.targets, node.value))
        case ast.AnnAssign():
            return f"{_text(node.target, deeper)} = {_text(node.value, deeper)}"
        case ast.AugAssign():
            return f"{_text(node.target, deeper)} {type(node.op).__name__}= {_text(node.value, deeper)}"
        case ast.For() | ast.AsyncFor():
            return f"for {_text(node.target, deeper)} in {_text(node.iter, deeper)}"
        case ast.While() | ast.If():
            return f"{type(node).__name__.lower()} {_text(node.test, deeper)}"
        case ast.With() | ast.AsyncWith():
            return f"with {', '.join(_text(item.context_expr, deeper) for item in node.items)}"
        case ast.ExceptHandler():
            return f"except {_text(node.type, deeper)}"
        case ast.Match():
            return f"match {_text(node.subject, deeper)}"
        case ast.Tuple() | ast.List():
            return f"({', '.join(_text(item, deeper) for item in node.elts[:8])})"
        case ast.Assert():
            return f"assert {_text(node.test, deeper)}"
        case ast.Raise():
            return f"raise {_text(node.exc, deeper)}"
        case ast.Delete():
            return f"del {', '.join(_text(item, deeper) for item in node.targets)}"
        case None:
            return ""
    return "..."

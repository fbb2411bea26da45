"""What could not be used, a line each, whatever names and messages hold."""

from __future__ import annotations

# A hostile file may put anything into the message about it.
_LONGEST = 1_000


def as_line(text: str) -> str:
    r"""One line that can be printed.

    Examples
    --------
    >>> as_line("evil\n.zip: \x1b[31m")
    'evil\\n.zip: \\x1b[31m'
    """
    line = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)

"""Names that strings and import statements may stand for."""

from __future__ import annotations

import ast
import re

_WORD = re.compile(r"[^\W\d]\w*")
# A path of names in any text: configurations that name a class, patch targets, names in messages too.
_PATH = re.compile(r"[^\W\d]\w*(?:[.:]+[^\W\d]\w*)+")
_EXAMPLE = re.compile(r"^\s*(?:>>>|\.\.\.) (.*)$", re.MULTILINE)


def string_words(text: str) -> list[str]:
    """Names that a string may stand for: a name, the parts of dotted paths, all names of a piece of code.

    Examples
    --------
    >>> string_words(".name"), string_words("pkg.mod:Name"), string_words("a sentence of pkg.Name.")
    (['name'], ['pkg', 'mod', 'Name'], ['pkg', 'Name'])
    >>> string_words("import os; print(os)"), string_words("nothing")
    (['import', 'os', 'print', 'os'], ['nothing'])
    """
    # `.name` is one of a package's own modules, in tables of lazy imports.
    name = text.lstrip(".")
    if name.isidentifier():
        return [name]
    if "import " in text:
        return _WORD.findall(text)
    if "." in text or ":" in text:
        return [word for path in _PATH.findall(text) for word in _WORD.findall(path)]
    return []


def example_words(doc: str) -> list[str]:
    r"""Names in the examples of a docstring.

    Examples
    --------
    >>> example_words("Sum.\n\n>>> add(ONE, 2)\n3\n")
    ['add', 'ONE']
    """
    if ">>>" not in doc:
        return []
    return [word for line in _EXAMPLE.findall(doc) for word in _WORD.findall(line)]


def imported_words(node: ast.Import | ast.ImportFrom) -> tuple[list[str], list[str]]:
    """Names that an import statement uses, and those that it binds.

    Examples
    --------
    >>> imported_words(ast.parse("import a.b as c, d.e").body[0])
    (['a', 'b', 'd', 'e'], ['c', 'd'])
    """
    words: list[str] = []
    binds: list[str] = []
    if isinstance(node, ast.ImportFrom):
        if node.module:
            words += node.module.split(".")
        for alias in node.names:
            words.append(alias.name)
            binds.append(alias.asname or alias.name)
    else:
        for alias in node.names:
            parts = alias.name.split(".")
            words += parts
            binds.append(alias.asname or parts[0])
    return words, binds

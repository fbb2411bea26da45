"""Which files of a repository import statements can name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fastci_ml.sources.blocks.block import ImportSeen


def resolve_imports(
    imports: Iterable[ImportSeen], module_path: str, exists: Callable[[str], bool]
) -> frozenset[str]:
    """Files that the import statements of one module can name.

    Parameters
    ----------
    imports : iterable of ImportSeen
        Its statements.
    module_path : str
        Its own path, from the repository root, with ``/``.
    exists : callable
        Whether a path is a file of the repository.

    Returns
    -------
    frozenset of str
        Modules, with the ``__init__`` files of the packages on the way. A name that several folders could
        give names the file of each: which of them is on the path is not known from the text. Submodules
        that ``import *`` takes by a list are not among them: the text does not name them.

    Notes
    -----
    Absolute names are looked up from the root, from the folder of the module and each around it (pytest puts
    folders of tests and conftests on the path), and from ``src/`` in all of these.

    Examples
    --------
    >>> files = {"pkg/__init__.py", "pkg/a.py", "tests/helper.py", "tests/test_a.py"}
    >>> seen = [
    ...     ImportSeen(module="pkg", level=0, names=("a",), line=1),
    ...     ImportSeen(module="helper", level=0, names=(), line=2),
    ... ]
    >>> sorted(resolve_imports(seen, "tests/test_a.py", files.__contains__))
    ['pkg/__init__.py', 'pkg/a.py', 'tests/helper.py']
    """
    found: set[str] = set()
    folder = module_path.rpartition("/")[0].split("/") if "/" in module_path else []
    roots = list(_roots(folder))
    for seen in imports:
        module = seen.module.split(".") if seen.module else []
        if not seen.level:
            for root in roots:
                _add(found, root, module, seen.names, exists)
        elif seen.level - 1 <= len(folder):
            base = folder[: len(folder) - seen.level + 1]
            found.update(_packages(base, exists))
            _add(found, base, module, seen.names, exists)
    return frozenset(found)


def _roots(folder: list[str]) -> Iterator[list[str]]:
    for depth in range(len(folder) + 1):
        yield folder[:depth]
        yield [*folder[:depth], "src"]


def _packages(base: list[str], exists: Callable[[str], bool]) -> Iterator[str]:
    """``__init__`` files of the folder of a relative import and of those around it."""
    paths = ("/".join([*base[:depth], "__init__.py"]) for depth in range(1, len(base) + 1))
    return filter(exists, paths)


def _add(
    found: set[str], root: list[str], module: list[str], names: tuple[str, ...], exists: Callable[[str], bool]
) -> None:
    """Add the files on the way from a root to a module, and to the submodules that `names` may be."""
    paths = [module[:depth] for depth in range(1, len(module) + 1)]
    paths += [[*module, name] for name in names if name != "*"]
    for parts in paths:
        stem = "/".join([*root, *parts])
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if exists(path):
                found.add(path)

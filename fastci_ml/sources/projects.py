"""Projects below the top of a repository: their ids start at the top, so that two projects never share one.

pytest's ids start at its root, which in a monorepo is a folder of one project; what is stored and planned
starts at the folder that holds ``.git``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fastci_ml.errors import UsageError
from fastci_ml.records.ids import parse_project, with_project

if TYPE_CHECKING:
    from pathlib import Path

    from fastci_ml.sources.reports import Report


def repository_top(root: Path) -> Path:
    """Nearest folder at or above `root` that holds ``.git``; `root` itself without git.

    ``.git`` is a file in worktrees and submodules; a submodule is a repository of its own. No process is
    started.
    """
    root = root.resolve()
    return next((top for top in (root, *root.parents) if (top / ".git").exists()), root)


def default_project(root: Path) -> str:
    """Path of a folder from the top of its repository, with ``/``; empty at the top and without git."""
    root = root.resolve()
    path = root.relative_to(repository_top(root)).as_posix()
    # As the history spells names that are no UTF-8; lone halves of characters fit in no store.
    return "" if path == "." else path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def checked_project(text: str) -> str:
    """Project as a person names it: from the top of the repository, with or without a ``/`` at its end.

    Raises
    ------
    UsageError
        If it is an absolute path, or leads out of the repository.

    Examples
    --------
    >>> checked_project("./services/a/"), checked_project(".")
    ('services/a', '')
    """
    try:
        return parse_project(text)
    except ValueError as error:
        raise UsageError(f"--project: {error}", hint="--project services/a") from error


def prefix_report(report: Report, project: str) -> Report:
    """Report with ids from the top of the repository, of one whose ids start at a project's folder.

    Rewrites the dictionary of its ids only, so the cost is that of the distinct tests.
    """
    if not project:
        return report
    import pyarrow as pa  # those who only ask for the project stay free of it

    values = [with_project(node_id, project) for node_id in report.node_ids.dictionary.to_pylist()]
    dictionary = pa.array(values, pa.string())
    if len(set(values)) < len(values):
        # Two spellings of one path: a dictionary that holds a value twice would count one test as two.
        node_ids = dictionary.take(report.node_ids.indices).dictionary_encode()
    else:
        node_ids = pa.DictionaryArray.from_arrays(report.node_ids.indices, dictionary)
    return replace(report, node_ids=node_ids)

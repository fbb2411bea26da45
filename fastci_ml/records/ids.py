"""Names of tests and commits.

A node id is stored as pytest printed it: never unescaped, never used as a file name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePosixPath
from typing import NewType

NodeId = NewType("NodeId", str)
CommitSha = NewType("CommitSha", str)


_WORKER = re.compile(r"gw\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """A node id, taken apart.

    Attributes
    ----------
    path : str
        File of the test, from the repository root, with ``/``.
    names : tuple of str
        Classes, outermost first, then the function without its parameters; empty for a bare file.
    params : str
        What stands between the brackets, brackets included; empty without parameters.
    """

    path: str
    names: tuple[str, ...]
    params: str

    def join(self) -> NodeId:
        """Put the parts together again; the exact inverse of `split_node_id`."""
        return NodeId("::".join((self.path, *self.names)) + self.params)


def split_node_id(node_id: str) -> NodeParts:
    """Take a node id apart.

    Parameters
    ----------
    node_id : str
        As pytest prints it. ``::`` may also stand inside parameters, so only those before the first ``[``
        that follows the path separate.

    Returns
    -------
    NodeParts
        ``split_node_id(x).join() == x`` for every x.

    Examples
    --------
    >>> split_node_id("t/a.py::A::test_x[p::q]")
    NodeParts(path='t/a.py', names=('A', 'test_x'), params='[p::q]')
    """
    path, separator, rest = node_id.partition("::")
    if not separator:
        return NodeParts(path=node_id, names=(), params="")
    stem, bracket, tail = rest.partition("[")
    return NodeParts(path=path, names=tuple(stem.split("::")), params=bracket + tail)


def node_path(node_id: str) -> str:
    """File of a test: what stands before the first ``::``, or the whole id; cheaper than `split_node_id`."""
    return node_id.partition("::")[0]


def with_project(node_id: str, project: str) -> NodeId:
    """Node id from the top of the repository, of one that starts at a project's folder.

    Parameters
    ----------
    node_id : str
        As pytest prints it where its root is the project's folder.
    project : str
        The folder, from the top of the repository with ``/``; empty for the top itself.

    Returns
    -------
    NodeId
        Only the path moves. An absolute path stays, and one that leads out of the project by ``..`` is
        followed.

    Examples
    --------
    >>> with_project("tests/test_a.py::test_x[../y]", "services/a")
    'services/a/tests/test_a.py::test_x[../y]'
    >>> with_project("../b/test_b.py::test_x", "services/a")
    'services/b/test_b.py::test_x'
    """
    if not project or node_id.startswith("/"):
        return NodeId(node_id)
    folders = project.split("/")
    while node_id.startswith("../") and folders and folders[-1] != "..":
        node_id = node_id[3:]
        folders.pop()
    return NodeId("/".join((*folders, node_id)))


def without_project(node_id: str, project: str) -> NodeId:
    """Node id from a project's folder, of one from the top of the repository: undoes `with_project`.

    Examples
    --------
    >>> without_project("services/a/tests/test_a.py::test_x", "services/a")
    'tests/test_a.py::test_x'
    >>> without_project("services/b/test_b.py::test_x", "services/a")
    '../b/test_b.py::test_x'
    """
    if not project or node_id.startswith("/"):
        return NodeId(node_id)
    folders = project.split("/")
    while folders:
        # Never the file itself: an id that equals a folder of the project lies above it.
        if node_id.startswith(f"{folders[0]}/"):
            node_id = node_id[len(folders[0]) + 1 :]
            del folders[0]
        else:
            break
    return NodeId("../" * len(folders) + node_id)


def is_worker(node_id: str) -> bool:
    """Whether an id is a worker of pytest-xdist: its report names one where workers collected other tests.

    Examples
    --------
    >>> is_worker("gw0"), is_worker("services/a/gw12"), is_worker("gw0.py::test_x")
    (True, True, False)
    """
    return _WORKER.fullmatch(node_id.rpartition("/")[2]) is not None


def read_collected(text: str) -> list[str]:
    r"""Node ids in the output of ``pytest --collect-only -q``.

    Parameters
    ----------
    text : str
        As pytest printed it, also with the line ends or the byte order mark of another system.

    Returns
    -------
    list of str
        In order. What stands below a line of ``=`` (errors, warnings) may look like an id, and is none.

    Examples
    --------
    >>> read_collected("t/a.py::test_x[a b]\n\n=== warnings summary ===\n  Warning: std::map\n")
    ['t/a.py::test_x[a b]']
    """
    lines = (line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))
    return [line for line in takewhile(lambda line: not line.startswith("==="), lines) if "::" in line]


def function_id(node_id: str) -> NodeId:
    """Node id without parameters: the unit at which unstable parameters are joined."""
    parts = split_node_id(node_id)
    return NodeId("::".join((parts.path, *parts.names)))


def parse_project(text: str) -> str:
    """Folder of a project from the top of its repository, in one spelling; empty for the top.

    Raises
    ------
    ValueError
        If the path is absolute or leads out of the repository.

    Examples
    --------
    >>> parse_project("./services/a/"), parse_project(".")
    ('services/a', '')
    """
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"project {text!r}, expected a path from the top of the repository")
    return "" if path == PurePosixPath() else str(path)

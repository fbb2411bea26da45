"""From JUnit's (classname, name, file) back to pytest node ids.

pytest turns ``tests/test_a.py::TestB::test_c[x]`` into the class name ``tests.test_a.TestB`` and the name
``test_c[x]``. The way back is not unique, since a dot may have been a slash, a ``::`` or itself. What settles
it, best first: the ids that pytest collected, the file that the report names, the files that exist, a
convention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastci_ml.records.ids import split_node_id
from fastci_ml.sources.junit.prefixes import BETWEEN, Prefixes, is_doctest, mangle_path

# As in pytest's JUnit writer, DEL included: names carry these as #x1B and the like.
_NOT_XML = re.compile("[^\t\n\r -~\x80-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPED = re.compile("#x[0-9A-F]{2}")
# An error of pytest itself is reported so, also below a prefix.
_INTERNAL = ("pytest", "internal")


def mangle(node_id: str) -> tuple[str, str]:
    """Class name and name that pytest writes for a node id.

    Examples
    --------
    >>> mangle("tests/test_a.py::TestB::test_c[x::y/z.py]")
    ('tests.test_a.TestB', 'test_c[x::y/z.py]')
    """
    parts = split_node_id(node_id)
    names = [mangle_path(parts.path), *parts.names]
    # pytest takes what follows the first bracket for parameters, and closes them where an item did not.
    params = f"{parts.params.removesuffix(']')}]" if parts.params else ""
    return ".".join(names[:-1]), _spell_out(names[-1] + params)


def manglings(node_id: str) -> Iterator[tuple[str, str]]:
    """All that releases of pytest write for a node id, that of the newest first.

    Up to 9.1 a bracket in the name of a file was taken for the start of the parameters.
    """
    yield mangle(node_id)
    stem, bracket, tail = node_id.partition("[")
    if not bracket or ("::" in stem and tail.endswith("]")):
        return  # they agree
    names = stem.split("::")
    names[0] = mangle_path(names[0])
    yield ".".join(names[:-1]), _spell_out(names[-1] + bracket + tail)


class JunitIds:
    """Maps the names of one test suite; one instance serves any number of files.

    Parameters
    ----------
    collected : iterable of str, optional
        Node ids of the suite, as ``pytest --collect-only -q`` prints them.
    root : Path, optional
        Folder that the ids start from: a module that exists there is no guess.
    """

    def __init__(self, collected: Iterable[str] = (), root: Path | None = None) -> None:
        exact = _Unique()
        prefixes = _Unique()
        functions = _Unique()
        for node_id in collected:
            parts = split_node_id(node_id)
            prefix = "::".join((parts.path, *parts.names[:-1])) + "::"
            for classname, name in manglings(node_id):
                exact.add(f"{classname}{BETWEEN}{name}", node_id)
                prefixes.add(classname, prefix)
                functions.add(f"{classname}{BETWEEN}{name.partition('[')[0]}", prefix)
        self._classes = prefixes.first()
        self._functions = functions.settled()
        self._prefixes = Prefixes(self._classes, root)
        self._exact_ids = exact.settled()

    def map(
        self, classnames: Sequence[str], names: Sequence[str], files: Sequence[str] = ()
    ) -> tuple[pa.Array, np.ndarray]:
        """Node ids of many cases.

        Parameters
        ----------
        classnames : sequence of str, shape (n,)
            Empty text where the report has none. A prefix that all of them have (``--junit-prefix``) is told
            by the collected ids.
        names : sequence of str, shape (n,)
            As reported.
        files : sequence of str, shape (n,), optional
            The ``file`` attribute; empty text where a case has none.

        Returns
        -------
        node_ids : pyarrow.StringArray, shape (n,)
            A name that nothing explains stays ``classname::name``.
        is_joined : bool array, shape (n,)
            Whether the id is certain.
        """
        if not self._exact_ids:
            nothing = pa.nulls(len(names), pa.string())
            return self._explain(classnames, names, files, nothing, np.zeros(len(names), bool))
        exact, is_exact = self._exact(classnames, names)
        if not is_exact.any():
            prefix, is_certain = self._report_prefix(classnames, names)
            if prefix:
                classnames = [
                    name if (name, case) == _INTERNAL else name[len(prefix) :].removeprefix(".")
                    for name, case in zip(classnames, names, strict=True)
                ]
                exact, is_exact = self._exact(classnames, names)
                node_ids, is_joined = self._explain(classnames, names, files, exact, is_exact)
                return node_ids, is_joined & is_certain
        return self._explain(classnames, names, files, exact, is_exact)

    def _exact(self, classnames: Sequence[str], names: Sequence[str]) -> tuple[pa.Array, np.ndarray]:
        """Collected ids with these very names, null where there is none."""
        # A dictionary and not Arrow's `index_in`, which hashes all collected ids anew for each block.
        get = self._exact_ids.get
        found = [
            get(f"{classname}{BETWEEN}{name}") for classname, name in zip(classnames, names, strict=True)
        ]
        ids = pa.array(found, pa.string())
        return ids, np.from_dlpack(pc.is_valid(ids).cast(pa.uint8())).astype(bool)

    def _report_prefix(self, classnames: Sequence[str], names: Sequence[str]) -> tuple[str, bool]:
        """Prefix that all class names have before those of collected tests, and whether it is certain.

        pytest writes it before all names or none. One class alone may also be another, of a file that is
        gone, so it takes two to be certain.
        """
        cases = zip(classnames, names, strict=True)
        distinct = {classname for classname, name in cases if (classname, name) != _INTERNAL}
        if not distinct or "" in distinct or any(map(self._prefixes.is_there, distinct)):
            return "", False
        found: list[tuple[int, str]] = []
        for prefix in accumulate(min(distinct).split("."), "{}.{}".format):
            if not all(f"{name}.".startswith(f"{prefix}.") for name in distinct):
                break
            stripped = [name[len(prefix) + 1 :] for name in classnames]
            n_found = int(self._exact(stripped, names)[1].sum())
            if n_found:
                found.append((n_found, prefix))
        if not found:
            return "", False
        n_best = max(n_found for n_found, _ in found)
        best = [prefix for n_found, prefix in found if n_found == n_best]
        # Where several explain as much, the shortest: it leaves most of the path.
        n_known = sum(name[len(best[0]) + 1 :] in self._classes for name in distinct)
        return best[0], len(best) == 1 and n_known > 1

    def _explain(
        self,
        classnames: Sequence[str],
        names: Sequence[str],
        files: Sequence[str],
        exact: pa.Array,
        is_exact: np.ndarray,
    ) -> tuple[pa.Array, np.ndarray]:
        """Collected ids where there are some, and what the evidence says elsewhere."""
        if is_exact.all() and len(is_exact):
            return exact, is_exact
        keys = classnames
        if any(files):
            keys = [f"{name}{BETWEEN}{file}" for name, file in zip(classnames, files, strict=True)]
        prefixes = list(map(self._prefixes.__getitem__, keys))
        if self._prefixes.unexplained:
            for row, (key, classname) in enumerate(zip(keys, classnames, strict=True)):
                # The names of doctests say what class names do not.
                if key in self._prefixes.unexplained and is_doctest(classname, names[row]):
                    prefixes[row] = f"{classname.replace('.', '/')}.py::"
        name_column = pa.array(names, pa.string())
        node_ids = pc.binary_join_element_wise(pa.array(prefixes, pa.string()), name_column, "")
        is_joined = self._prefixes.are_certain(keys)
        if self._functions:
            # The function is known, and its parameters were others when it was collected.
            for row in np.flatnonzero(~is_exact & ~is_joined).tolist():
                key = f"{classnames[row]}{BETWEEN}{names[row].partition('[')[0]}"
                is_joined[row] = self._functions.get(key) == prefixes[row]
        # What pytest spelled out, or closed for an item that is no function, cannot be told from a name that
        # was so.
        for row in np.flatnonzero(_has(name_column, "#x")).tolist():
            is_joined[row] &= _ESCAPED.search(names[row]) is None
        if self._prefixes.foreign:
            for row, key in enumerate(keys):
                is_joined[row] &= not (key in self._prefixes.foreign and names[row].endswith("]"))
        if "" in names or "" in classnames:
            node_ids, is_joined = self._half_named(classnames, names, node_ids, is_joined)
        return pc.coalesce(exact, node_ids), is_joined | is_exact

    def _half_named(
        self,
        classnames: Sequence[str],
        names: Sequence[str],
        node_ids: pa.Array,
        is_joined: np.ndarray,
    ) -> tuple[pa.Array, np.ndarray]:
        """Rows without a class name or a name: pytest writes a module that it could not collect so."""
        texts, is_joined = node_ids.to_pylist(), is_joined.copy()
        for row, (classname, name) in enumerate(zip(classnames, names, strict=True)):
            if name and not classname:
                texts[row] = self._prefixes[name]
                is_joined[row] = self._prefixes.are_certain([name])[0]
            if not (name and classname):
                texts[row] = texts[row].removesuffix("::") or "unnamed"
        return pa.array(texts, pa.string()), is_joined


class _Unique:
    """What each key stands for, and which stand for one thing only."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._twice: set[str] = set()

    def add(self, key: str, value: str) -> None:
        if self._values.setdefault(key, value) != value:
            self._twice.add(key)

    def settled(self) -> dict[str, str]:
        """Keys that stand for one thing, in the order in which they came."""
        return {key: value for key, value in self._values.items() if key not in self._twice}

    def first(self) -> dict[str, str]:
        """Every key, with what it was first added with."""
        return self._values


def _has(texts: pa.Array, part: str) -> np.ndarray:
    return np.from_dlpack(pc.match_substring(texts, part).cast(pa.uint8())).astype(bool)


def _spell_out(name: str) -> str:
    return name if name.isascii() and name.isprintable() else _NOT_XML.sub(_escape, name)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"#x{code:02X}" if code <= 0xFF else f"#x{code:04X}"

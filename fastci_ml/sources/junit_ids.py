"""From JUnit's (classname, name, file) back to pytest node ids.

pytest turns ``tests/test_a.py::TestB::test_c[x]`` into the class name ``tests.test_a.TestB`` and the name
``test_c[x]``. The way back is not unique, since a dot may have been a slash, a ``::`` or itself. What settles
it, best first: the ids that pytest collected, the file that the report names, the files that exist, a
convention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastci_ml.records.ids import split_node_id

# Path up to the last segment that is named like a module of tests, and the classes behind it.
_CONVENTION = re.compile(r"((?:.*\.)?(?:test_[^.]*|[^.]*_test))(?:\.(.*))?")
# Class names come from files that anybody may have written: they must not lead out of the root.
_PATH_SEGMENT = re.compile(r"[\w-]+")
# As in pytest's JUnit writer, DEL included: names carry these as #x1B and the like.
_NOT_XML = re.compile("[^\t\n\r -~\x80-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BETWEEN = "\x1f"  # cannot stand in XML, so it cannot stand in a class name


def mangle(node_id: str) -> tuple[str, str]:
    """Class name and name that pytest writes for a node id.

    Examples
    --------
    >>> mangle("tests/test_a.py::TestB::test_c[x::y/z.py]")
    ('tests.test_a.TestB', 'test_c[x::y/z.py]')
    """
    parts = split_node_id(node_id)
    names = [_mangle_path(parts.path), *parts.names]
    name = _NOT_XML.sub(_escape, names.pop() + parts.params)
    return ".".join(names), name


class JunitIds:
    """Maps the names of one test suite; one instance serves any number of files.

    Parameters
    ----------
    collected : iterable of str, optional
        Node ids of the suite, as ``pytest --collect-only -q`` prints them.
    root : Path, optional
        Root of the repository: a module that exists there is no guess.
    """

    def __init__(self, collected: Iterable[str] = (), root: Path | None = None) -> None:
        collected_prefixes: dict[str, str] = {}
        exact: dict[str, str] = {}
        twice: set[str] = set()
        for node_id in collected:
            classname, name = mangle(node_id)
            key = f"{classname}{_BETWEEN}{name}"
            if exact.setdefault(key, node_id) != node_id:
                twice.add(key)
            parts = split_node_id(node_id)
            collected_prefixes[classname] = "::".join((parts.path, *parts.names[:-1])) + "::"
        for key in twice:
            del exact[key]
        self._prefixes = _Prefixes(collected_prefixes, root)
        self._keys = pa.array(exact.keys(), pa.string()) if exact else None
        self._ids = pa.array(exact.values(), pa.string())

    def map(
        self, classnames: Sequence[str], names: Sequence[str], files: Sequence[str] = ()
    ) -> tuple[pa.Array, np.ndarray]:
        """Node ids of many cases.

        Parameters
        ----------
        classnames : sequence of str, shape (n,)
            Empty text where the report has none.
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
        keys = classnames
        if any(files):
            keys = [f"{name}{_BETWEEN}{file}" for name, file in zip(classnames, files, strict=True)]
        prefixes = list(map(self._prefixes.__getitem__, keys))
        name_column = pa.array(names, pa.string())
        node_ids = pc.binary_join_element_wise(pa.array(prefixes, pa.string()), name_column, "")
        is_joined = self._prefixes.are_certain(keys)
        if "" in names or "" in classnames:
            node_ids, is_joined = self._half_named(classnames, names, node_ids, is_joined)
        if self._keys is None:
            return node_ids, is_joined
        mangled = pc.binary_join_element_wise(pa.array(classnames, pa.string()), name_column, _BETWEEN)
        places = pc.index_in(mangled, value_set=self._keys)
        is_exact = np.from_dlpack(pc.is_valid(places).cast(pa.uint8())).astype(bool)
        return pc.coalesce(self._ids.take(places), node_ids), is_joined | is_exact

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


class _Prefixes(dict[str, str]):
    """What stands before the name in a node id, by class name (and file); found when first asked for."""

    def __init__(self, collected: Mapping[str, str], root: Path | None) -> None:
        super().__init__()
        self._collected = collected
        self._root = root
        self._certain: set[str] = set()

    def __missing__(self, key: str) -> str:
        classname, _, file = key.partition(_BETWEEN)
        prefix, is_certain = self._find(classname, file.replace("\\", "/"))
        self[key] = prefix
        if is_certain:
            self._certain.add(key)
        return prefix

    def are_certain(self, keys: Sequence[str]) -> np.ndarray:
        """Whether each prefix is certain, for keys that were asked for before."""
        if not self._certain:
            return np.zeros(len(keys), bool)
        return np.fromiter(map(self._certain.__contains__, keys), bool, len(keys))

    def _find(self, classname: str, file: str) -> tuple[str, bool]:
        # An inherited test names the file of its base class: then the class name does not begin with it.
        module = _mangle_path(file) if file else ""
        if module and f"{classname}.".startswith(f"{module}."):
            classes = classname[len(module) + 1 :]
            return "::".join([file, *classes.split(".")] if classes else [file]) + "::", True
        if classname in self._collected:
            # The module and class are known, the test is not: renamed, removed, or other parameters.
            return self._collected[classname], False
        if self._root is not None:
            segments = classname.split(".")
            n_path = _existing(self._root, segments)
            if n_path:
                return _join(segments, n_path), True
        match = _CONVENTION.fullmatch(classname)
        if match:
            classes = f"{match[2]}::".replace(".", "::") if match[2] else ""
            return f"{match[1].replace('.', '/')}.py::{classes}", False
        return (f"{classname}::" if classname else ""), False


def _existing(root: Path, segments: list[str]) -> int:
    """How many segments make the longest path of a module that exists under the root; 0 for none."""
    if not all(_PATH_SEGMENT.fullmatch(name) for name in segments):
        return 0
    for n_path in range(len(segments), 0, -1):
        if root.joinpath(*segments[:n_path]).with_suffix(".py").is_file():
            return n_path
    return 0


def _join(segments: list[str], n_path: int) -> str:
    return "::".join(["/".join(segments[:n_path]) + ".py", *segments[n_path:]]) + "::"


def _mangle_path(path: str) -> str:
    return path.replace("/", ".").removesuffix(".py")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"#x{code:02X}" if code <= 0xFF else f"#x{code:04X}"

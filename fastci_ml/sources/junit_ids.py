"""From JUnit's (classname, name, file) back to pytest node ids.

pytest turns ``tests/test_a.py::TestB::test_c[x]`` into the class name ``tests.test_a.TestB`` and the name
``test_c[x]``. The way back is not unique, since a dot may have been a slash, a ``::`` or itself. What settles
it, best first: the ids that pytest collected, the file that the report names, the files that exist, a
convention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
        self._root = root
        self._prefixes: dict[tuple[str, str], tuple[str, bool]] = {}
        self._collected_prefixes: dict[str, str] = {}
        exact: dict[str, str] = {}
        twice: set[str] = set()
        for node_id in collected:
            classname, name = mangle(node_id)
            key = f"{classname}{_BETWEEN}{name}"
            if exact.setdefault(key, node_id) != node_id:
                twice.add(key)
            parts = split_node_id(node_id)
            self._collected_prefixes[classname] = "::".join((parts.path, *parts.names[:-1])) + "::"
        for key in twice:
            del exact[key]
        self._keys = pa.array(exact.keys(), pa.string()) if exact else None
        self._ids = pa.array(exact.values(), pa.string())

    def map(
        self, classnames: pa.Array, names: pa.Array, files: pa.Array | None = None
    ) -> tuple[pa.Array, np.ndarray]:
        """Node ids of many cases.

        Parameters
        ----------
        classnames : pyarrow.DictionaryArray, shape (n,)
            Empty where the report has none.
        names : pyarrow.StringArray, shape (n,)
            As reported.
        files : pyarrow.DictionaryArray, shape (n,), optional
            The ``file`` attribute; empty where a case has none.

        Returns
        -------
        node_ids : pyarrow.StringArray, shape (n,)
            A name that nothing explains stays ``classname::name``.
        is_joined : bool array, shape (n,)
            Whether the id is certain.
        """
        values = classnames.dictionary.to_pylist()
        groups = np.from_dlpack(classnames.indices)
        pairs = [(value, "") for value in values]
        if files is not None:
            file_values = files.dictionary.to_pylist()
            packed = groups.astype(np.int64) * len(file_values) + np.from_dlpack(files.indices)
            packed, groups = np.unique(packed, return_inverse=True)
            pairs = [(values[p // len(file_values)], file_values[p % len(file_values)]) for p in packed]
        found = [self._prefix(*pair) for pair in pairs]
        prefixes = pa.array([prefix for prefix, _ in found], pa.string())
        certain = np.array([is_certain for _, is_certain in found], bool)
        node_ids = pc.binary_join_element_wise(prefixes.take(pa.array(groups)), names, "")
        is_joined = certain[groups]
        odd = [group for group, (classname, _) in enumerate(pairs) if not classname]
        is_odd = _lengths(names) == 0
        if odd or is_odd.any():
            is_odd |= np.isin(groups, odd)
            node_ids, is_joined = self._half_named(is_odd, names, node_ids, is_joined)
        if self._keys is None:
            return node_ids, is_joined
        keys = pc.binary_join_element_wise(classnames.cast(pa.string()), names, _BETWEEN)
        places = pc.index_in(keys, value_set=self._keys)
        is_exact = np.from_dlpack(pc.is_valid(places).cast(pa.uint8())).astype(bool)
        return pc.coalesce(self._ids.take(places), node_ids), is_joined | is_exact

    def _half_named(
        self, is_odd: np.ndarray, names: pa.Array, node_ids: pa.Array, is_joined: np.ndarray
    ) -> tuple[pa.Array, np.ndarray]:
        """Rows without a class name or a name: pytest writes a module that it could not collect so."""
        texts, is_joined = node_ids.to_pylist(), is_joined.copy()
        for row in np.flatnonzero(is_odd).tolist():
            name = names[row].as_py()
            if name:
                texts[row], is_joined[row] = self._prefix(name, "")
            texts[row] = texts[row].removesuffix("::") or "unnamed"
        return pa.array(texts, pa.string()), is_joined

    def _prefix(self, classname: str, file: str) -> tuple[str, bool]:
        """What stands before the name in the node id, and whether that is certain."""
        key = (classname, file)
        if key not in self._prefixes:
            self._prefixes[key] = self._find_prefix(classname, file.replace("\\", "/"))
        return self._prefixes[key]

    def _find_prefix(self, classname: str, file: str) -> tuple[str, bool]:
        # An inherited test names the file of its base class: then the class name does not begin with it.
        module = _mangle_path(file) if file else ""
        if module and f"{classname}.".startswith(f"{module}."):
            classes = classname[len(module) + 1 :]
            return "::".join([file, *classes.split(".")] if classes else [file]) + "::", True
        if classname in self._collected_prefixes:
            # The module and class are known, the test is not: renamed, removed, or other parameters.
            return self._collected_prefixes[classname], False
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


def _lengths(texts: pa.Array) -> np.ndarray:
    """Bytes of each text."""
    return np.from_dlpack(pc.binary_length(texts))


def _join(segments: list[str], n_path: int) -> str:
    return "::".join(["/".join(segments[:n_path]) + ".py", *segments[n_path:]]) + "::"


def _mangle_path(path: str) -> str:
    return path.replace("/", ".").removesuffix(".py")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"#x{code:02X}" if code <= 0xFF else f"#x{code:04X}"

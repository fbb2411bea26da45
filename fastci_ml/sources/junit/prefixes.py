"""What stands before the name in a node id, told by JUnit's class name: a path and classes.

Best first: the ids that pytest collected, the file that the report names, the files that exist, a convention.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fastci_ml.records.ids import node_path
from fastci_ml.sources.junit.module_paths import ModulePaths

BETWEEN = "\x1f"  # cannot stand in XML, so it cannot stand in a class name
# Path up to the last segment that is named like a module of tests, and the classes behind it.
_CONVENTION = re.compile(r"((?:.*\.)?(?:test_[^.]*|[^.]*_test|__init__))(?:\.(.*))?")
# A module that is called so: only where no segment says more, as folders are called so too.
_PLAIN_CONVENTION = re.compile(r"((?:.*\.)?tests?)((?:\.[A-Z]\w*)*)")


class Prefixes(dict[str, str]):
    """What stands before the name in a node id, by class name (and file); found when first asked for.

    Parameters
    ----------
    collected : mapping of str to str
        Class names of the collected tests, with what stands before the name in their ids.
    root : Path or None
        Folder that the ids start from.

    Attributes
    ----------
    unexplained : set of str
        Keys whose class name stays as it is.
    foreign : set of str
        Keys of files that are no Python modules.
    """

    def __init__(self, collected: Mapping[str, str], root: Path | None) -> None:
        super().__init__()
        self._collected = collected
        self._modules = None if root is None else ModulePaths(root)
        self._certain: set[str] = set()
        self.unexplained: set[str] = set()
        self.foreign: set[str] = set()

    def __missing__(self, key: str) -> str:
        classname, _, file = key.partition(BETWEEN)
        prefix, is_certain = self._find(classname, file.replace("\\", "/"))
        self[key] = prefix
        if prefix == f"{classname}::" and not is_certain and classname not in self._collected:
            self.unexplained.add(key)
        elif not node_path(prefix).endswith(".py"):
            self.foreign.add(key)
        if is_certain:
            self._certain.add(key)
        return prefix

    def are_certain(self, keys: Sequence[str]) -> np.ndarray:
        """Whether each prefix is certain, for keys that were asked for before."""
        if not self._certain:
            return np.zeros(len(keys), bool)
        return np.fromiter(map(self._certain.__contains__, keys), bool, len(keys))

    def is_there(self, classname: str) -> bool:
        """Whether a file exists that a class name can mean."""
        return self._modules is not None and bool(self._modules.readings(classname))

    def _find(self, classname: str, file: str) -> tuple[str, bool]:
        # An inherited test names the file of its base class: then the class name does not begin with it.
        module = mangle_path(file) if file else ""
        if module and f"{classname}.".startswith(f"{module}."):
            return _prefix(file, classname[len(module) + 1 :]), True
        if classname in self._collected:
            # The module and class are known, the test is not: renamed, removed, or other parameters.
            return self._collected[classname], False
        if self._modules is not None and (readings := self._modules.readings(classname)):
            return _prefix(*readings[0]), len(readings) == 1
        return _guess(classname, module, file), False


def _guess(classname: str, module: str, file: str) -> str:
    """What stands before the name, where nothing but names is there to go by."""
    prefixed = f".{classname}.".rpartition(f".{module}.") if module else ("", "", "")
    if prefixed[1]:
        # `--junit-prefix`, and the file that follows it.
        return _prefix(file, prefixed[2].removesuffix("."))
    match = _CONVENTION.fullmatch(classname)
    if match:
        return _prefix(f"{match[1].replace('.', '/')}.py", match[2] or "")
    match = _PLAIN_CONVENTION.fullmatch(classname)
    if match:
        return _prefix(f"{match[1].replace('.', '/')}.py", match[2].removeprefix("."))
    return f"{classname}::" if classname else ""


def _prefix(path: str, classes: str) -> str:
    """What stands before the name in ids of a file, and of the classes in it that dots separate."""
    return "::".join([path, *classes.split(".")] if classes else [path]) + "::"


def is_doctest(classname: str, name: str) -> bool:
    """Whether a name begins with the module that the class name ends with, as those of doctests do."""
    segments, parts = classname.split("."), name.split(".")
    return any(segments[-n:] == parts[:n] for n in range(1, min(len(segments), len(parts)) + 1))


def mangle_path(path: str) -> str:
    """Path as pytest writes it into class names."""
    return path.replace("/", ".").removesuffix(".py")

"""Packages that are installed, what each is needed for, and whether pytest loads the plugin."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from importlib import metadata

from fastci_ml.cli.health.finding import Finding, ok, problem, warning

_TOPIC = "packages"
_PLUGIN = "fastci_ml.execution.plugin"
_OLDEST_PYTEST = (8, 3)
_NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
# Name of the distribution, what it is for; "" for what we only work with.
_PACKAGES = {
    "torch": "",
    "pytest-xdist": "",
    "pytest-rerunfailures": "",
    "coverage": "",
    "pytest-cov": "",
    "pytest-testmon": "",
    "numpy": "train, rank, replay",
    "pandas": "train, rank, replay",
    "pyarrow": "ingest, outcome, and what status says of the history",
    "lightgbm": "train",
    "scikit-learn": "train",
    "mlflow": "train, models",
    "gitpython": "rank, ingest of changes",
    "nvidia-ml-py": "gpu",
    "matplotlib": "plots of train and replay",
}


def look_at_packages() -> Iterable[Finding]:
    """Findings about packages; none of them is imported."""
    yield _ours()
    yield _pytest()
    yield from _plugin()
    absent = []
    for name, purpose in _PACKAGES.items():
        version = _version(name)
        if version is not None:
            yield ok(_TOPIC, name, version)
        elif purpose:
            absent.append(f"{name} ({purpose})")
    if absent:
        # Meant so in an image that only records and runs; elsewhere it is a step that was forgotten.
        yield warning(
            _TOPIC, "not installed", ", ".join(absent), "where those commands are used: pip install fastci-ml"
        )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _ours() -> Finding:
    version = _version("fastci-ml")
    if version is None:
        return warning(
            _TOPIC, "fastci-ml", "found on the path, but not installed", "pip install --no-deps fastci-ml"
        )
    return ok(_TOPIC, "fastci-ml", version)


def _pytest() -> Finding:
    version = _version("pytest")
    if version is None:
        return problem(_TOPIC, "pytest", "not installed", "pip install 'pytest>=8.3'")
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < _OLDEST_PYTEST:
        return problem(_TOPIC, "pytest", f"{version}: older than 8.3", "pip install 'pytest>=8.3'")
    return ok(_TOPIC, "pytest", version)


def _plugin() -> Iterable[Finding]:
    found = {point.value for point in metadata.entry_points(group="pytest11", name="fastci")}
    if found != {_PLUGIN}:
        what = (
            f"entry point is {', '.join(sorted(found))}"
            if found
            else "no entry point, so pytest does not load it"
        )
        yield problem(
            _TOPIC, "pytest plugin", what, f"pip install --no-deps fastci-ml, or: pytest -p {_PLUGIN}"
        )
    elif os.environ.get(_NO_AUTOLOAD):
        yield warning(
            _TOPIC,
            "pytest plugin",
            f"installed, but {_NO_AUTOLOAD} keeps pytest from loading it",
            "pytest -p fastci; `record` and `run` see to it themselves",
        )
    else:
        yield ok(_TOPIC, "pytest plugin", "installed, pytest loads it")

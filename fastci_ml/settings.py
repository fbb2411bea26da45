"""Settings of one target repository: ``[tool.fastci]`` of its pyproject.toml, or fastci.toml beside it.

Standard library only: the pytest plugin reads settings inside pinned images.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fastci_ml.errors import SettingsError

_MARKERS = ("fastci.toml", "pyproject.toml", ".git")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a team can set; every path is absolute.

    Attributes
    ----------
    root : Path
        The target repository.
    state_dir : Path
        Where history, models, spool and the local MLflow store live; ``.fastci`` under the root by default.
    lane : str or None
        Lane to use in place of the detected one.
    model_name : str
        Name of the registered model.
    tracking_uri : str or None
        MLflow tracking server; None for the local SQLite store under ``state_dir``.
    tables : mapping of str to mapping
        Column mappings for ``ingest --table NAME``, by name.
    failure_rules : tuple
        Rules of failure classes before the shipped ones, as the file states them; checked where used.
    environ_prefixes : tuple of str
        Beginnings of names of environment variables that change what the tests do: reading one is evidence.
    children_skipped : tuple of str
        Shell patterns of commands: such processes do not record, and whoever starts one is incomplete.
    children_trusted : tuple of str
        Shell patterns of commands that are no Python (scripts of a shell, make) and start only Python that
        records: their own processes are not asked for.
    children_flushed : tuple of str
        Shell patterns of commands whose processes complete their record when SIGTERM comes. One that is in C
        code then ends only when that code does.
    children_limit : int
        Of one test so many processes record, and with more it is incomplete; 0 for all.
    min_join_ratio : float
        In [0, 1]. No test is left out while the history knows a smaller share of the collected tests, or a
        smaller share of its results is joined to tests for certain: one test in ten without a history is
        what a large change renames, and more is a sign of ids that are read wrong.
    """

    root: Path
    state_dir: Path
    lane: str | None = None
    model_name: str = "fastci-risk"
    tracking_uri: str | None = None
    tables: MappingProxyType[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    failure_rules: tuple[Any, ...] = ()
    environ_prefixes: tuple[str, ...] = ()
    children_skipped: tuple[str, ...] = ()
    children_trusted: tuple[str, ...] = ()
    children_flushed: tuple[str, ...] = ()
    children_limit: int = 0
    min_join_ratio: float = 0.9

    @property
    def history_dir(self) -> Path:
        """Folder of the history store."""
        return self.state_dir / "history"

    @property
    def model_dir(self) -> Path:
        """Folder of the model bundle that ``rank`` reads."""
        return self.state_dir / "model"

    @property
    def spool_dir(self) -> Path:
        """Folder of outcomes that wait for the MLflow server."""
        return self.state_dir / "spool"

    @property
    def bundles_dir(self) -> Path:
        """Folder that recording test processes write their bundles to."""
        return self.state_dir / "bundles"

    @property
    def staging_dir(self) -> Path:
        """Folder that `merge` unpacks artifacts to, and empties again."""
        return self.state_dir / "staging"

    @property
    def evidence_db(self) -> Path:
        """SQLite file that `merge` writes runtime evidence to."""
        return self.state_dir / "evidence.sqlite"


# Key in the file -> expected type. `state_dir` is text there and a Path here.
_KEYS: dict[str, type] = {
    "state_dir": str,
    "lane": str,
    "model_name": str,
    "tracking_uri": str,
    "tables": dict,
    "failure_rules": list,
    "environ_prefixes": list,
    "children_skipped": list,
    "children_trusted": list,
    "children_flushed": list,
    "children_limit": int,
    "min_join_ratio": float,
}
_LISTS_OF_TEXTS = ("environ_prefixes", "children_skipped", "children_trusted", "children_flushed")


def find_root(start: Path) -> Path:
    """Nearest folder at or above `start` that holds fastci.toml, pyproject.toml or .git; else `start`."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if any((folder / name).exists() for name in _MARKERS):
            return folder
    return start


def load_settings(root: Path) -> Settings:
    """Read the settings of the repository at `root`.

    Parameters
    ----------
    root : Path
        Folder of pyproject.toml or fastci.toml; both may be absent.

    Returns
    -------
    Settings
        fastci.toml wins over pyproject.toml as a whole: two half-files would be hard to explain.

    Raises
    ------
    SettingsError
        If a file is no TOML, or a key is unknown or of the wrong type.
    """
    root = root.resolve()
    own, shared = root / "fastci.toml", root / "pyproject.toml"
    path = own if own.exists() else shared
    table: dict[str, Any] = {}
    if path.exists():
        document = _read_toml(path)
        tools = document.get("tool", {})
        if not isinstance(tools, dict):
            raise SettingsError(f"{path}: tool is {type(tools).__name__}, expected a table")
        table = document if path is own else tools.get("fastci", {})
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: tool.fastci is {type(table).__name__}, expected a table")
    for key, value in table.items():
        _check(path, key, value)
    state_dir = root / table.pop("state_dir", ".fastci")
    tables = MappingProxyType(table.pop("tables", {}))
    rules = tuple(table.pop("failure_rules", ()))
    texts: dict[str, Any] = {name: _texts(path, name, table.pop(name, ())) for name in _LISTS_OF_TEXTS}
    return Settings(
        root=root,
        state_dir=state_dir,
        tables=tables,
        failure_rules=rules,
        **texts,
        **table,
    )


def _texts(path: Path, key: str, values: Any) -> tuple[str, ...]:
    if not all(isinstance(value, str) and value for value in values):
        raise SettingsError(f"{path}: setting {key!r} is {list(values)}, expected texts")
    return tuple(values)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"{path}: not readable as TOML: {error}") from error


def _check(path: Path, key: str, value: object) -> None:
    if key not in _KEYS:
        near = difflib.get_close_matches(key, _KEYS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(sorted(_KEYS))}"
        raise SettingsError(f"{path}: unknown setting {key!r}", hint=hint)
    # TOML writes a whole number without a point; a truth is no number though Python counts it as one.
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_usable = {float: is_number, int: is_count}.get(_KEYS[key], isinstance(value, _KEYS[key]))
    if not is_usable:
        raise SettingsError(
            f"{path}: setting {key!r} is {type(value).__name__}, expected {_KEYS[key].__name__}"
        )
    if key.endswith("_ratio") and not (isinstance(value, int | float) and 0 <= value <= 1):
        raise SettingsError(f"{path}: setting {key!r} is {value}, expected a share from 0 to 1")

"""A model as a directory of plain files: what `rank` reads, and what the registry keeps.

::

    manifest.json      sha256 of every file below
    trees.txt          LightGBM's text model
    schema.json        feature names and the digest of their definitions
    calibration.json   raw score -> risk
    card.json          where the model comes from and how good it is
    state/             the feature fold after the last run of its history
    registration.json  name and version, written by the registry later; absent before

Loading imports numpy and nothing heavier: no LightGBM, no MLflow, no network. Never pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastci_ml.errors import ModelError
from fastci_ml.features.schema import FEATURE_NAMES, SCHEMA_DIGEST
from fastci_ml.features.state import FeatureState
from fastci_ml.learn.calibration import Calibration
from fastci_ml.learn.walk import TreeWalk

SCHEMA = "fastci.model/1"
_HINT = "fastci-ml train"
_TREES, _SCHEMA, _CALIBRATION, _CARD = "trees.txt", "schema.json", "calibration.json", "card.json"
_STATE, _MANIFEST, _REGISTRATION = "state", "manifest.json", "registration.json"
_RETRY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Which registered version a bundle is."""

    name: str
    version: str


class ModelBundle:
    """A trained model with everything that it needs to score the tests of a run.

    Parameters
    ----------
    model_text : str
        LightGBM's text.
    calibration : Calibration
        Raw score to risk.
    state : FeatureState
        Fold of the history up to its watermark; `rank` advances it by what is newer.
    card : mapping
        Plain values; NaN becomes null in the file.
    registration : Registration or None
        None while the bundle is not registered.
    digest : str
        sha256 of the manifest, the identity of a saved bundle; empty before.

    Raises
    ------
    ModelError
        If the trees cannot be walked to the bit, or read other columns than those of the schema.
    """

    def __init__(
        self,
        *,
        model_text: str,
        calibration: Calibration,
        state: FeatureState,
        card: Mapping[str, Any],
        registration: Registration | None = None,
        digest: str = "",
    ) -> None:
        self.model_text = model_text
        self.calibration = calibration
        self.state = state
        self.card = card
        self.registration = registration
        self.digest = digest
        self._walk = TreeWalk.parse(model_text, name=_TREES)
        if self._walk.feature_names != FEATURE_NAMES:
            raise ModelError(f"{_TREES}: other columns than those of the feature schema", hint=_HINT)

    @property
    def is_calibrated(self) -> bool:
        """Whether `risk` was checked against later runs; otherwise show it as uncalibrated."""
        return self.calibration.is_calibrated

    @property
    def name(self) -> str:
        """Registered name, or that of the card while there is none."""
        return str(self.card.get("name", "unnamed")) if self.registration is None else self.registration.name

    @property
    def version(self) -> str | None:
        """Registered version; None while the bundle is not registered."""
        return None if self.registration is None else self.registration.version

    def raw_scores(self, X: NDArray[np.float32]) -> NDArray[np.float64]:
        """Raw scores (log-odds) to order by, shape (n,); equal to LightGBM's bit for bit."""
        return self._walk.raw_scores(X)

    def risk(self, X: NDArray[np.float32]) -> NDArray[np.float64]:
        """Probability of failing, in [0, 1], shape (n,), to show to people."""
        return self.risk_of(self.raw_scores(X))

    def risk_of(self, raw_scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability of failing for raw scores that are there already."""
        return self.calibration.risk(raw_scores)

    def contributions(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """What each feature added to each raw score, in log-odds, shape (n, n_features)."""
        return self._walk.contributions(X)

    def explain(self, X: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """Give `raw_scores` and `contributions` at once, for half the time of the one and the other."""
        return self._walk.explain(X)

    def save(self, directory: Path) -> None:
        """Write the bundle, replacing whatever bundle is there; a half-written one is never seen.

        Parameters
        ----------
        directory : Path
            Folder of the bundle; its parent is made.

        Raises
        ------
        ModelError
            If something else than a bundle stands there.
        """
        directory.parent.mkdir(parents=True, exist_ok=True)
        fresh = directory.with_name(f".{directory.name}.{secrets.token_hex(8)}")
        try:
            self._write(fresh)
            replace_bundle(fresh, directory)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)  # gone already unless something failed

    def _write(self, directory: Path) -> None:
        directory.mkdir()
        _write_text(directory / _TREES, self.model_text)
        _write_json(directory / _SCHEMA, {"schema": SCHEMA, "digest": SCHEMA_DIGEST, "names": FEATURE_NAMES})
        _write_json(directory / _CALIBRATION, self.calibration.to_json())
        _write_json(directory / _CARD, self.card)
        self.state.save(directory / _STATE)
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        digests = {path.relative_to(directory).as_posix(): _digest(path.read_bytes()) for path in files}
        _write_json(directory / _MANIFEST, {"schema": SCHEMA, "files": digests})

    @classmethod
    def load(cls, directory: Path) -> ModelBundle:
        """Read a bundle, checking every file against the manifest.

        Raises
        ------
        ModelError
            If there is no bundle, a file is missing or damaged, or it was made for other features.
        """
        try:
            return cls._load(directory)
        except ModelError:
            # `save` may have put a new bundle in place while we read the old one's files.
            time.sleep(_RETRY_S)
            return cls._load(directory)

    @classmethod
    def _load(cls, directory: Path) -> ModelBundle:
        manifest = _read(directory / _MANIFEST)
        document = _json(directory / _MANIFEST, manifest)
        if document.get("schema") != SCHEMA or not isinstance(document.get("files"), dict):
            raise ModelError(
                f"{directory}: schema {document.get('schema')!r}, expected {SCHEMA!r}", hint=_HINT
            )
        if manifest != _dumps(document).encode():
            raise ModelError(f"{directory / _MANIFEST}: damaged: not as it was written", hint=_HINT)
        contents = {}
        for name, expected in document["files"].items():
            contents[name] = _read(directory / name)
            if _digest(contents[name]) != expected:
                raise ModelError(f"{directory / name}: damaged: its digest is not the manifest's", hint=_HINT)
        for name in (_TREES, _SCHEMA, _CALIBRATION, _CARD):
            if name not in contents:
                raise ModelError(f"{directory}: the manifest has no {name}", hint=_HINT)
        schema = _json(directory / _SCHEMA, contents[_SCHEMA])
        if schema.get("digest") != SCHEMA_DIGEST:
            raise ModelError(f"{directory}: trained with other features than this version's", hint=_HINT)
        calibration = _json(directory / _CALIBRATION, contents[_CALIBRATION])
        return cls(
            model_text=contents[_TREES].decode(),
            calibration=Calibration.from_json(calibration, name=str(directory / _CALIBRATION)),
            state=FeatureState.load(directory / _STATE),
            card=_json(directory / _CARD, contents[_CARD]),
            registration=_read_registration(directory),
            digest=_digest(manifest),
        )


def replace_bundle(fresh: Path, directory: Path) -> None:
    """Put a complete bundle in the place of another; a crash leaves the old one, the new one or none.

    A folder with files cannot be replaced in one step, so the old one is moved aside first. A symbolic link
    could be swapped in one, but would tear apart when a CI cache stores the folder.

    Raises
    ------
    ModelError
        If something else than a bundle stands there.
    """
    aside = directory.with_name(f".{directory.name}.{secrets.token_hex(8)}.old")
    if directory.exists():
        if not directory.is_dir() or (any(directory.iterdir()) and not (directory / _MANIFEST).exists()):
            hint = "choose another --out"
            raise ModelError(f"{directory}: holds something else than a model bundle", hint=hint)
        directory.rename(aside)
    fresh.rename(directory)
    shutil.rmtree(aside, ignore_errors=True)


def write_registration(directory: Path, registration: Registration) -> None:
    """Note in a saved bundle which registered version it is."""
    path = directory / _REGISTRATION
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    _write_json(fresh, {"name": registration.name, "version": registration.version})
    fresh.replace(path)


def _read_registration(directory: Path) -> Registration | None:
    path = directory / _REGISTRATION
    if not path.exists():
        return None
    document = _json(path, _read(path))
    name, version = document.get("name"), document.get("version")
    if not (isinstance(name, str) and isinstance(version, str)):
        raise ModelError(f"{path}: no name and version", hint=_HINT)
    return Registration(name=name, version=version)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _dumps(document: Mapping[str, Any]) -> str:
    return json.dumps(_plain(document), allow_nan=False, indent=1) + "\n"


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    _write_text(path, _dumps(document))


def _write_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: not readable: {error.strerror}", hint=_HINT) from error


def _json(path: Path, content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: no JSON: {error}", hint=_HINT) from error
    if not isinstance(document, dict):
        raise ModelError(f"{path}: {type(document).__name__} at the top, expected an object", hint=_HINT)
    return document

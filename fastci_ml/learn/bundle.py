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

import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastci_ml.errors import ModelError
from fastci_ml.features.columns import in_schema_order
from fastci_ml.features.schema import FEATURE_NAMES, SCHEMA_DIGEST
from fastci_ml.features.state import FeatureState
from fastci_ml.learn.bundle_files import HINT, digest_of, dumps, read_bytes, read_json, write_json, write_text
from fastci_ml.learn.calibration import Calibration
from fastci_ml.learn.walk import TreeWalk

SCHEMA = "fastci.model/1"
_TREES, _SCHEMA, _CALIBRATION, _CARD = "trees.txt", "schema.json", "calibration.json", "card.json"
_STATE, _MANIFEST, _REGISTRATION = "state", "manifest.json", "registration.json"
_RETRY_S = 0.05
# Arrays, frames and mappings of columns; `in_schema_order` says which.
Features = Any


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
        _check_features(self._walk.feature_names, _TREES)

    @property
    def is_calibrated(self) -> bool:
        """Whether `risk` was checked against later runs; otherwise show it as uncalibrated."""
        return self.calibration.is_calibrated

    def calibrates(self, lane: str) -> bool:
        """Whether `risk` was checked against later runs of this lane; on another one it is a guess."""
        # Bundles of the first release do not say which lanes these were.
        lanes = self.card.get("calibration_lanes")
        return self.is_calibrated and (not isinstance(lanes, Mapping) or lane in lanes)

    @property
    def name(self) -> str:
        """Registered name, or that of the card while there is none."""
        return str(self.card.get("name", "unnamed")) if self.registration is None else self.registration.name

    @property
    def version(self) -> str | None:
        """Registered version; None while the bundle is not registered."""
        return None if self.registration is None else self.registration.version

    def raw_scores(self, X: Features) -> NDArray[np.float64]:
        """Raw scores (log-odds) to order by, shape (n,); equal to LightGBM's bit for bit.

        Parameters
        ----------
        X : array, frame or mapping
            Features of n tests; what has named columns is read by name, as `in_schema_order` says.

        Raises
        ------
        TypeError, ValueError
            If a column is missing, unknown, there twice or holds something else than numbers.
        """
        return self._walk.raw_scores(in_schema_order(X))

    def risk(self, X: Features) -> NDArray[np.float64]:
        """Probability of failing, shape (n,), to show to people; NaN where the model is uncalibrated."""
        return self.risk_of(self.raw_scores(X))

    def risk_of(self, raw_scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability of failing for raw scores that are there already; NaN where uncalibrated."""
        return self.calibration.risk(raw_scores)

    def contributions(self, X: Features) -> NDArray[np.float32]:
        """What each feature added to each raw score, in log-odds, shape (n, n_features), by the schema."""
        return self._walk.contributions(in_schema_order(X))

    def explain(self, X: Features) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """Give `raw_scores` and `contributions` at once, for half the time of the one and the other."""
        return self._walk.explain(in_schema_order(X))

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
        write_text(directory / _TREES, self.model_text)
        write_json(directory / _SCHEMA, {"schema": SCHEMA, "digest": SCHEMA_DIGEST, "names": FEATURE_NAMES})
        write_json(directory / _CALIBRATION, self.calibration.to_json())
        write_json(directory / _CARD, self.card)
        self.state.save(directory / _STATE)
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        digests = {path.relative_to(directory).as_posix(): digest_of(path.read_bytes()) for path in files}
        write_json(directory / _MANIFEST, {"schema": SCHEMA, "files": digests})

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
        manifest = read_bytes(directory / _MANIFEST)
        document = read_json(directory / _MANIFEST, manifest)
        if document.get("schema") != SCHEMA or not isinstance(document.get("files"), dict):
            raise ModelError(
                f"{directory}: schema {document.get('schema')!r}, expected {SCHEMA!r}", hint=HINT
            )
        if manifest != dumps(document).encode():
            raise ModelError(f"{directory / _MANIFEST}: damaged: not as it was written", hint=HINT)
        contents = {}
        for name, expected in document["files"].items():
            contents[name] = read_bytes(directory / name)
            if digest_of(contents[name]) != expected:
                raise ModelError(f"{directory / name}: damaged: its digest is not the manifest's", hint=HINT)
        for name in (_TREES, _SCHEMA, _CALIBRATION, _CARD):
            if name not in contents:
                raise ModelError(f"{directory}: the manifest has no {name}", hint=HINT)
        _check_schema(read_json(directory / _SCHEMA, contents[_SCHEMA]), str(directory / _SCHEMA))
        calibration = read_json(directory / _CALIBRATION, contents[_CALIBRATION])
        return cls(
            model_text=contents[_TREES].decode("utf-8", "replace"),  # what is no text is no model either
            calibration=Calibration.from_json(calibration, name=str(directory / _CALIBRATION)),
            state=FeatureState.load(directory / _STATE),
            card=read_json(directory / _CARD, contents[_CARD]),
            registration=_read_registration(directory),
            digest=digest_of(manifest),
        )


def _check_schema(schema: Mapping[str, Any], name: str) -> None:
    """Refuse features of another release, and say what is other about them.

    They are not put into our order: the state of the bundle lies in the order of its own release as well.
    """
    names = schema.get("names")
    if not isinstance(names, list) or not all(isinstance(feature, str) for feature in names):
        raise ModelError(f"{name}: names is no list of text", hint=HINT)
    _check_features(names, name)
    if schema.get("digest") != SCHEMA_DIGEST:
        raise ModelError(
            f"{name}: features of the same names, but defined otherwise than in this version", hint=HINT
        )


def _check_features(names: Sequence[str], name: str) -> None:
    if tuple(names) == FEATURE_NAMES:
        return
    absent = [feature for feature in FEATURE_NAMES if feature not in names]
    unknown = [feature for feature in dict.fromkeys(names) if feature not in FEATURE_NAMES]
    problems = [f"without {', '.join(absent)}"] if absent else []
    problems += [f"unknown here: {', '.join(unknown)}"] if unknown else []
    problems += ["some twice"] if len(set(names)) < len(names) else []
    what = "; ".join(problems) or "the same in another order"
    raise ModelError(f"{name}: trained with other columns than this version's: {what}", hint=HINT)


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
    write_json(fresh, {"name": registration.name, "version": registration.version})
    fresh.replace(path)


def _read_registration(directory: Path) -> Registration | None:
    path = directory / _REGISTRATION
    if not path.exists():
        return None
    document = read_json(path, read_bytes(path))
    name, version = document.get("name"), document.get("version")
    if not (isinstance(name, str) and isinstance(version, str)):
        raise ModelError(f"{path}: no name and version", hint=HINT)
    return Registration(name=name, version=version)

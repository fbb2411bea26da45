from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lightgbm
import numpy as np
import pytest

from fastci_ml.errors import ModelError
from fastci_ml.features.log import RunLog
from fastci_ml.learn.bundle import ModelBundle, Registration, write_registration

FILES = [
    "manifest.json",
    "trees.txt",
    "schema.json",
    "calibration.json",
    "card.json",
    "state/fold.npz",
    "state/names.json",
    "state/records.json",
]


def test_a_loaded_bundle_scores_as_the_one_that_was_saved(
    trained: ModelBundle, bundle_dir: Path, X: np.ndarray
) -> None:
    loaded = ModelBundle.load(bundle_dir)
    np.testing.assert_array_equal(loaded.raw_scores(X), trained.raw_scores(X))
    np.testing.assert_array_equal(loaded.risk(X), trained.risk(X))
    np.testing.assert_array_equal(loaded.contributions(X), trained.contributions(X))
    scores, contributions = loaded.explain(X)
    np.testing.assert_array_equal(scores, trained.raw_scores(X))
    np.testing.assert_array_equal(contributions, trained.contributions(X))
    assert loaded.state.watermark_us == trained.state.watermark_us
    assert loaded.card == json.loads(json.dumps(trained.card))
    assert (loaded.name, loaded.version) == ("fastci-risk", None)


def test_scores_are_those_of_lightgbm_on_the_same_text(bundle_dir: Path, X: np.ndarray) -> None:
    booster = lightgbm.Booster(model_file=str(bundle_dir / "trees.txt"))
    np.testing.assert_array_equal(
        ModelBundle.load(bundle_dir).raw_scores(X), booster.predict(X, raw_score=True)
    )


def test_every_file_is_watched(bundle_dir: Path) -> None:
    found = {path.relative_to(bundle_dir).as_posix() for path in bundle_dir.rglob("*") if path.is_file()}
    assert found == set(FILES)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flip first", "flip middle", "flip last", "cut", "empty", "gone"])
def test_damage_to_any_file_is_refused(bundle_dir: Path, name: str, damage: str) -> None:
    path = bundle_dir / name
    content = bytearray(path.read_bytes())
    place = {"flip first": 0, "flip middle": len(content) // 2, "flip last": len(content) - 1}.get(damage)
    if damage == "gone":
        path.unlink()
    elif place is not None:
        content[place] ^= 0x01
        path.write_bytes(content)
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(ModelError) as raised:
        ModelBundle.load(bundle_dir)
    assert str(bundle_dir) in str(raised.value)
    assert raised.value.hint == "fastci-ml train"


def test_a_bundle_of_other_features_is_refused(trained: ModelBundle, bundle_dir: Path) -> None:
    text = trained.model_text.replace("n_runs", "n_walks")
    with pytest.raises(ModelError, match="other columns"):
        ModelBundle(model_text=text, calibration=trained.calibration, state=trained.state, card={})


def test_saving_replaces_the_old_bundle_and_leaves_nothing_behind(
    trained: ModelBundle, bundle_dir: Path
) -> None:
    write_registration(bundle_dir, Registration(name="fastci-risk", version="7"))
    assert ModelBundle.load(bundle_dir).version == "7"
    trained.save(bundle_dir)
    assert ModelBundle.load(bundle_dir).version is None
    assert [path.name for path in bundle_dir.parent.iterdir()] == ["model"]


def test_a_folder_that_is_no_bundle_is_never_replaced(trained: ModelBundle, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep")
    with pytest.raises(ModelError, match="something else"):
        trained.save(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "keep"


def test_a_save_that_fails_leaves_the_old_bundle(
    trained: ModelBundle, bundle_dir: Path, X: np.ndarray
) -> None:
    class Unwritable:
        def __repr__(self) -> str:
            return "no JSON"

    broken = ModelBundle(
        model_text=trained.model_text,
        calibration=trained.calibration,
        state=trained.state,
        card={"x": Unwritable()},
    )
    with pytest.raises(TypeError):
        broken.save(bundle_dir)
    np.testing.assert_array_equal(ModelBundle.load(bundle_dir).raw_scores(X), trained.raw_scores(X))
    assert [path.name for path in bundle_dir.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("content", ["", "[]", '{"name": 3, "version": "1"}'])
def test_a_damaged_registration_is_refused(bundle_dir: Path, content: str) -> None:
    (bundle_dir / "registration.json").write_text(content)
    with pytest.raises(ModelError, match="registration"):
        ModelBundle.load(bundle_dir)


def test_no_bundle_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        ModelBundle.load(tmp_path / "nowhere")


def test_scoring_needs_nothing_but_numpy(bundle_dir: Path, log: RunLog) -> None:
    code = """
import sys
for name in ("mlflow", "lightgbm", "sklearn", "pandas", "scipy", "matplotlib", "torch"):
    sys.modules[name] = None
from pathlib import Path
from fastci_ml.learn.bundle import ModelBundle
bundle = ModelBundle.load(Path(sys.argv[1]))
X = bundle.state.matrix([f"tests/test_{t % 5}.py::test_{t:03}" for t in range(50)], "x", None)
scores, contributions = bundle.explain(X)
assert scores.shape == (50,) and contributions.shape == X.shape
assert ((bundle.risk(X) >= 0) & (bundle.risk(X) <= 1)).all()
print("scored")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(bundle_dir)], check=False, capture_output=True, text=True
    )
    assert done.stdout == "scored\n", done.stderr

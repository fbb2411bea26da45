"""Case 48: every door of a model takes columns by name, and the model itself would not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fastci_ml.errors import ModelError
from fastci_ml.features.columns import to_frame
from fastci_ml.features.log import RunLog
from fastci_ml.features.schema import FEATURE_NAMES, schema_digest
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.labels import labels
from fastci_ml.learn.policies import POLICIES
from fastci_ml.learn.ranker import RiskRanker, booster_from_text
from fastci_ml.learn.registry import Registry
from fastci_ml.learn.training import train
from fastci_ml.settings import Settings

SWAPPED = [*FEATURE_NAMES[::-1]]


def test_lightgbm_gives_swapped_columns_other_scores_without_a_word_and_we_do_not(
    trained: ModelBundle, X: np.ndarray
) -> None:
    frame = to_frame(X)
    booster = booster_from_text(trained.model_text)
    right = booster.predict(frame, raw_score=True)
    wrong = booster.predict(frame[SWAPPED], raw_score=True)  # no error, no warning
    assert np.abs(right - wrong).max() > 1.0
    np.testing.assert_array_equal(trained.raw_scores(frame[SWAPPED]), right)


@pytest.mark.parametrize(
    "turn",
    [
        lambda frame: frame[SWAPPED],
        lambda frame: frame[[*FEATURE_NAMES[5:], *FEATURE_NAMES[:5]]],
        lambda frame: frame[sorted(FEATURE_NAMES)].astype("float64"),
        lambda frame: {name: frame[name].tolist() for name in SWAPPED},
    ],
    ids=["reversed", "rolled", "sorted and float64", "mapping"],
)
def test_every_door_takes_columns_by_name(
    trained: ModelBundle, log: RunLog, X: np.ndarray, turn: Callable[[pd.DataFrame], object]
) -> None:
    turned, y = turn(to_frame(X)), labels(log)
    np.testing.assert_array_equal(trained.raw_scores(turned), trained.raw_scores(X))
    np.testing.assert_array_equal(trained.risk(turned), trained.risk(X))
    np.testing.assert_array_equal(trained.contributions(turned), trained.contributions(X))
    for found, expected in zip(trained.explain(turned), trained.explain(X), strict=True):
        np.testing.assert_array_equal(found, expected)
    ranker = RiskRanker(n_trees=5).fit(X, y)
    assert RiskRanker(n_trees=5).fit(turned, y).model_text_ == ranker.model_text_
    np.testing.assert_array_equal(ranker.decision_function(turned), ranker.decision_function(X))
    for policy in POLICIES.values():
        scores = [policy.score(features, np.random.default_rng(0)) for features in (turned, X)]
        np.testing.assert_array_equal(*scores)


def test_training_on_an_offline_frame_gives_the_same_bundle(
    log: RunLog, X: np.ndarray, trained: ModelBundle, tmp_path: Path
) -> None:
    path = tmp_path / "X.parquet"
    to_frame(X)[SWAPPED].to_parquet(path)
    created_at = pd.Timestamp(trained.card["created_at"]).to_pydatetime()
    bundle = train(log, pd.read_parquet(path), created_at=created_at, seed=3)
    assert bundle.model_text == trained.model_text
    assert bundle.calibration == trained.calibration


@pytest.mark.parametrize(
    "spoil",
    [
        lambda frame: frame.drop(columns="n_fails"),
        lambda frame: frame.rename(columns={"n_fails": "n fails"}),
        lambda frame: frame.assign(n_fails="3"),
        lambda frame: frame.assign(**{"t.py::test[a]": 1.0}),
    ],
    ids=["missing", "renamed", "text", "a test id"],
)
def test_every_door_refuses_what_does_not_fit(
    trained: ModelBundle, log: RunLog, X: np.ndarray, spoil: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    spoiled, y = spoil(to_frame(X)), labels(log)
    ranker = RiskRanker(n_trees=3).fit(X, y)
    doors: list[Callable[[], object]] = [
        lambda: trained.raw_scores(spoiled),
        lambda: trained.risk(spoiled),
        lambda: trained.contributions(spoiled),
        lambda: trained.explain(spoiled),
        lambda: ranker.decision_function(spoiled),
        lambda: RiskRanker(n_trees=3).fit(spoiled, y),
        lambda: POLICIES["shortest"].score(spoiled, np.random.default_rng(0)),
    ]
    for door in doors:
        with pytest.raises((TypeError, ValueError), match=r"n_fails|t\.py"):
            door()


def test_the_logged_model_takes_columns_by_name_and_refuses_the_rest(
    make_settings: Callable[..., Settings], bundle_dir: Path, X: np.ndarray
) -> None:
    # The signature that we log makes MLflow do so; without names it refuses, rather than trust the order.
    registry, bundle = Registry(make_settings()), ModelBundle.load(bundle_dir)
    registry.log_training(bundle_dir, bundle, [])
    # Later, because MLflow warns of type hints of its own when it is loaded, and `log_training` knows that.
    import mlflow.pyfunc
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient(tracking_uri=registry.uri, registry_uri=registry.uri)
    version = client.get_model_version("fastci-risk", "1")
    model = mlflow.pyfunc.load_model(version.source)
    assert model.metadata.signature.inputs.input_names() == list(FEATURE_NAMES)
    frame = to_frame(X)
    expected = 1 / (1 + np.exp(-bundle.raw_scores(X)))
    np.testing.assert_allclose(model.predict(frame), expected, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(frame[SWAPPED]), model.predict(frame))
    np.testing.assert_array_equal(model.predict(frame.assign(run_id="r")), model.predict(frame))
    for spoiled in (
        X,
        X[:, ::-1],
        pd.DataFrame(X),
        frame.drop(columns="n_fails"),
        frame.rename(columns={"n_fails": "n fails"}),
        frame.assign(n_fails="3"),
        frame.astype("float64"),
    ):
        with pytest.raises(MlflowException, match="schema"):
            model.predict(spoiled)


def rewrite_schema(bundle_dir: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Change schema.json as another release would have written it, with a manifest that fits."""
    path, manifest = bundle_dir / "schema.json", bundle_dir / "manifest.json"
    schema = json.loads(path.read_text())
    schema = change(schema) or schema
    path.write_text(json.dumps(schema, indent=1) + "\n")
    document = json.loads(manifest.read_text())
    document["files"]["schema.json"] = sha256(path.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(document, indent=1) + "\n")


def with_names(names: Sequence[object]) -> Callable[[dict[str, object]], object]:
    return lambda schema: {**schema, "names": [*names], "digest": schema_digest([str(n) for n in names])}


SCHEMAS: dict[str, tuple[Callable[[dict[str, object]], object], str]] = {
    "of an earlier release": (with_names(FEATURE_NAMES[:-2]), "without file_cofail_rate, folder_cofail_rate"),
    "of a later release": (with_names([*FEATURE_NAMES, "age_commits"]), "unknown here: age_commits"),
    "with another name": (
        with_names(["runs", *FEATURE_NAMES[1:]]),
        "without n_runs; unknown here: runs",
    ),
    "in another order": (with_names(SWAPPED), "the same in another order"),
    "with a name twice": (with_names([*FEATURE_NAMES, "n_runs"]), "some twice"),
    "defined otherwise": (lambda schema: {**schema, "digest": "0" * 64}, "defined otherwise"),
    "without a digest": (lambda schema: {"names": schema["names"]}, "defined otherwise"),
    "without names": (lambda schema: {"digest": schema["digest"]}, "no list of text"),
    "with numbers for names": (with_names(range(33)), "no list of text"),
    "of no object": (lambda schema: [1], "expected an object"),
}


@pytest.mark.parametrize("what", SCHEMAS)
def test_a_bundle_of_other_features_is_refused_and_told_what_is_other(bundle_dir: Path, what: str) -> None:
    # case 48: never scored by place, also where only the order is another.
    change, match = SCHEMAS[what]
    rewrite_schema(bundle_dir, change)
    with pytest.raises(ModelError, match=match) as raised:
        ModelBundle.load(bundle_dir)
    assert "schema.json" in str(raised.value)
    assert raised.value.hint == "fastci-ml train"


def test_trees_in_another_order_than_the_schema_are_refused(trained: ModelBundle) -> None:
    line = next(line for line in trained.model_text.split("\n") if line.startswith("feature_names="))
    text = trained.model_text.replace(line, f"feature_names={' '.join(SWAPPED)}")
    with pytest.raises(ModelError, match="the same in another order"):
        ModelBundle(model_text=text, calibration=trained.calibration, state=trained.state, card={})

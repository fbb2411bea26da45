from __future__ import annotations

from pathlib import Path

from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.plots import draw_plots

PNG = b"\x89PNG"


def test_each_plot_is_a_picture(trained: ModelBundle, tmp_path: Path) -> None:
    paths = draw_plots(trained.card, tmp_path / "plots")
    assert [path.name for path in paths] == ["gain_by_feature.png", "reliability.png", "apfd_per_run.png"]
    assert all(path.read_bytes().startswith(PNG) for path in paths)


def test_an_uncalibrated_model_has_no_reliability_plot(trained: ModelBundle, tmp_path: Path) -> None:
    test = {key: value for key, value in trained.card["metrics"]["test"].items() if key != "reliability"}
    card = {**trained.card, "metrics": {"test": test}}
    assert "reliability.png" not in [path.name for path in draw_plots(card, tmp_path)]

"""Plots of a bundle's card: reliability, gain by feature, APFD per run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_N_FEATURES = 20
_DPI = 110


def draw_plots(card: Mapping[str, Any], directory: Path) -> list[Path]:
    """Draw what a card holds.

    Parameters
    ----------
    card : mapping
        Of a `ModelBundle`.
    directory : Path
        Made if it is missing.

    Returns
    -------
    list of Path
        PNG files. A plot without data is left out: no reliability of an uncalibrated model.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    directory.mkdir(parents=True, exist_ok=True)
    test = card["metrics"]["test"]
    parts: dict[str, tuple[Callable[[Axes, Any], None], Any]] = {
        "gain_by_feature": (_draw_gain, card["gain"]),
        "reliability": (_draw_reliability, test.get("reliability")),
        "apfd_per_run": (_draw_apfd, test if test.get("by_run") else None),
    }
    paths = []
    for name, (draw, data) in parts.items():
        if not data:
            continue
        # Figure without pyplot: no global state, no window system.
        figure = Figure(figsize=(7, 5), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure.add_subplot(), data)
        paths.append(directory / f"{name}.png")
        figure.savefig(paths[-1], dpi=_DPI)
    return paths


def _draw_gain(axes: Axes, gain: Mapping[str, float]) -> None:
    top = sorted(gain.items(), key=lambda item: (-item[1], item[0]))[:_N_FEATURES]
    names, values = zip(*reversed(top), strict=True)
    axes.barh(names, values, color="tab:blue")
    axes.set(title="Gain by feature", xlabel="total gain of its splits")


def _draw_reliability(axes: Axes, bins: list[Mapping[str, float]]) -> None:
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--", label="risk means what it says")
    axes.plot([b["risk"] for b in bins], [b["failure_rate"] for b in bins], marker="o", label="test slice")
    top = max(max(b["risk"], b["failure_rate"]) for b in bins) * 1.05
    axes.set(title="Reliability, ten bins of equal mass", xlabel="mean risk", ylabel="failure rate")
    axes.set(xlim=(0, max(top, 0.01)), ylim=(0, max(top, 0.01)))
    axes.legend()


def _draw_apfd(axes: Axes, test: Mapping[str, Any]) -> None:
    values = [run["apfd"] for run in test["by_run"]]
    axes.plot(range(1, len(values) + 1), values, marker=".", linestyle="", label="model")
    axes.axhline(test["apfd"], color="tab:blue", label=f"model, mean {test['apfd']:.3f}")
    simple = test["best_simple_apfd"]
    label = f"{test['best_simple_apfd_policy']}, mean {simple:.3f}"
    axes.axhline(simple, color="tab:orange", linestyle="--", label=label)
    axes.set(
        title="APFD of each failing run of the test slice", xlabel="failing run", ylabel="APFD", ylim=(0, 1)
    )
    axes.legend()

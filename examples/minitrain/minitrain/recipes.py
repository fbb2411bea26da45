"""Named starting points. A run is a recipe and assignments; no recipe says how it is laid out over ranks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from minitrain.config import Config, assign
from minitrain.errors import ConfigError

# Assignments, after the recipe that they change, if any, as "@name".
RECIPES: dict[str, str] = {
    "tiny": "model.layers=2 model.hidden=32 model.ffn=64 "
    "data.sequence=32 data.mean_length=24 data.documents=200",
    "small": "",
    "tiny-moe": "@tiny model.experts=4 model.ffn=32",
    "small-moe": "@small model.experts=8 model.ffn=64 model.moe_every=2",
    # No size divides another where it need not.
    "odd": "@small model.vocabulary=97 model.layers=3 model.hidden=56 model.ffn=150 model.kv_heads=1 "
    "data.sequence=60 data.batch=6 data.micro_batch=3 parallel.bucket_kib=7",
    # For a laptop: a minute, in which the loss falls near its floor.
    "demo": "@small data.documents=4000 run.steps=300 run.eval_every=50 run.eval_batches=4 "
    "checkpoint.every=100 checkpoint.keep=2",
}


def recipe(name: str, assignments: Iterable[str] = ()) -> Config:
    """Return the configuration of a recipe with assignments applied.

    >>> recipe("tiny-moe", ["parallel.dp=2"]).model.experts
    4

    Raises
    ------
    ConfigError
        If there is no such recipe, or an assignment cannot be read.
    """
    return assign(Config(), [*_expand(name), *assignments])


def _expand(name: str) -> list[str]:
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(RECIPES)}"
        raise ConfigError(f"no recipe {name!r}: {hint}")
    expanded: list[str] = []
    for item in RECIPES[name].split():
        expanded.extend(_expand(item[1:]) if item.startswith("@") else [item])
    return expanded

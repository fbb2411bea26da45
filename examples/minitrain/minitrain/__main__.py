"""``python -m minitrain RECIPE [KEY=VALUE ...]``, or the same behind ``torchrun --nproc-per-node N -m``."""

from __future__ import annotations

import argparse
import os
import sys

import torch
import torch.distributed as dist

from minitrain.errors import TrainError
from minitrain.mesh import disconnect
from minitrain.recipes import RECIPES, recipe
from minitrain.trainer import run


def main(arguments: list[str] | None = None) -> int:
    """Train a recipe; return 0, or 2 after an error of the user, which is printed."""
    parser = argparse.ArgumentParser(prog="minitrain", description="Train a small language model.")
    parser.add_argument("recipe", help=f"one of {', '.join(RECIPES)}")
    parser.add_argument(
        "assignments", nargs="*", metavar="KEY=VALUE", help="such as parallel.tp=2 run.steps=50"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # for work this small, a second one costs more than it gives
    if "RANK" in os.environ:  # started by torchrun
        dist.init_process_group("gloo")
    try:
        records = run(recipe(options.recipe, options.assignments))
    except TrainError as error:
        print(f"minitrain: {error}", file=sys.stderr)
        return 2
    finally:
        if dist.is_initialized():
            disconnect()
    if os.environ.get("RANK", "0") == "0":
        for record in records:
            if record["event"] in ("step", "eval"):
                shown = {
                    key: f"{value:.5g}" if isinstance(value, float) else value
                    for key, value in record.items()
                }
                print(" ".join(f"{key}={value}" for key, value in shown.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Stored reference losses: ``python -m tools.make_reference FILE [RECIPE KEY=VALUE ...]``.

A file says which run it is of; without a recipe the run that it names is made again. Runs are made on one
rank in fp64, and numbers are kept to 10 digits: other CPUs, and other layouts, differ in the 13th.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from minitrain.recipes import recipe
from minitrain.trainer import run

_QUANTITIES = ("loss", "balance", "grad_norm")


def make_reference(name: str, assignments: list[str]) -> dict[str, Any]:
    """Run a recipe on one rank in fp64, and return its name, its assignments and what each step gave."""
    with tempfile.TemporaryDirectory() as folder:
        places = [f"run.dir={folder}/run", f"data.dir={folder}/data", "precision.dtype=fp64"]
        records = run(recipe(name, [*assignments, *places]))
    made: dict[str, Any] = {"recipe": name, "assignments": assignments}
    for event in ("step", "eval"):
        for quantity in _QUANTITIES:
            values = [
                record[quantity] for record in records if record["event"] == event and quantity in record
            ]
            if any(values):
                made[f"{event}_{quantity}"] = [float(f"{value:.10g}") for value in values]
    return made


def main(arguments: list[str] | None = None) -> int:
    """Write one file."""
    parser = argparse.ArgumentParser(prog="tools.make_reference", description="Store what a run gives.")
    parser.add_argument("file", type=Path)
    parser.add_argument("recipe", nargs="?", help="of a new file; else the file says it")
    parser.add_argument("assignments", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.recipe is None:
        stored = json.loads(options.file.read_text())
        name, assignments = stored["recipe"], stored["assignments"]
    else:
        name, assignments = options.recipe, options.assignments
    options.file.write_text(json.dumps(make_reference(name, assignments), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

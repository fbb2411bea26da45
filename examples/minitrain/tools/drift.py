"""How far layouts drift from one rank over a long run: ``python -m tools.drift [STEPS]``.

Two layouts add the same numbers in another order, so they differ by rounding from the first step on, and
training enlarges what differs. The table tells by how much: of all steps up to a number, the largest relative
difference of the loss and of the gradient norm, in fp64 and in fp32, and last what the runs came to.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import fmean

from minitrain.recipes import recipe
from minitrain.trainer import run
from tests.pool import Job, Pool

LAYOUTS = {
    "tiny": ("tp=2 sequence_parallel=true", "cp=2", "dp=2 zero=true", "pp=2", "tp=2 pp=2"),
    "tiny-moe": ("tp=2", "dp=2 ep=2 zero=true", "cp=2 ep=2"),
}
MARKS = (10, 50, 100, 200, 500, 1000)
LIMIT_S = 1200


def train(pool: Pool, name: str, layout: str, dtype: str, steps: int) -> tuple[list[float], list[float]]:
    """Return loss and gradient norm of every step."""
    with tempfile.TemporaryDirectory() as folder:
        places = [f"run.dir={folder}/run", f"data.dir={folder}/data"]
        settings = [
            f"precision.dtype={dtype}",
            f"run.steps={steps}",
            "run.eval_every=0",
            "data.documents=2000",
        ]
        config = recipe(name, [*settings, *(f"parallel.{part}" for part in layout.split()), *places])
        job = Job(run, (config,), config.parallel.world, "drift", Path(folder) / "store")
        records = [record for record in pool.run(job, LIMIT_S) if record["event"] == "step"]
    return [record["loss"] for record in records], [record["grad_norm"] for record in records]


def largest(found: list[float], expected: list[float]) -> float:
    """Return the largest relative difference."""
    return max(abs(one - other) / abs(other) for one, other in zip(found, expected, strict=True))


def main() -> int:
    """Train every layout beside one rank, and print the table."""
    parser = argparse.ArgumentParser(description="How far layouts drift from one rank.")
    parser.add_argument("steps", type=int, nargs="?", default=500)
    steps = parser.parse_args().steps
    marks = [mark for mark in MARKS if mark <= steps]
    heads = [f"to step {mark}" for mark in marks]
    print(f"| recipe | layout | format | {' | '.join(heads)} | mean of the last 20 losses |")
    print(f"|---|---|---|{'---|' * len(marks)}---|")
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(Path(folder))
        for name, layouts in LAYOUTS.items():
            for dtype in ("fp64", "fp32"):
                losses, norms = train(pool, name, "", dtype, steps)
                end = fmean(losses[-20:])
                for layout in layouts:
                    found, found_norms = train(pool, name, layout, dtype, steps)
                    cells = [
                        f"{largest(found[:mark], losses[:mark]):.0e}, "
                        f"{largest(found_norms[:mark], norms[:mark]):.0e}"
                        for mark in marks
                    ]
                    last = f"{fmean(found[-20:]):.4f}, alone {end:.4f}"
                    print(f"| {name} | {layout} | {dtype} | {' | '.join(cells)} | {last} |", flush=True)
        pool.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

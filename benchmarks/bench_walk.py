"""Score 10,000 rows with 200 trees of 31 leaves: the numpy walk against LightGBM, each in its own process.

Prints one JSON line a measurement, the last a summary. CPU seconds, one thread, best of five.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

N_ROWS, N_COLUMNS, N_TREES, N_LEAVES, N_REPEATS = 10_000, 33, 200, 31, 5

_WALK = """
import sys, time
import numpy as np
X = np.load(sys.argv[2])  # numpy is there in any case: the matrix is made with it
start = time.process_time()
from fastci_ml.learn.walk import TreeWalk
walk = TreeWalk.parse(open(sys.argv[1]).read())
parsed = time.process_time()
scores = walk.raw_scores(X)
scored = time.process_time()
walk.explain(X)
done = time.process_time()
np.save(sys.argv[3], scores)
print(parsed - start, scored - parsed, done - scored)
"""

_LIGHTGBM = """
import sys, time
import numpy as np
X = np.load(sys.argv[2])
start = time.process_time()
import lightgbm
booster = lightgbm.Booster(model_file=sys.argv[1])
loaded = time.process_time()
scores = booster.predict(X, raw_score=True, num_threads=1)
scored = time.process_time()
np.save(sys.argv[3], scores)
print(loaded - start, scored - loaded)
"""


def measure(code: str, *paths: Path) -> list[float]:
    """Least CPU seconds of each part over the repeats."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    runs = []
    for _ in range(N_REPEATS):
        command = [sys.executable, "-c", code, *map(str, paths)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
        runs.append([float(word) for word in done.stdout.split()])
    return [min(part) for part in zip(*runs, strict=True)]


def main() -> None:
    import lightgbm
    import numpy as np

    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(N_ROWS, N_COLUMNS)).astype(np.float32)
    matrix[rng.random(matrix.shape) < 0.1] = np.nan
    matrix[rng.random(matrix.shape) < 0.1] = 0.0
    lift = np.nansum(matrix * rng.normal(size=N_COLUMNS), axis=1)
    y = rng.random(N_ROWS) < 1 / (1 + np.exp(-lift))
    params = {"objective": "binary", "num_leaves": N_LEAVES, "verbose": -1, "seed": 0, "num_threads": 1}
    booster = lightgbm.train(params, lightgbm.Dataset(matrix, y), N_TREES)
    with tempfile.TemporaryDirectory() as folder:
        model, rows = Path(folder, "trees.txt"), Path(folder, "X.npy")
        booster.save_model(str(model))
        np.save(rows, matrix)
        ours, theirs = Path(folder, "ours.npy"), Path(folder, "theirs.npy")
        parse_s, walk_s, explain_s = measure(_WALK, model, rows, ours)
        load_s, predict_s = measure(_LIGHTGBM, model, rows, theirs)
        is_equal = bool(np.array_equal(np.load(ours), np.load(theirs)))
    shape = {"n_rows": N_ROWS, "n_trees": N_TREES, "n_leaves": N_LEAVES}
    walk = {"parse_s": parse_s, "raw_scores_s": walk_s, "explain_s": explain_s}
    print(json.dumps({"bench": "walk", "what": "numpy", **shape, **walk}))
    print(
        json.dumps({"bench": "walk", "what": "lightgbm", **shape, "import_s": load_s, "predict_s": predict_s})
    )
    summary = {
        "walk_s": parse_s + walk_s,
        "explain_s": parse_s + explain_s,
        "ratio_to_lightgbm": (parse_s + walk_s) / (load_s + predict_s),
        "ratio_to_lightgbm_predict": walk_s / predict_s,
        "is_bit_equal": is_equal,
    }
    print(json.dumps({"bench": "walk", "what": "summary", **summary}))


if __name__ == "__main__":
    main()

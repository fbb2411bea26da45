"""Read the standard library's own files into blocks, against `ast.parse` alone.

Prints one JSON line a measurement, the last a summary. CPU seconds of one process, medians of passes taken
in turn, so that a busy machine slows all alike. Reading switches the garbage collector off, so parsing is
measured without it as well. `slope` is the exponent of time over size on one kind of file doubled again and
again: 1 is linear.
"""

from __future__ import annotations

import ast
import gc
import json
import math
import statistics
import sysconfig
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from fastci_ml.sources.blocks.reader import read_blocks

N_PASSES, STEP = 7, 6
# A part of a module with one of everything; names are new in each copy.
_PART = '''
import os_{0}
C_{0} = [1, 2, "text {0}"]
@decorate(1)
def f_{0}(a, b=C_{0}, *, c: int = 2) -> str:
    """Doc."""
    def inner(x):
        return [y * x for y in a if y is not None]
    if a.attribute[0] > b:
        raise ValueError(f"bad {{a!r}}")
    return inner(c)
class K_{0}(Base):
    field = 1
    def method(self, value):
        self.value = getattr(value, "name", None)
        return {{k: v for k, v in self.items()}}
register("part {0}", f_{0})
'''


def parse(source: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(source)
        except SyntaxError:
            return


def cpu_s(work: Callable[[bytes], object], sources: list[bytes]) -> float:
    start = time.process_time()
    for source in sources:
        work(source)
    return time.process_time() - start


def cpu_s_uncollected(work: Callable[[bytes], object], sources: list[bytes]) -> float:
    gc.disable()
    try:
        return cpu_s(work, sources)
    finally:
        gc.enable()


def main() -> None:
    stdlib = Path(sysconfig.get_path("stdlib"))
    paths = sorted(path for path in stdlib.rglob("*.py") if "site-packages" not in path.parts)[::STEP]
    sources = [path.read_bytes() for path in paths]
    n_lines = sum(source.count(b"\n") for source in sources)
    n_blocks = sum(len(read_blocks(source).blocks) for source in sources)
    passes = [
        (cpu_s(parse, sources), cpu_s_uncollected(parse, sources), cpu_s(read_blocks, sources))
        for _ in range(N_PASSES)
    ]
    parse_s, uncollected_s, read_s = (statistics.median(part) for part in zip(*passes, strict=True))
    ratio = statistics.median(read / parsed for parsed, _, read in passes)
    uncollected_ratio = statistics.median(read / parsed for _, parsed, read in passes)
    library = {"n_files": len(paths), "n_lines": n_lines, "n_blocks": n_blocks}
    seconds = {"parse_s": parse_s, "parse_uncollected_s": uncollected_s, "read_s": read_s}
    print(json.dumps({"bench": "blocks", "what": "stdlib", **library, **seconds}))
    sizes = [250, 500, 1000, 2000, 4000]
    times = []
    for n_parts in sizes:
        source = "".join(_PART.format(number) for number in range(n_parts)).encode()
        read_s_of_size = statistics.median(cpu_s(read_blocks, [source]) for _ in range(3))
        times.append(read_s_of_size)
        size = {"n_lines": source.count(b"\n"), "read_s": read_s_of_size}
        print(json.dumps({"bench": "blocks", "what": "one large file", **size}))
    slope = statistics.linear_regression(
        [math.log(size) for size in sizes], [math.log(s) for s in times]
    ).slope
    summary = {
        "ratio_to_ast_parse": ratio,
        "ratio_to_ast_parse_uncollected": uncollected_ratio,
        "lines_per_s": n_lines / read_s,
        "slope": slope,
    }
    print(json.dumps({"bench": "blocks", "what": "summary", **summary}))


if __name__ == "__main__":
    main()

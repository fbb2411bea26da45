"""What blocks are read from files, and which code objects find theirs: run as a script by any interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fastci_ml
from fastci_ml.sources.blocks.module_blocks import ModuleBlocks
from fastci_ml.sources.blocks.reader import read_blocks


def code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and all in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def compiled(source: bytes) -> types.CodeType | None:
    """Code of a module; None for what this interpreter does not take."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return compile(source, "probed.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return None


def found_blocks(source: bytes) -> dict[str, str | None]:
    """By ``name:line`` of each code object of a source, the name of its block."""
    code = compiled(source)
    assert code is not None
    blocks = read_blocks(source)
    found = {}
    for item in code_objects(code):
        block = blocks.at(item.co_qualname, item.co_firstlineno)
        found[f"{item.co_qualname}:{item.co_firstlineno}"] = None if block is None else block.name
    return found


def lost_codes(source: bytes) -> tuple[int, list[str]]:
    """Number of code objects of a source, and those that do not find a block around their line."""
    code = compiled(source)
    if code is None:
        return 0, []
    blocks = read_blocks(source)
    n_codes, lost = 0, [] if blocks.is_parsed else ["not parsed"]
    for item in code_objects(code):
        name, line = item.co_qualname, item.co_firstlineno
        if name == "<module>":
            assert blocks.at(name, line) is None
            continue
        n_codes += 1
        block = blocks.at(name, line)
        if block is None or not block.first_line <= line <= block.last_line:
            lost.append(f"{name}:{line}")
    return n_codes, lost


def described(blocks: ModuleBlocks) -> list[Any]:
    """All that is known of a file, as JSON has it."""
    rows: list[Any] = [asdict(block) | {"reads": sorted(block.reads)} for block in blocks.blocks]
    return json.loads(json.dumps([rows, [asdict(seen) for seen in blocks.imports], blocks.doc_fingerprint]))


def ask_probe(program: str, what: str, given: list[str]) -> Any:
    """What this script answers on another interpreter, which needs nothing installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(Path(fastci_ml.__file__).parent.parent)
    done = subprocess.run(
        [program, "-X", "utf8", __file__],
        input=json.dumps([what, given]),
        capture_output=True,
        encoding="utf-8",
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main() -> None:
    """Answer ``[what, paths or sources]`` of standard input."""
    what, given = json.load(sys.stdin)
    if what == "describe":
        answer: Any = [described(read_blocks(Path(path).read_bytes())) for path in given]
    elif what == "lost":
        answer = [lost_codes(Path(path).read_bytes()) for path in given]
    else:
        answer = [found_blocks(source.encode()) for source in given]
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()

"""Reads files of the repository."""

import json
import os
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"


def load(name):
    with open(DATA / name) as stream:  # noqa: PTH123
        return json.load(stream)


def names():
    return sorted(path.name for path in (DATA / "configs").glob("*.json"))


def relative(name):
    os.chdir(DATA)
    return Path(name).read_text()

"""Other interpreters of the machine: what runs inside test processes has to run on each of them."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHERS = ("3.12", "3.13")
VERSIONS = (RUNNING, *(version for version in OTHERS if version != RUNNING))


@functools.cache
def find_python(version: str) -> str | None:
    """Program of another interpreter, by PATH or among pyenv's; None where there is none."""
    found = shutil.which(f"python{version}")
    if found and _runs(found, version):
        return found
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for program in sorted(versions.glob(f"{version}.*/bin/python"), reverse=True):
        if _runs(str(program), version):
            return str(program)
    return None


def python_or_skip(version: str) -> str | None:
    """Program of another interpreter; None for the one that runs; the test is skipped where there is none."""
    if version == RUNNING:
        return None
    found = find_python(version)
    if found is None:
        pytest.skip(f"no Python {version} on this machine")
    return found


def _runs(program: str, version: str) -> bool:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version

"""The lane that this process runs on: evidence and plans of one lane say nothing about another.

Standard library only, and torch is never imported to ask for its version: that takes seconds.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections import Counter
from importlib import metadata
from pathlib import Path

VARIABLE = "FASTCI_LANE"
_NVIDIA = Path("/proc/driver/nvidia")


def detect_lane(nvidia: Path = _NVIDIA) -> str:
    """Name this environment: interpreter, platform, torch, GPUs and driver.

    Parameters
    ----------
    nvidia : Path
        What the NVIDIA kernel driver says of itself and of its GPUs.

    Returns
    -------
    str
        Four parts between ``|``, versions in full, such as
        ``cpython-3.11.7|linux-x86_64|torch-none|gpu-none``. The environment variable ``FASTCI_LANE``, where
        set, is taken as it is: a CI knows its images better.
    """
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        # The environment may hold any bytes; plans and the history hold text.
        return given.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    python = f"{sys.implementation.name}-{platform.python_version()}"
    machine = f"{sys.platform}-{platform.machine()}"
    return "|".join(_word(part) for part in (python, machine, f"torch-{_torch()}", f"gpu-{_gpus(nvidia)}"))


def _torch() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "none"


def _gpus(nvidia: Path) -> str:
    """Models with their counts and the driver's version; "none" without a driver or a GPU."""
    models = Counter(
        match[1]
        for path in sorted(nvidia.glob("gpus/*/information"))
        if (match := re.search(r"^Model:\s*(.+?)\s*$", _read(path), re.MULTILINE))
    )
    if not models:
        return "none"
    driver = re.search(r"\s(\d+\.\d+(?:\.\d+)*)\s", _read(nvidia / "version"))
    names = "+".join(f"{model}x{count}" for model, count in sorted(models.items()))
    return f"{names}-driver-{driver[1] if driver else 'unknown'}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        # A container may show the folder and forbid its files: then the GPU is not ours to name.
        return ""


def _word(text: str) -> str:
    """`text` without blanks or separators: lanes are column values, file names and command line arguments."""
    return re.sub(r"[^A-Za-z0-9.+_-]+", "-", text)

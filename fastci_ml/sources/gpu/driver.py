"""Whether there is an NVIDIA driver to ask, found out without its bindings.

Importing the bindings takes tens of milliseconds, in every process that runs tests, and most of those have no
GPU. The dynamic loader is asked for the driver's library instead, as the bindings do it.
"""

from __future__ import annotations

import os
import sys

from fastci_ml.records.gpu import GpuProblem

_LIBRARY = "libnvidia-ml.so.1"


def find_no_driver() -> GpuProblem | None:
    """Say why NVML cannot be there; None where it may be, and has to be asked.

    Takes less than a millisecond where there is no library; one that is there stays loaded, for the bindings.
    """
    if sys.platform == "win32":
        return None  # the library has other names and places there: the bindings know them
    try:
        # `ctypes` itself would take milliseconds more.
        from _ctypes import dlopen
    except ImportError:
        return None  # the bindings say that they cannot be imported
    try:
        dlopen(_LIBRARY, 0)
    except OSError:
        from fastci_ml.sources.gpu.problems import Code, explain

        return explain(Code.LIBRARY_NOT_FOUND, environ=os.environ)
    return None

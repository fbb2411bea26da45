"""The one door to NVML: NVIDIA's bindings of whatever age an image holds, with one kind of error."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from fastci_ml.records.gpu import GpuProblem
from fastci_ml.sources.gpu.problems import Code

# Newest first. A version may be missing in the bindings, in the driver's library, or in both.
_PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses",
)
_NEEDED = ("nvmlInit", "nvmlDeviceGetCount", "NVMLError")
# A GPU that is gone must not be asked again: that may crash the process (nvitop issue 139).
GONE = (Code.GPU_IS_LOST, Code.RESET_REQUIRED)


class NvmlError(Exception):
    """NVML did not answer.

    Parameters
    ----------
    code : int
        NVML's return value; `Code.UNKNOWN` for what the bindings themselves tripped over.
    text : str
        In NVML's words.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def load_nvml() -> tuple[Any, GpuProblem | None]:
    """Import NVIDIA's bindings.

    Returns
    -------
    module or None, GpuProblem or None
        One of the two. Call it from the main thread: it silences the deprecation warning of an old package of
        the same name, and warning filters are global.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pynvml
    except ImportError:
        return None, GpuProblem(
            slug="no-bindings",
            reason="the Python package nvidia-ml-py is not installed",
            hint="pip install nvidia-ml-py",
        )
    except Exception as error:  # noqa: BLE001  whatever is installed under that name
        return None, _foreign(f"cannot be imported: {type(error).__name__}: {error}")
    missing = [name for name in _NEEDED if not hasattr(pynvml, name)]
    if missing:
        where = getattr(pynvml, "__file__", None) or "a folder without code"
        return None, _foreign(f"is not NVIDIA's: {where} has no {missing[0]}")
    return pynvml, None


def _foreign(what: str) -> GpuProblem:
    return GpuProblem(
        slug="wrong-bindings",
        reason=f"the module pynvml {what}",
        hint="pip install --force-reinstall nvidia-ml-py; rename a pynvml.py of your own",
    )


class Nvml:
    """Calls of NVML that either answer or raise `NvmlError`.

    Parameters
    ----------
    module : module
        The bindings.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._memory_version: int | None = getattr(module, "nvmlMemory_v2", None)
        self._process_lists = list(_PROCESS_LISTS)

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call `function`.

        Raises
        ------
        NvmlError
            Whatever goes wrong: an error code, a function or an argument that these bindings do not know, a
            name that is no UTF-8.
        """
        try:
            call: Callable[..., Any] = getattr(self._module, function)
        except AttributeError:
            raise NvmlError(Code.FUNCTION_NOT_FOUND, "not in these bindings") from None
        try:
            return call(*arguments)
        except Exception as error:  # noqa: BLE001  the border to foreign code inside of a test process
            raise self._refusal(error) from None

    def find(self, function: str, *arguments: Any) -> Any:
        """Call `function`; None where it is refused."""
        try:
            return self.ask(function, *arguments)
        except NvmlError:
            return None

    def find_text(self, function: str, *arguments: Any) -> str:
        """Call `function` for a text, empty where it is refused; old bindings give bytes."""
        answer = self.find(function, *arguments)
        return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer or "")

    def memory(self, handle: Any) -> Any:
        """Memory of a device, in the second version of the structure where there is one.

        Only that one tells what the driver keeps for itself (912 MiB of an idle A100) from what is used.
        """
        if self._memory_version is None:
            return self.ask("nvmlDeviceGetMemoryInfo", handle)
        try:
            return self.ask("nvmlDeviceGetMemoryInfo", handle, self._memory_version)
        except NvmlError as refusal:
            if refusal.code in (*GONE, Code.UNINITIALIZED):
                raise
        # Drivers before R510, and WSL, where the second version fails with an unknown error.
        memory = self.ask("nvmlDeviceGetMemoryInfo", handle)
        self._memory_version = None
        return memory

    def processes(self, handle: Any) -> Sequence[Any]:
        """Compute processes on a device; the first list that bindings and driver both know."""
        while True:
            try:
                processes: Sequence[Any] = self.ask(self._process_lists[0], handle)
            except NvmlError as refusal:
                if refusal.code != Code.FUNCTION_NOT_FOUND or len(self._process_lists) == 1:
                    raise
                del self._process_lists[0]
            else:
                return processes

    def _refusal(self, error: Exception) -> NvmlError:
        mismatch = getattr(self._module, "NVMLLibraryMismatchError", None)
        if mismatch is not None and isinstance(error, mismatch):
            return NvmlError(Code.FUNCTION_NOT_FOUND, "Function Not Found")
        code = getattr(error, "value", None)
        if isinstance(error, self._module.NVMLError) and isinstance(code, int):
            return NvmlError(code, str(error))
        return NvmlError(Code.UNKNOWN, f"{type(error).__name__}: {error}")

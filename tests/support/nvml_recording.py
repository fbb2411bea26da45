"""NVML as it answered on some machine: recordings (see `fastci_ml.sources.gpu.recording`) played back.

What is played back stands in place of the module `pynvml`, and nothing else is replaced: errors are pynvml's.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from fastci_ml.sources.gpu.recording import SCHEMA

RECORDINGS = Path(__file__).parents[1] / "sources" / "recordings"
_HIGHEST_PID = 2**22


def read_recording(name: str) -> dict[str, Any]:
    """A recording that lies beside the tests, to be changed at will."""
    document = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))
    assert document["schema"] == SCHEMA
    return document


class ReplayedNvml:
    """Stands in for the module `pynvml`.

    Process ids of a recording mean nothing here: `pids` says which stand for which, and every other one is
    played back as one that no process here has. What is no process id at all is left as it is.
    """

    NVMLError = pynvml.NVMLError

    def __init__(self, recording: str | Mapping[str, Any], pids: Mapping[int, int] | None = None) -> None:
        document = read_recording(recording) if isinstance(recording, str) else copy.deepcopy(dict(recording))
        self._missing = set(document["missing"])
        if "nvmlMemory_v2" not in self._missing:
            self.nvmlMemory_v2 = pynvml.nvmlMemory_v2
        if "NVMLLibraryMismatchError" not in self._missing:
            self.NVMLLibraryMismatchError = pynvml.NVMLLibraryMismatchError
        self._pids = dict(pids or {})
        self._unused = (pid for pid in range(_HIGHEST_PID, 0, -1) if not Path(f"/proc/{pid}").exists())
        self._handles: dict[str, object] = {}
        self._answers = {
            (call["function"], json.dumps(call["args"])): list(call["answers"]) for call in document["calls"]
        }
        self.calls: list[tuple[str, list[Any]]] = []
        self.unanswered: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        if name in self._missing or not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            plain = [self._plain(argument) for argument in arguments]
            self.calls.append((name, plain))
            key = (name, json.dumps(plain))
            if key not in self._answers:
                # The reader would take any exception for a refusal: the test looks at this list.
                self.unanswered.append(key)
                raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            answers = self._answers[key]
            return self._value(answers.pop(0) if len(answers) > 1 else answers[0])

        return call

    def _plain(self, argument: Any) -> Any:
        names = [name for name, handle in self._handles.items() if handle is argument]
        return {"handle": names[0]} if names else argument

    def _value(self, answer: Any) -> Any:
        if isinstance(answer, list):
            return [self._value(item) for item in answer]
        if not isinstance(answer, dict):
            return answer
        (kind, content), *_ = answer.items()
        if kind == "error":
            raise pynvml.NVMLError(content)
        if kind == "raises":
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, content)
        if kind == "bytes":
            return content.encode("latin-1")
        if kind == "handle":
            return self._handles.setdefault(content, object())
        fields = {name: self._value(value) for name, value in content.items()}
        if "pid" in fields:
            fields["pid"] = self._pid(fields["pid"])
        return SimpleNamespace(**fields)

    def _pid(self, pid: int | str) -> int:
        if pid == "self":
            return os.getpid()
        if not 0 < pid <= _HIGHEST_PID:
            return pid
        if pid not in self._pids:
            self._pids[pid] = next(self._unused)
        return self._pids[pid]


def compile_nvml(folder: Path) -> Path:
    """Compile a small NVML of our own and give its folder, for LD_LIBRARY_PATH; skips without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = Path(__file__).with_name("fake_nvml.c")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", str(library), str(source)], check=True)
    return folder

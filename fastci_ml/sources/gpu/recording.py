"""What NVML answers on one machine, call by call, as a file: for a report about odd readings, and for tests.

A recording is JSON with ``"schema": "fastci.nvml/1"``. Each of its `calls` names a function, its arguments
and its answers in order (the last one stands for all that follow). An answer is a value, ``{"error": code}``,
``{"handle": name}`` for a device or ``{"struct": {field: value}}``; `missing` lists what the bindings lack.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

SCHEMA = "fastci.nvml/1"
_SCALARS = (str, int, float, bool, type(None))


class RecordingNvml:
    """NVIDIA's bindings, with every call written down.

    Parameters
    ----------
    module : module
        The bindings.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        # A handle is a pointer, and a new object each time; kept, so that its id stays its own.
        self._handles: dict[int, tuple[str, Any]] = {}
        self._answers: dict[str, tuple[str, list[Any], list[Any]]] = {}
        self._missing: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        try:
            found = getattr(self._module, name)
        except AttributeError:
            self._missing.add(name)
            raise
        is_call = name.startswith("nvml") and callable(found) and not isinstance(found, type)
        return self._recorded(name, found) if is_call else found

    def document(self, origin: Mapping[str, Any]) -> dict[str, Any]:
        """Build the recording.

        Parameters
        ----------
        origin : mapping
            Where it comes from, in words.

        Returns
        -------
        dict
            Ready for JSON.
        """
        calls = [
            {"function": function, "args": arguments, "answers": answers}
            for function, arguments, answers in self._answers.values()
        ]
        return {"schema": SCHEMA, "origin": dict(origin), "missing": sorted(self._missing), "calls": calls}

    def _recorded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: Any) -> Any:
            plain = [self._plain(argument) for argument in arguments]
            try:
                answer = call(*arguments)
            except self._module.NVMLError as error:
                self._write(name, plain, {"error": error.value})
                raise
            except Exception as error:
                self._write(name, plain, {"raises": f"{type(error).__name__}: {error}"})
                raise
            if name.startswith("nvmlDeviceGet") and "HandleBy" in name:
                place = "/".join(str(word["handle"] if isinstance(word, dict) else word) for word in plain)
                self._handles[id(answer)] = (f"device {place}", answer)
            self._write(name, plain, self._plain(answer))
            return answer

        return recorded

    def _write(self, name: str, arguments: list[Any], answer: Any) -> None:
        key = json.dumps([name, arguments])
        _, _, answers = self._answers.setdefault(key, (name, arguments, []))
        answers.append(answer)

    def _plain(self, value: Any) -> Any:
        if id(value) in self._handles:
            return {"handle": self._handles[id(value)][0]}
        if isinstance(value, _SCALARS):
            return value
        if isinstance(value, bytes):
            return {"bytes": value.decode("latin-1")}
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        names = [field[0] for field in getattr(value, "_fields_", ())] or list(vars(value))
        fields = {name: self._plain(getattr(value, name)) for name in names}
        if fields.get("pid") == os.getpid():
            fields["pid"] = "self"
        return {"struct": fields}

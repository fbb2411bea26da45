"""What can be read of the GPUs here: devices, who holds them, and why GPU columns stay empty.

Exit code 0 if GPUs can be read (also if there are none), 1 if not.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fastci_ml.records.gpu import DeviceReading, GpuDevice, GpuSample
    from fastci_ml.settings import Settings
    from fastci_ml.sources.gpu.reader import GpuReader

_GIB = 2**30
# Enough that a recording shows how answers change.
_N_RECORDED = 5
_PAUSE_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="also write what NVML answers, call by call, for a report (it holds UUIDs and process ids)",
    )
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="S", help="how long NVML may take (default: 30 s)"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Print what one reading gives."""
    from fastci_ml.cli import output
    from fastci_ml.errors import UsageError
    from fastci_ml.records.gpu import GpuProblem, GpuSample
    from fastci_ml.sources.gpu.nvml import load_nvml
    from fastci_ml.sources.gpu.reader import GpuReader
    from fastci_ml.sources.gpu.recording import RecordingNvml

    del settings  # a machine has the same GPUs for every repository
    bindings, problem = load_nvml()
    recording = RecordingNvml(bindings) if args.record and bindings is not None else None
    reader = GpuReader(nvml=recording or bindings)
    found = _within(args.timeout, lambda: _read(reader, _N_RECORDED if recording else 1))
    if found is None:
        sample, devices = GpuSample(at_s=0.0), None
        reason = f"NVML did not answer within {args.timeout:g} s"
        problem = GpuProblem(slug="hung", reason=reason, hint="sudo dmesg | grep -i -e xid -e nvrm")
    else:
        sample, devices = found
        problem = reader.problem
    if recording is not None:
        import json

        document = recording.document({"kind": "recorded", "driver": reader.driver})
        try:
            args.record.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{args.record}: cannot be written: {error}") from error
    if args.json:
        output.answer_json(
            {
                "schema": "fastci.gpu/1",
                "driver": reader.driver,
                "problem": problem._asdict() if problem else None,
                "devices": None if devices is None else _for_machine(devices, sample, reader),
            }
        )
    else:
        for line in _for_person(devices, sample, reader):
            output.answer(line)
        if problem:
            output.answer(str(problem))
            output.answer(f"  hint: {problem.hint}")
    return 0 if sample.readings is not None else 1


def _read(reader: GpuReader, n_samples: int) -> tuple[GpuSample, tuple[GpuDevice, ...] | None]:
    import time

    for _ in range(n_samples - 1):
        reader.read()
        time.sleep(_PAUSE_S)
    return reader.read(), reader.devices()


def _within(timeout_s: float, call: Callable[[], Any]) -> Any:
    """Answer of `call`, or None if it takes too long: a driver in trouble never comes back."""
    from concurrent.futures import Future
    from threading import Thread

    answer: Future[Any] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001  it is raised below, in the thread that asked
            answer.set_exception(error)

    # No pool: its threads keep the process from ending.
    Thread(target=work, daemon=True).start()
    try:
        return answer.result(timeout_s)
    except TimeoutError:
        return None


def _for_person(devices: tuple[GpuDevice, ...] | None, sample: GpuSample, reader: GpuReader) -> list[str]:
    from fastci_ml.cli import output

    if devices is None or sample.readings is None:
        return []
    if not devices:
        return [f"driver {reader.driver or 'unknown'}: no devices; GPU columns are 0"]
    rows = [_row(device, reading, reader) for device, reading in zip(devices, sample.readings, strict=True)]
    header = ["device", "kind", "name", "usable", "share", "memory used", "utilization", "processes"]
    seen = {reading.by.value for reading in sample.readings}
    return [
        f"driver {reader.driver or 'unknown'}, {len(devices)} device{'s' if len(devices) > 1 else ''}",
        output.table(header, rows),
        f"attribution: by {' and '.join(sorted(seen))}{_why(seen)}",
    ]


def _why(seen: set[str]) -> str:
    if "unknown" in seen:
        return (
            "; which devices CUDA_VISIBLE_DEVICES means is not known: name them by UUID, or set"
            " CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    if "device" in seen:
        return ", until NVML lists a process of the tests with an id that is theirs here"
    return ""


def _row(device: GpuDevice, reading: DeviceReading, reader: GpuReader) -> list[str]:
    from fastci_ml.records.gpu import GpuKind

    visible = reader.visible()

    def or_why(value: str | None, what: str) -> str:
        refusal = reader.refusals.get((device.uuid, what))
        why = "MIG" if what == "utilization" and device.kind is GpuKind.MIG else "no figure"
        return value if value is not None else f"unknown ({refusal.text if refusal else why})"

    used, total, ratio = reading.used_bytes, device.total_bytes, reading.utilization_ratio
    size = "?" if total is None else f"{total / _GIB:.1f}"
    return [
        device.uuid,
        device.kind.value,
        device.name,
        "unknown" if visible is None else ("yes" if device.uuid in visible else "no"),
        "unknown" if device.share is None else f"{device.share:.3g}",
        or_why(None if used is None else f"{used / _GIB:.2f} of {size} GiB", "memory"),
        or_why(None if ratio is None else f"{100 * ratio:.0f}%", "utilization"),
        or_why(None if reading.processes is None else str(len(reading.processes)), "processes"),
    ]


def _for_machine(
    devices: tuple[GpuDevice, ...], sample: GpuSample, reader: GpuReader
) -> list[Mapping[str, Any]]:
    visible = reader.visible()
    return [
        {
            **device._asdict(),
            "is_visible": None if visible is None else device.uuid in visible,
            "used_bytes": reading.used_bytes,
            "utilization_ratio": reading.utilization_ratio,
            "by": reading.by.value,
            "held_ratio": reading.held_ratio,
            "held_bytes": reading.held_bytes,
            "processes": None
            if reading.processes is None
            else [process._asdict() for process in reading.processes],
            "refusals": {
                what: refusal.text for (uuid, what), refusal in reader.refusals.items() if uuid == device.uuid
            },
        }
        for device, reading in zip(devices, sample.readings or (), strict=True)
    ]

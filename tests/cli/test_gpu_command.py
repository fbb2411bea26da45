"""`fastci-ml gpu`, run for real: without a driver, and with a library of ours below NVIDIA's bindings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from nvml_recording import ReplayedNvml, compile_nvml

from fastci_ml.cli import gpu
from fastci_ml.cli.app import main
from fastci_ml.sources.gpu import nvml as gpu_nvml


def run(tmp_path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "fastci_ml", "gpu", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "LD_LIBRARY_PATH": "/nowhere", **environ},
    )


@pytest.fixture
def replayed(monkeypatch, capsys):
    """Run the command on a recording; its exit code and output."""

    def play(recording, *arguments: str, pids=None):
        monkeypatch.setattr(gpu_nvml, "load_nvml", lambda: (ReplayedNvml(recording, pids), None))
        code = main(["gpu", *arguments])
        return code, capsys.readouterr().out

    return play


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has an NVIDIA driver")
def test_without_a_driver_it_says_so(tmp_path):
    # case 53
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "GPU readings are missing: libnvidia-ml.so.1 is not found: no NVIDIA driver here",
        "  hint: nvidia-smi; nothing to do on a machine without NVIDIA GPUs",
    ]
    answer = json.loads(run(tmp_path, "--json").stdout)
    assert (answer["schema"], answer["devices"]) == ("fastci.gpu/1", None)
    assert answer["problem"]["slug"] == "library-not-found"


def test_without_bindings_it_says_what_to_type(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pynvml'] = None\n")
    done = run(tmp_path, "--record", "nvml.json", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert "hint: pip install nvidia-ml-py" in done.stdout
    assert not (tmp_path / "nvml.json").exists()


def test_a_device_is_shown_and_recorded(tmp_path):
    library = str(compile_nvml(tmp_path))
    done = run(tmp_path, "--json", "--record", "nvml.json", LD_LIBRARY_PATH=library)
    assert (done.returncode, done.stderr) == (0, "")
    (device,) = json.loads(done.stdout)["devices"]
    assert (device["uuid"], device["is_visible"], device["by"]) == ("GPU-c0de", True, "process")
    assert (device["used_bytes"], device["utilization_ratio"]) == (300, 0.42)
    document = json.loads((tmp_path / "nvml.json").read_text())
    (rates,) = [c for c in document["calls"] if c["function"] == "nvmlDeviceGetUtilizationRates"]
    assert len(rates["answers"]) == 5
    assert document["origin"] == {"kind": "recorded", "driver": "550.54.15"}


def test_library_that_hangs_is_named(tmp_path):
    # case 53, another input
    library = str(compile_nvml(tmp_path))
    done = run(tmp_path, "--timeout", "0.5", LD_LIBRARY_PATH=library, NVML_HANG_S="50")
    assert done.returncode == 1
    assert "NVML did not answer within 0.5 s" in done.stdout


def test_file_that_cannot_be_written_is_a_mistake_in_typing(tmp_path):
    library = str(compile_nvml(tmp_path))
    done = run(tmp_path, "--record", "no/such/folder/f.json", LD_LIBRARY_PATH=library)
    assert done.returncode == 2
    assert "cannot be written" in done.stderr


def test_unknown_figures_say_why(replayed):
    code, shown = replayed("mig_container_no_permission")
    assert code == 0
    assert "unknown (MIG)" in shown
    assert "unknown (Insufficient Permissions)" in shown
    assert "0.143" in shown
    assert "attribution: by device, until NVML lists a process" in shown
    code, shown = replayed("wsl_510")
    assert code == 0
    assert shown.count("unknown (Unknown Error)") == 4


def test_unknown_figures_are_null(replayed):
    # case 51: never 0
    _, shown = replayed("mig_container_no_permission", "--json")
    (device,) = json.loads(shown)["devices"]
    assert (device["utilization_ratio"], device["processes"]) == (None, None)
    assert device["refusals"] == {"processes": "Insufficient Permissions"}


def test_no_devices_are_no_problem(replayed):
    code, shown = replayed("no_devices")
    assert (code, shown) == (0, "driver 550.54.15: no devices; GPU columns are 0\n")


def test_numbers_without_meaning_say_what_to_do(replayed, monkeypatch):
    from nvml_recording import read_recording

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    document = read_recording("a10_x4_idle")
    next(c for c in document["calls"] if c["function"] == "nvmlDeviceGetName")["answers"] = ["NVIDIA L4"]
    _, shown = replayed(document)
    assert "name them by UUID, or set CUDA_DEVICE_ORDER=PCI_BUS_ID" in shown


def test_failure_of_ours_is_not_taken_for_a_hang():
    with pytest.raises(ZeroDivisionError):
        gpu._within(5.0, lambda: 1 // 0)

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from fastci_ml.sources.environment import detect_lane

# The first lines of the two kinds of file, as the driver's documentation shows them.
VERSION = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)
INFORMATION = "Model: \t\t {model}\nIRQ:   \t\t 16\nGPU UUID: \t GPU-????????-????\nBus Type: \t PCIe\n"


@pytest.fixture(autouse=True)
def no_given_lane(monkeypatch):
    monkeypatch.delenv("FASTCI_LANE", raising=False)


def drive(folder: Path, *models: str, version: str = VERSION) -> Path:
    (folder / "gpus").mkdir(parents=True)
    (folder / "version").write_text(version)
    for i, model in enumerate(models):
        gpu = folder / "gpus" / f"0000:{i:02x}:00.0"
        gpu.mkdir()
        (gpu / "information").write_text(INFORMATION.format(model=model))
    return folder


def test_lane_has_full_versions(tmp_path):
    python, machine, torch, gpu = detect_lane(tmp_path).split("|")
    assert python == f"cpython-{platform.python_version()}"
    assert machine == f"{sys.platform}-{platform.machine()}"
    assert torch.startswith("torch-")
    assert gpu == "gpu-none"


def test_given_lane_wins(monkeypatch):
    monkeypatch.setenv("FASTCI_LANE", " image-42 ")
    assert detect_lane() == "image-42"


def test_blank_given_lane_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("FASTCI_LANE", " ")
    assert detect_lane(tmp_path).endswith("gpu-none")


def test_gpus_are_counted_by_model_with_the_driver(tmp_path):
    nvidia = drive(tmp_path / "nvidia", "NVIDIA L4", "NVIDIA H200", "NVIDIA H200")
    assert detect_lane(nvidia).endswith("|gpu-NVIDIA-H200x2+NVIDIA-L4x1-driver-535.104.05")


def test_driver_of_unknown_wording_is_named_unknown(tmp_path):
    nvidia = drive(tmp_path / "nvidia", "NVIDIA L4", version="?")
    assert detect_lane(nvidia).endswith("|gpu-NVIDIA-L4x1-driver-unknown")


def test_driver_without_gpus_is_no_gpu(tmp_path):
    assert detect_lane(drive(tmp_path / "nvidia")).endswith("gpu-none")


def test_hostile_model_name_stays_one_word(tmp_path):
    nvidia = drive(tmp_path / "nvidia", "a|b / c\u00e9")
    assert len(detect_lane(nvidia).split("|")) == 4
    assert " " not in detect_lane(nvidia)


def test_asking_for_the_lane_imports_neither_torch_nor_git():
    code = (
        "import sys, fastci_ml.sources.git.worktree\nfrom fastci_ml.sources import environment\n"
        "environment.detect_lane()\n"
        "print([name for name in ('torch', 'git', 'numpy') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_given_lane_of_other_bytes_is_text_that_can_be_stored(monkeypatch):
    monkeypatch.setenv("FASTCI_LANE", "a\udcff")
    assert detect_lane() == r"a\xff"

"""Recordings: what is written down plays back as what was read, also through NVIDIA's real bindings."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from nvml_recording import RECORDINGS, ReplayedNvml, compile_nvml

from fastci_ml.sources.gpu.reader import GpuReader
from fastci_ml.sources.gpu.recording import RecordingNvml


def read_all(nvml, n_samples: int = 4):
    reader = GpuReader(nvml=nvml, environ={})
    samples = [reader.read(float(t)) for t in range(n_samples)]
    return samples, reader.devices(), reader.problem, reader.driver


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.json")), ids=lambda path: path.stem)
def test_recording_of_a_replay_reads_the_same(path):
    recording = RecordingNvml(ReplayedNvml(path.stem))
    first = read_all(recording)
    document = json.loads(json.dumps(recording.document({"kind": "recorded"})))
    unused = ReplayedNvml(document)
    assert read_all(unused) == first
    assert unused.unanswered == []


_READ = """
import json
from fastci_ml.sources.gpu.reader import GpuReader
from fastci_ml.sources.gpu.nvml import load_nvml
from fastci_ml.sources.gpu.recording import RecordingNvml
nvml, problem = load_nvml()
assert problem is None
recording = RecordingNvml(nvml)
reader = GpuReader(nvml=recording, environ={})
sample = reader.read(0.0)
print(json.dumps({
    "readings": repr(sample.readings), "devices": repr(reader.devices()), "driver": reader.driver,
    "problem": repr(reader.problem), "document": recording.document({"kind": "recorded"}),
}))
"""


def read_library(tmp_path, **environ: str):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _READ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "LD_LIBRARY_PATH": str(compile_nvml(tmp_path)), **environ},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_real_bindings_are_read_and_recorded(tmp_path):
    """NVIDIA's bindings with a library of ours below them: real structures, real pointers."""
    found = read_library(tmp_path)
    for part in ("by=<Attribution.PROCESS", "held_ratio=1.0", "held_bytes=250", "used_bytes=300"):
        assert part in found["readings"]
    assert "utilization_ratio=0.42" in found["readings"]
    assert "uuid='GPU-c0de', gpu_index=0, name='NVIDIA Fake'" in found["devices"]
    assert "total_bytes=1000" in found["devices"]
    assert (found["driver"], found["problem"]) == ("550.54.15", "None")
    (sample, *_), (device,), problem, driver = read_all(ReplayedNvml(found["document"]), 1)
    assert (sample.readings[0].held_bytes, sample.readings[0].holders) == (250, {os.getpid()})
    assert (device.uuid, problem, driver) == ("GPU-c0de", None, "550.54.15")


@pytest.mark.parametrize(
    ("code", "slug"), [(18, "version-mismatch"), (9, "driver-not-loaded"), (77, "nvml-77")]
)
def test_real_bindings_with_a_broken_driver(tmp_path, code, slug):
    # case 53, through NVIDIA's real bindings
    found = read_library(tmp_path, NVML_INIT=str(code))
    assert f"slug='{slug}'" in found["problem"]
    assert found["readings"] == "None"

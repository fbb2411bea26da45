"""On a real GPU: what torch allocates the reader sees. Run with ``pytest -m gpu``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fastci_ml.records.gpu import Attribution
from fastci_ml.sources.gpu.reader import GpuReader
from fastci_ml.sources.gpu.sampler import GpuSampler

_BYTES = 512 * 2**20

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA driver here"),
]


@pytest.fixture
def cuda():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch sees no GPU")
    return torch


def test_reader_sees_what_torch_allocates(cuda):
    reader = GpuReader()
    before = reader.read()
    assert reader.problem is None
    tensor = cuda.empty(_BYTES, dtype=cuda.uint8, device="cuda:0").fill_(1)
    cuda.cuda.synchronize()
    after = reader.read()
    n_before, n_after = (
        sum(r.used_bytes or 0 for r in sample.readings if r.held_ratio) for sample in (before, after)
    )
    held = [reading for reading in after.readings if reading.held_ratio]
    assert held
    if any(reading.used_bytes is not None for reading in held):
        assert n_after - n_before >= 0.9 * _BYTES
    for reading in held:
        assert reading.by in (Attribution.PROCESS, Attribution.DEVICE)
        if reading.by is Attribution.PROCESS and reading.held_bytes is not None:
            assert reading.held_bytes >= _BYTES
    del tensor


def test_sampler_measures_the_window_in_which_torch_computes(cuda):
    sampler = GpuSampler(GpuReader(), interval_s=0.1)
    sampler.start()
    x = cuda.randn(4096, 4096, device="cuda:0")
    time.sleep(0.5)
    start_s = time.monotonic()
    while time.monotonic() - start_s < 3.0:
        for _ in range(20):
            x = (x @ x).clamp_(-1, 1)
        cuda.cuda.synchronize()
    end_s = time.monotonic()
    time.sleep(0.3)
    usage = sampler.usage(start_s, end_s)
    assert sampler.stop()
    assert usage.n_gpus >= 1
    assert 0 < usage.gpu_s <= (end_s - start_s) * len(GpuReader().devices()) + 1e-6
    # None where NVML does not tell (MIG, WSL), never 0 while a kernel runs all the time.
    assert usage.utilization_ratio is None or usage.utilization_ratio > 0.2

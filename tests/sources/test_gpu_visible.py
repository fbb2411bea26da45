from __future__ import annotations

import os
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.records.gpu import GpuDevice, GpuKind
from fastci_ml.sources.gpu.visible import find_visible

# Of XuehaiPan/nvitop pull request 8: one GPU as a whole, two in MIG mode.
GPU = [
    "GPU-74edc72b-204b-7996-59f6-bff24ec89c23",
    "GPU-88ed8bff-34a2-f90e-f85e-1c731ac03448",
    "GPU-bd34767d-60fe-99d2-77c3-abed90bfbc2f",
]
MIG = [
    "MIG-163816c9-1176-5817-9217-644f2bc0b174",
    "MIG-92112bb4-e588-5a08-bf41-47796a83a77c",
    "MIG-9b054ee3-a109-57d2-bc65-623327559ebd",
]
WHOLE = [GpuDevice(uuid=uuid, gpu_index=i, name="NVIDIA A100-SXM4-80GB") for i, uuid in enumerate(GPU)]


def instance(uuid: str, index: int, gpu_instance: int) -> GpuDevice:
    return GpuDevice(
        uuid=uuid,
        gpu_index=index,
        name="NVIDIA A100-SXM4-80GB MIG 2g.20gb",
        kind=GpuKind.MIG,
        share=2 / 7,
        parent_uuid=GPU[index],
        gpu_instance=gpu_instance,
        compute_instance=0,
    )


MIXED = [WHOLE[0], instance(MIG[0], 1, 3), instance(MIG[1], 1, 5), instance(MIG[2], 2, 3)]


def visible(devices, given: str | None, **more: str):
    environ = {**more} if given is None else {"CUDA_VISIBLE_DEVICES": given, **more}
    return find_visible(devices, environ)


@pytest.mark.parametrize(
    ("given", "places"),
    [
        (None, [0, 1, 2]),
        ("0,2", [0, 2]),
        ("2,1", [1, 2]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [0]),
        ("0,9,1", [0]),
        ("9", []),
        ("0,,1", [0]),
        ("0,x,1", [0]),
        (" 1 , 2", [1, 2]),
        ("1gpu,+2", [1, 2]),
        ("1,1", []),
        ("NoDevFiles", []),
        (GPU[1], [1]),
        (f"{GPU[2]},{GPU[0]}", [0, 2]),
        ("GPU-88,GPU-bd34767d", [1, 2]),
        ("GPU-", []),  # names all three
        ("GPU-77,GPU-88", []),
        ("GPU-88,GPU-77,GPU-bd", [1]),
        ("GPU-88,GPU-88ed", []),
        ("GPU-88,1", [1]),
        ("0,GPU-88", [0]),
        (MIG[0], []),
    ],
)
def test_whole_gpus(given, places):
    assert visible(WHOLE, given) == {GPU[place] for place in places}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, [MIG[0]]),  # one instance, and no whole GPU beside it
        ("0", [GPU[0]]),
        ("1", [MIG[0]]),
        ("2", [MIG[2]]),
        ("0,1", [MIG[0]]),
        (MIG[1], [MIG[1]]),
        ("MIG-92112bb4", [MIG[1]]),
        (f"{MIG[1]},{MIG[2]}", [MIG[1], MIG[2]]),
        (f"MIG-{GPU[1]}/5/0", [MIG[1]]),  # as before R470
        (f"MIG-{GPU[1]}/4/0", []),
        (GPU[1], [MIG[0]]),
        (GPU[0], [GPU[0]]),
        ("MIG-9", []),  # names two
        (f"{MIG[0]},{MIG[0]}", []),
    ],
)
def test_mig_instances(given, names):
    # case 51: which instance a test holds
    assert visible(MIXED, given) == set(names)


def test_numbers_mean_nothing_where_cuda_counts_otherwise():
    """CUDA counts the fastest first, NVML by bus: with two kinds of GPUs nobody knows which is meant."""
    devices = [
        GpuDevice(uuid=GPU[0], gpu_index=0, name="Tesla T4"),
        GpuDevice(uuid=GPU[1], gpu_index=1, name="A10"),
    ]
    assert visible(devices, "0") is None
    assert visible(devices, "0", CUDA_DEVICE_ORDER="PCI_BUS_ID") == {GPU[0]}
    assert visible(devices, "1,0") == set(GPU[:2])
    assert visible(devices, "") == set()
    assert visible(devices, GPU[1]) == {GPU[1]}


def test_numbers_mean_nothing_beside_a_gpu_that_cannot_be_used():
    environ = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert find_visible([WHOLE[0], WHOLE[2]], environ, is_complete=False) is None
    assert find_visible([WHOLE[0], WHOLE[2]], {}, is_complete=False) == {GPU[0], GPU[2]}


def test_sixteen_devices_and_none():
    many = [GpuDevice(uuid=f"GPU-{i:02x}", gpu_index=i, name="Tesla V100-SXM3-32GB") for i in range(16)]
    assert len(visible(many, None)) == 16
    assert visible(many, "15,10") == {"GPU-0f", "GPU-0a"}
    assert visible([], None) == visible([], "0") == set()


@pytest.mark.parametrize("asked", ["all", "none", "void", "0", ""])
def test_what_the_container_was_asked_for_is_no_rule_for_processes(asked):
    assert visible(WHOLE, "1", NVIDIA_VISIBLE_DEVICES=asked) == {GPU[1]}


WORDS = st.sampled_from(
    ["0", "1", "2", "3", "-1", "", " 1", "2x", "x", "GPU-88", "GPU-8", "GPU-b", "GPU-7", GPU[0]]
)


@given(st.lists(WORDS, max_size=4).map(",".join))
def test_agrees_with_torch(given):
    """torch counts devices without CUDA by rules of its own, made to be those of CUDA."""
    cuda = pytest.importorskip("torch.cuda")
    with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": given}):
        listed = cuda._parse_visible_devices()
    if listed and isinstance(listed[0], str):
        listed = cuda._transform_uuid_to_ordinals(listed, GPU)
    places = []
    for place in listed:
        if place >= len(GPU):
            break
        places.append(place)
    assert visible(WHOLE, given) == {GPU[place] for place in places}

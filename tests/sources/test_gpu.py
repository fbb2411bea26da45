"""The reader against recorded answers of NVML: cases 51 (MIG), 52 (containers) and 53 (no or broken NVML)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from nvml_recording import RECORDINGS, ReplayedNvml, read_recording

from fastci_ml.records.gpu import Attribution, GpuKind
from fastci_ml.sources.gpu.lineage import Lineage
from fastci_ml.sources.gpu.reader import GpuReader
from fastci_ml.sources.gpu.usage import measure_usage

PROCESS, DEVICE, UNKNOWN = Attribution.PROCESS, Attribution.DEVICE, Attribution.UNKNOWN
MIB = 2**20


def replay(recording, pids=None, environ=None, **more) -> GpuReader:
    return GpuReader(nvml=ReplayedNvml(recording, pids), environ=environ or {}, **more)


@pytest.fixture
def child():
    """A real child process that does nothing."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.stdin.close()


@pytest.fixture
def stranger():
    """A real process that does not descend from this one: its parent has ended, init adopted it."""
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60'], stdout=-3, stderr=-3); print(p.pid)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    yield pid
    os.kill(pid, 9)


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.json")), ids=lambda path: path.stem)
def test_every_recording_is_read_and_says_where_it_comes_from(path):
    nvml = ReplayedNvml(path.stem)
    reader = GpuReader(nvml=nvml, environ={})
    samples = [reader.read(float(i)) for i in range(4)]
    assert nvml.unanswered == []
    origin = read_recording(path.stem)["origin"]
    assert origin["kind"] in ("transcribed", "constructed", "recorded")
    assert origin["kind"] == "recorded" or (origin["sources"] and origin["verbatim"])
    # What all have in common: the reader knows why nothing is known, and no unknown figure is a number.
    assert (samples[0].readings is None) == path.stem.startswith("init_")
    assert (reader.problem is not None) == path.stem.startswith(("init_", "lost_", "unknown_"))
    for reading in [one for sample in samples for one in sample.readings or ()]:
        assert (reading.by is UNKNOWN) == (reading.held_ratio is None)
        assert reading.utilization_ratio is None or 0 <= reading.utilization_ratio <= 1


# ------------------------------------------------------------------------------------------- case 51: MIG


def test_utilization_of_mig_is_unknown_and_held_time_counts_by_slices():
    # case 51: utilization on MIG is Not Supported
    reader = replay("mig_a100_three_instances")
    samples = [reader.read(float(t)) for t in range(8)]
    devices = reader.devices()
    assert [d.kind for d in devices] == [GpuKind.MIG] * 3
    assert [d.share for d in devices] == [pytest.approx(2 / 7)] * 3
    assert [d.total_bytes for d in devices] == [19968 * MIB] * 3
    assert [(d.gpu_instance, d.compute_instance) for d in devices] == [(3, 0), (5, 0), (6, 0)]
    assert {d.parent_uuid for d in devices} == {"GPU-88ed8bff-34a2-f90e-f85e-1c731ac03448"}
    assert [r.utilization_ratio for sample in samples for r in sample.readings] == [None] * 24
    usage = measure_usage(samples, 0.0, 7.0)
    assert (usage.n_gpus, usage.gpu_s) == (1, pytest.approx(2.0))
    assert (usage.utilization_ratio, usage.by) == (None, DEVICE)
    assert usage.peak_bytes == 14366 * MIB


def test_instance_without_rights_on_its_gpu_is_read():
    # case 51, another input: in a container the GPU itself gives no permission; the driver even answers 0
    reader = replay("mig_container_no_permission")
    (reading,) = reader.read(0.0).readings
    (device,) = reader.devices()
    assert device.share == pytest.approx(1 / 7)  # by its name: attributes are not permitted either
    assert (reading.utilization_ratio, reading.processes) == (None, None)
    assert (reading.by, reading.held_ratio, reading.held_bytes) == (DEVICE, 1.0, 1012 * MIB)
    assert reader.problem is None


def test_mig_instance_is_held_by_process(child):
    # case 51, another input: the process is listed on its instance
    reader = replay("mig_a100_three_instances", {16674: child})
    readings = reader.read(0.0).readings
    assert [(r.by, r.held_ratio, r.held_bytes) for r in readings] == [
        (PROCESS, 1.0, 14336 * MIB),
        (PROCESS, 0.0, 0),
        (PROCESS, 0.0, 0),
    ]


def test_chosen_mig_instance_is_the_held_one():
    environ = {"CUDA_VISIBLE_DEVICES": "MIG-447265cb"}
    readings = replay("mig_a100_three_instances", environ=environ).read(0.0).readings
    assert [r.held_ratio for r in readings] == [0.0, 0.0, 1.0]
    assert readings[2].held_bytes == 13 * MIB


@pytest.mark.parametrize(
    ("name", "attributes", "share"),
    [
        ("X MIG 1c.3g.20gb", {"error": 3}, 1 / 7),  # one of three compute slices of its instance
        ("X MIG 7g.80gb", {"error": 3}, 1.0),
        ("X MIG 1g.10gb+me", {"error": 3}, 1 / 7),  # twice the memory of a slice
        ("X", {"error": 3}, None),
        ("X MIG 9g.80gb", {"error": 3}, None),
        ("X", {"struct": {"gpuInstanceSliceCount": 3, "computeInstanceSliceCount": 2}}, 2 / 7),
        ("X MIG 4g.20gb", {"struct": {"gpuInstanceSliceCount": 4, "computeInstanceSliceCount": 0}}, 4 / 7),
    ],
)
def test_share_of_an_instance(name, attributes, share):
    document = read_recording("mig_container_no_permission")
    for call in document["calls"]:
        if call["args"] == [{"handle": "device device 0/0"}]:
            if call["function"] == "nvmlDeviceGetName":
                call["answers"] = [name]
            if call["function"] == "nvmlDeviceGetAttributes":
                call["answers"] = [attributes]
    (device,) = replay(document).devices()
    assert device.share == (None if share is None else pytest.approx(share))


# ------------------------------------------------------------------------------------ case 52: container pids


def test_pid_of_another_namespace_is_attributed_by_device():
    # case 52: the pid from NVML is not in /proc
    (reading,) = replay("container_host_pids").read(0.0).readings
    assert (reading.by, reading.held_ratio, reading.held_bytes) == (DEVICE, 1.0, 1015 * MIB)
    assert reading.holders == frozenset()


def test_pid_of_another_namespace_that_equals_ours_by_chance_is_not_ours(child):
    # case 52, another input: two processes are listed, one id happens to be that of our child
    document = read_recording("container_host_pids")
    (listed,) = [c for c in document["calls"] if c["function"].endswith("Processes_v2")]
    listed["answers"][0].append({"struct": {"pid": 324, "usedGpuMemory": 7 * MIB}})
    (reading,) = replay(document, {324: child}).read(0.0).readings
    assert reading.by is DEVICE


def test_hidden_processes_are_not_nobody():
    # case 52, another input: the list is empty inside of the container while the test computes
    (reading,) = replay("container_hidden_processes").read(0.0).readings
    assert (reading.by, reading.held_ratio, reading.held_bytes) == (DEVICE, 1.0, 1270 * MIB)
    assert reading.utilization_ratio == 0.9


def test_own_pid_is_attributed_by_process_and_its_hidden_memory_is_unknown(child):
    # case 52, another input: newer drivers translate the id, and lose the memory (0 bytes)
    (reading,) = replay("container_own_pids", {324: child}).read(0.0).readings
    assert (reading.by, reading.held_ratio, reading.holders) == (PROCESS, 1.0, {child})
    assert reading.held_bytes is None
    assert reading.used_bytes == 420 * MIB


@pytest.mark.parametrize(
    ("recording", "n_listed"), [("scrambled_535", 31), ("scrambled_430", 3)], ids=["nvitop-75", "go-nvml-21"]
)
def test_scrambled_list_is_no_list(recording, n_listed):
    # case 52, another input: bindings and driver disagree on the layout of the list
    nvml = ReplayedNvml(recording)
    reader = GpuReader(nvml=nvml, environ={})
    (reading,) = reader.read(0.0).readings
    assert (reading.by, reading.processes, reading.holders) == (DEVICE, None, frozenset())
    ((_, what),) = reader.refusals
    assert what == "processes"
    assert "nvidia-ml-py does not fit the driver" in str(reader.refusals[reading.uuid, what])


def test_nobody_is_said_only_after_an_id_of_ours_was_seen(child):
    document = read_recording("container_own_pids")
    (listed,) = [c for c in document["calls"] if c["function"].endswith("Processes_v3")]
    listed["answers"] = [[], listed["answers"][0], []]
    reader = replay(document, {324: child})
    readings = [reader.read(float(t)).readings[0] for t in range(3)]
    assert [(r.by, r.held_ratio) for r in readings] == [(DEVICE, 1.0), (PROCESS, 1.0), (PROCESS, 0.0)]
    assert readings[2].held_bytes == 0


def test_gpu_is_shared_with_strangers_by_the_number_of_processes(child, stranger):
    document = read_recording("bindings_of_2019")
    (reading,) = replay(document, {9980: child, 10121: stranger}).read(0.0).readings
    assert (reading.by, reading.held_ratio, reading.holders) == (PROCESS, 0.5, {child})
    assert reading.held_bytes == 6498025472
    (theirs,) = replay(document, {9980: child, 10121: stranger}, root_pid=stranger).read(0.0).readings
    assert (theirs.held_ratio, theirs.held_bytes) == (0.5, 6521094144)


def test_only_strangers_are_not_us_once_ids_match(child, stranger):
    document = read_recording("bindings_of_2019")
    (listed,) = [c for c in document["calls"] if c["function"].endswith("RunningProcesses")]
    listed["answers"].append(listed["answers"][0][1:])
    reader = replay(document, {9980: child, 10121: stranger})
    readings = [reader.read(float(t)).readings[0] for t in range(2)]
    assert [(r.by, r.held_ratio) for r in readings] == [(PROCESS, 0.5), (PROCESS, 0.0)]


def test_service_that_computes_for_others_hides_who_computes(child, tmp_path):
    """Under CUDA's multi-process service NVML may list the server alone."""
    proc = tmp_path / "proc"
    for pid, parent, name in ((70, 1, "nvidia-cuda-mps-server"), (child, os.getpid(), "python")):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "stat").write_text(f"{pid} ({name[:15]}) S {parent} " + "0 " * 17 + "1 0\n")
        (proc / str(pid) / "comm").write_text(name[:15] + "\n")
    document = read_recording("bindings_of_2019")
    (listed,) = [c for c in document["calls"] if c["function"].endswith("RunningProcesses")]
    listed["answers"] = [listed["answers"][0][:1], listed["answers"][0][1:]]
    reader = replay(document, {9980: child, 10121: 70}, proc=proc)
    readings = [reader.read(float(t)).readings[0] for t in range(2)]
    assert [(r.by, r.held_ratio) for r in readings] == [(PROCESS, 1.0), (DEVICE, 1.0)]


def test_lineage_follows_grandchildren_and_survives_the_parents_end():
    script = (
        "import subprocess; p = subprocess.Popen(['sleep', '60'], stdout=-3, stderr=-3)\n"
        "print(p.pid, flush=True); input()"
    )
    lineage = Lineage(os.getpid())
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    grandchild = int(parent.stdout.readline())
    try:
        assert lineage.belongs(grandchild) is True
        assert Lineage(parent.pid).belongs(os.getpid()) is False
        parent.communicate("\n")
        assert lineage.belongs(grandchild) is True  # init has adopted it, and it is still ours
        assert lineage.belongs(1) is False
    finally:
        os.kill(grandchild, 9)
    assert lineage.belongs(parent.pid) is None


def test_name_of_a_process_may_hold_brackets(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a) S 9 (b) R 5 " + "0 " * 17 + "123 0\n")
    assert Lineage(5, tmp_path).belongs(7) is True
    assert Lineage(9, tmp_path).belongs(7) is False
    (tmp_path / "7" / "stat").write_text("7 (torn")
    assert Lineage(5, tmp_path).belongs(7) is None


# -------------------------------------------------------------------------- case 53: no NVML, or a broken one


@pytest.mark.parametrize(
    ("recording", "slug", "hint"),
    [
        ("init_version_mismatch", "version-mismatch", "/proc/driver/nvidia/version"),
        ("init_driver_not_loaded", "driver-not-loaded", "modprobe nvidia"),
        ("init_no_permission", "no-permission", "ls -l /dev/nvidia"),
        ("init_unknown_error", "unknown-error", "start it again"),
        ("init_blocked", "blocked", "ls -l /dev/nvidia"),
    ],
)
def test_broken_driver_is_told_once_and_asked_once(recording, slug, hint):
    # case 53: a driver mismatch in CI, and its kin
    nvml = ReplayedNvml(recording)
    reader = GpuReader(nvml=nvml, environ={})
    samples = [reader.read(float(t)) for t in range(10)]
    assert [sample.readings for sample in samples] == [None] * 10
    assert (reader.problem.slug, nvml.calls) == (slug, [("nvmlInit", [])])
    assert hint in reader.problem.hint
    assert str(reader.problem).startswith("GPU readings are missing: ")
    assert reader.devices() is reader.visible() is None
    assert measure_usage(samples, 0.0, 9.0).gpu_s is None


_READ = """
from fastci_ml.sources.gpu.reader import GpuReader
reader = GpuReader()
print(reader.read().readings, reader.problem.slug, "|", reader.problem.reason, "|", reader.problem.hint)
"""


def read_elsewhere(*options: str, code: str = _READ, **environ: str) -> str:
    """Read in a Python of its own, where NVIDIA's bindings are what `environ` makes of them."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "LD_LIBRARY_PATH": "/nowhere", **environ},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


has_driver = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has an NVIDIA driver")


@has_driver
def test_missing_library():
    # case 53, really run here: NVMLError_LibraryNotFound
    assert read_elsewhere("-W", "error").startswith("None library-not-found | libnvidia-ml.so.1 is not found")


@has_driver
@pytest.mark.parametrize("asked", ["void", "none"])
def test_container_without_gpus_is_named(asked):
    assert f"NVIDIA_VISIBLE_DEVICES={asked}" in read_elsewhere(NVIDIA_VISIBLE_DEVICES=asked)


def test_container_with_half_a_driver_is_named(tmp_path):
    from fastci_ml.sources.gpu.problems import explain

    (tmp_path / "nvidiactl").touch()
    problem = explain(12, devices=tmp_path)
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in problem.hint


def test_missing_bindings(tmp_path):
    # case 53, another input: nvidia-ml-py is not installed
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pynvml'] = None\n")
    found = read_elsewhere("-W", "error", PYTHONPATH=str(tmp_path))
    assert found == (
        "None no-bindings | the Python package nvidia-ml-py is not installed | pip install nvidia-ml-py"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("x = 1\n", "is not NVIDIA's"),
        ("print 'python 2'\n", "cannot be imported: SyntaxError"),
        ("raise RuntimeError('no GPU, no import')\n", "cannot be imported: RuntimeError: no GPU, no import"),
        (None, "is not NVIDIA's: a folder without code has no nvmlInit"),
    ],
)
def test_foreign_module_of_the_same_name(tmp_path, content, reason):
    # case 53, another input: something else is imported as pynvml
    if content is None:
        (tmp_path / "pynvml").mkdir()
        # A folder without code gives way to a package, unless there is none.
        code = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
        code += f"sys.path.append({str(Path(__file__).parents[2])!r})\n" + _READ
    else:
        (tmp_path / "pynvml.py").write_text(content)
        code = _READ
    found = read_elsewhere("-W", "error", code=code, PYTHONPATH=str(tmp_path))
    assert found.startswith("None wrong-bindings | the module pynvml ")
    assert reason in found


@has_driver
def test_deprecated_package_warns_in_vain(tmp_path):
    """The package `pynvml` wraps NVIDIA's and warns: an error where warnings are errors."""
    import pynvml

    old = tmp_path / "pynvml.py"
    old.write_text(
        f"import warnings\nwarnings.warn('deprecated', FutureWarning)\n{Path(pynvml.__file__).read_text()}"
    )
    assert "library-not-found" in read_elsewhere("-W", "error", PYTHONPATH=str(tmp_path))


def test_old_bindings_are_read(child):
    reader = replay("bindings_of_2019", {9980: child})
    (reading,) = reader.read(0.0).readings
    (device,) = reader.devices()
    assert (reader.driver, device.name) == ("440.33.01", "Tesla V100-SXM2-16GB")
    assert (reading.utilization_ratio, reading.used_bytes) == (0.99, 12427 * MIB)


def test_old_driver_is_asked_for_what_it_knows():
    nvml = ReplayedNvml("driver_450_lists_no_processes")
    reader = GpuReader(nvml=nvml, environ={})
    for t in range(3):
        (reading,) = reader.read(float(t)).readings
    assert (reading.by, reading.processes, reading.utilization_ratio) == (DEVICE, None, 1.0)
    asked = [name for name, _ in nvml.calls if name.startswith("nvmlDeviceGetComputeRunningProcesses")]
    assert len(asked) == 3  # each version once, not once a sample
    assert len([name for name, args in nvml.calls if name.endswith("MemoryInfo") and len(args) == 2]) == 1


@pytest.mark.parametrize("recording", ["wsl_510", "jetson_orin", "vgpu_guest"])
def test_what_is_not_supported_is_unknown(recording):
    reader = replay(recording)
    samples = [reader.read(float(t)) for t in range(3)]
    for reading in samples[-1].readings:
        assert (reading.utilization_ratio, reading.processes, reading.by) == (None, None, DEVICE)
    usage = measure_usage(samples, 0.0, 2.0)
    assert (usage.gpu_s, usage.utilization_ratio) == (2.0 * len(reader.devices()), None)
    assert reader.problem is None


def test_kinds_and_names_of_devices():
    assert replay("vgpu_guest").devices()[0].kind is GpuKind.VGPU
    assert replay("jetson_orin").devices()[0].name == "Orin (nvgpu)"
    assert replay("a10_x4_idle").devices()[0].kind is GpuKind.GPU


def test_memory_shared_with_the_machine_is_unknown_and_an_idle_gpu_is_idle(child):
    (reading,) = replay("gb10_unified_memory", {4242: child}).read(0.0).readings
    assert (reading.used_bytes, reading.held_bytes, reading.utilization_ratio) == (None, 43 * MIB, 0.0)


@pytest.mark.parametrize(
    ("memory", "used"),
    [
        ({"total": 100, "reserved": 10, "free": 70, "used": 20}, 20),  # as drivers count
        ({"total": 100, "reserved": 10, "free": 70, "used": 30}, 20),  # as the manual up to R525 says
        ({"total": 100, "reserved": 0, "free": 100, "used": 0}, 0),
        ({"total": 0, "reserved": 0, "free": 0, "used": 0}, None),
        ({"total": 100, "reserved": 0, "free": 0, "used": 2**64 - 1}, None),
    ],
)
def test_memory_in_use_is_without_what_the_driver_keeps(memory, used):
    document = read_recording("vgpu_guest")
    (call,) = [c for c in document["calls"] if c["function"].endswith("MemoryInfo")]
    call["answers"] = [{"struct": memory}]
    (reading,) = replay(document).read(0.0).readings
    assert reading.used_bytes == used


@pytest.mark.parametrize("used", [2**64 - 1, 2**45, None, 0, -1])
def test_hidden_memory_of_a_process_is_unknown(used, child):
    document = read_recording("bindings_of_2019")
    (listed,) = [c for c in document["calls"] if c["function"].endswith("RunningProcesses")]
    listed["answers"] = [[{"struct": {"pid": 9980, "usedGpuMemory": used}}]]
    (reading,) = replay(document, {9980: child}).read(0.0).readings
    assert (reading.held_ratio, reading.held_bytes) == (1.0, None)


@pytest.mark.parametrize("percent", [101, 4294967295, -1, None])
def test_impossible_utilization_is_unknown(percent):
    document = read_recording("bindings_of_2019")
    (call,) = [c for c in document["calls"] if c["function"].endswith("UtilizationRates")]
    call["answers"] = [{"struct": {"gpu": percent, "memory": 0}}]
    assert replay(document).read(0.0).readings[0].utilization_ratio is None


@pytest.mark.parametrize("recording", ["lost_at_start", "unknown_at_start"])
def test_gpu_that_is_lost_from_the_start_is_left_out(recording):
    # case 53, another input
    nvml = ReplayedNvml(recording)
    reader = GpuReader(nvml=nvml, environ={})
    readings = [reader.read(float(t)).readings for t in range(2)]
    assert [d.gpu_index for d in reader.devices()] == [0, 2]
    assert [len(one) for one in readings] == [2, 2]
    assert (reader.problem.slug, "GPU 1" in reader.problem.reason) == ("gpu-unusable", True)
    assert nvml.calls.count(("nvmlDeviceGetHandleByIndex", [1])) == 1
    # CUDA counts the usable ones: which is its second one is not ours to say.
    assert replay(recording, environ={"CUDA_VISIBLE_DEVICES": "1"}).visible() is None


def test_gpu_that_is_lost_during_sampling_is_unknown_and_never_asked_again():
    # case 53, another input: asking a lost GPU has crashed processes
    nvml = ReplayedNvml("lost_while_sampling")
    reader = GpuReader(nvml=nvml, environ={})
    samples = [reader.read(float(t)) for t in range(6)]
    assert [[r.by for r in s.readings] for s in samples] == [[DEVICE, DEVICE]] * 2 + [[DEVICE, UNKNOWN]] * 4
    asked = [name for name, args in nvml.calls if args[:1] == [{"handle": "device 1"}]]
    assert asked.count("nvmlDeviceGetUtilizationRates") == 3
    assert asked.count("nvmlDeviceGetComputeRunningProcesses_v3") == 3
    assert reader.problem.slug == "gpu-is-lost"
    assert reader.problem.reason.endswith("GPU-0aa1b8f3-0000-0000-0001-000000000040")
    assert measure_usage(samples, 0.0, 1.4).gpu_s == pytest.approx(2.8)
    assert measure_usage(samples, 0.0, 5.0).gpu_s is None


def test_nvml_shut_down_by_other_code_is_opened_again():
    document = read_recording("bindings_of_2019")
    (call,) = [c for c in document["calls"] if c["function"].endswith("UtilizationRates")]
    call["answers"] = [{"error": 1}, *call["answers"]]
    nvml = ReplayedNvml(document)
    reader = GpuReader(nvml=nvml, environ={})
    assert reader.read(0.0).readings[0].utilization_ratio == 0.99
    assert [name for name, _ in nvml.calls].count("nvmlInit") == 2
    assert reader.problem is None


def test_nvml_that_stays_shut_down_is_given_up():
    document = read_recording("bindings_of_2019")
    (call,) = [c for c in document["calls"] if c["function"].endswith("UtilizationRates")]
    call["answers"] = [{"error": 1}]
    nvml = ReplayedNvml(document)
    reader = GpuReader(nvml=nvml, environ={})
    assert [reader.read(float(t)).readings for t in range(3)] == [None] * 3
    assert reader.problem.slug == "uninitialized"
    assert [name for name, _ in nvml.calls].count("nvmlInit") == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_opens_nvml_anew():
    nvml = ReplayedNvml("bindings_of_2019")
    reader = GpuReader(nvml=nvml, environ={})
    reader.read(0.0)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            known = reader.read(1.0).readings is not None
            n_opened = [name for name, _ in nvml.calls].count("nvmlInit")
            code = 0 if known and n_opened == 2 else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    reader.read(2.0)
    assert [name for name, _ in nvml.calls].count("nvmlInit") == 1


def test_name_that_is_no_text_is_no_reason_to_stop():
    document = read_recording("a10_x4_idle")
    next(c for c in document["calls"] if c["function"] == "nvmlDeviceGetName")["answers"] = [
        {"raises": "name"}
    ]
    reader = replay(document)
    assert len(reader.read(0.0).readings) == 4
    assert reader.devices()[0].name == ""


def test_no_devices_are_known_to_be_none():
    reader = replay("no_devices")
    sample = reader.read(0.0)
    assert (sample.readings, reader.devices(), reader.problem) == ((), (), None)
    assert measure_usage([sample], 0.0, 0.5).gpu_s == 0.0


def test_sixteen_devices():
    document = read_recording("bindings_of_2019")
    template = [c for c in document["calls"] if c["args"] in ([0], [{"handle": "device 0"}])]
    (count,) = [c for c in document["calls"] if c["function"] == "nvmlDeviceGetCount"]
    count["answers"] = [16]
    for i in range(1, 16):
        for call in template:
            copied = {**call, "args": [i] if call["args"] == [0] else [{"handle": f"device {i}"}]}
            if call["function"].endswith("HandleByIndex"):
                copied["answers"] = [{"handle": f"device {i}"}]
            if call["function"].endswith("UUID"):
                copied["answers"] = [f"GPU-{i:02d}"]
            document["calls"].append(copied)
    reader = replay(document, environ={"CUDA_VISIBLE_DEVICES": "3,12"})
    samples = [reader.read(float(t)) for t in range(5)]
    assert len(reader.devices()) == 16
    usage = measure_usage(samples, 0.0, 4.0)
    assert (usage.n_gpus, usage.gpu_s, usage.peak_bytes) == (2, 8.0, 2 * 12427 * MIB)


def test_devices_that_numbers_do_not_name_are_unknown():
    document = read_recording("a10_x4_idle")
    next(c for c in document["calls"] if c["function"] == "nvmlDeviceGetName")["answers"] = ["NVIDIA L4"]
    reader = replay(document, environ={"CUDA_VISIBLE_DEVICES": "0"})
    sample = reader.read(0.0)
    assert reader.visible() is None
    assert {(r.by, r.held_ratio, r.held_bytes) for r in sample.readings} == {(UNKNOWN, None, None)}
    assert sample.readings[0].utilization_ratio == 0.0  # of the device, which is known


# ----------------------------------------------------------------------------------------------- cost


def test_module_is_imported_without_the_bindings():
    code = "import sys, fastci_ml.sources.gpu.sampler; print('pynvml' in sys.modules)"
    assert read_elsewhere(code=code) == "False"

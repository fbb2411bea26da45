"""What a test took: CPU time, memory of its process, GPUs; by real runs, and by NVML as it was recorded."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from interpreters import VERSIONS, python_or_skip
from nvml_recording import ReplayedNvml, compile_nvml
from recorded_runs import RecordedRun, pure_packages
from recorded_runs import record as record_with

import fastci_ml
from fastci_ml.cli import app
from fastci_ml.execution import resources
from fastci_ml.execution.cuda_peaks import CudaPeak, peak_between, read_peaks
from fastci_ml.execution.resources import ResourceMeter, Resources
from fastci_ml.records.evidence import RunFacts
from fastci_ml.records.evidence_kinds import Gap
from fastci_ml.records.gpu import Attribution, GpuSample, GpuUsage
from fastci_ml.sources.gpu.driver import find_no_driver
from fastci_ml.sources.gpu.reader import GpuReader

MIB = 2**20
PATIENCE_S = 20.0
STARTUP_MIB = 10  # less than any process of pytest holds
# pytest-rerunfailures starts a thread of its own.
STRICT = ("-W", "error", "-p", "no:rerunfailures")
MISSING = "fastci: GPU readings are missing: "


def has_library() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


no_driver = pytest.mark.skipif(has_library(), reason="there is a driver here")
on_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")

SUITE = """
import os, subprocess, sys, time

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def n_threads():
    with open("/proc/self/status") as status:
        return int(status.read().split("Threads:")[1].split()[0])

def check_nothing():
    pass

def check_own():
    burn(0.3)

def check_child():
    subprocess.run([sys.executable, "-I", "-c",
        "import time\\nwhile time.process_time() < 0.4: pass"], check=True)

def check_waits():
    time.sleep(0.3)

def check_allocates():
    bytearray(b"x") * (200 * 2**20)

def check_after():
    pass
"""
# Nothing of a GPU, and so no thread: from Python 3.12 on a fork would warn, and fail here.
ALONE = (
    SUITE
    + """
def check_fork():
    assert n_threads() == 1
    assert "pynvml" not in sys.modules and "ctypes" not in sys.modules
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
"""
)


def make_root(root: Path, text: str, **files: str) -> Path:
    root.mkdir(parents=True)
    for name, content in {"checks_it": text, **files}.items():
        (root / f"{name}.py").write_text(content)
    (root / "fastci.toml").write_text("")
    author = ["-c", "user.email=a@example.com", "-c", "user.name=a"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*author, "commit", "-q", "-m", "suite"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    return root


def record(root: Path, *options: str, python: str | None = None, path=(), **environ: str) -> RecordedRun:
    # The package that is tested, wherever another one is installed.
    places = path or [Path(fastci_ml.__file__).parents[1]]
    return record_with(root, *options, python=python, path=places, **environ)


def facts_of(run: RecordedRun) -> dict[str, RunFacts]:
    return {name.partition("::")[2]: found.facts for name, found in run.records.items()}


@pytest.fixture(scope="module", params=VERSIONS)
def run(request, tmp_path_factory) -> RecordedRun:
    """The suite, recorded by one interpreter without a GPU, with warnings as errors."""
    python = python_or_skip(request.param)
    path = [pure_packages(tmp_path_factory.mktemp("pure") / "packages")] if python else []
    root = make_root(tmp_path_factory.mktemp("resources") / "repo", ALONE)
    # pytest of another interpreter is there without the metadata that its header needs.
    done = record(root, "-q" if python else "-v", *STRICT, python=python, path=path, LD_LIBRARY_PATH="")
    assert done.status == 0, done.output
    return done


# ------------------------------------------------------------------------------------------ CPU and memory


@no_driver
def test_cpu_is_that_of_the_test_and_of_children_that_it_waited_for(run):
    facts = facts_of(run)
    assert 0.3 <= facts["check_own"].cpu_s < 0.3 + 0.2
    # That of children is rounded to 0.01 s.
    assert 0.39 <= facts["check_child"].cpu_s < 0.4 + 0.3
    assert 0 < facts["check_nothing"].cpu_s < 0.1
    assert facts["check_waits"].call_s >= 0.3
    assert 0 < facts["check_waits"].cpu_s < 0.1


@no_driver
@on_linux
def test_memory_is_the_most_of_the_process_where_the_kernel_knows_it(run):
    facts = facts_of(run)
    before, most = facts["check_nothing"].peak_rss_bytes, facts["check_allocates"].peak_rss_bytes
    assert most is not None
    assert 200 * MIB + STARTUP_MIB * MIB < most < 600 * MIB
    # Nothing was given back by then, so it held the most that it ever had.
    assert before is not None
    assert STARTUP_MIB * MIB < before < most - 190 * MIB
    # The most of all was before it, and nobody knows its own.
    assert facts["check_after"].peak_rss_bytes is None


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((100, 90), (130, 90), 130),
        ((100, 100), (100, 100), 100),
        ((1000, 500), (1000, 985), 1000),
        ((1000, 500), (1000, 970), None),
        ((1000, 990), (1000, 500), 1000),
        ((1000, 1000), (400, 400), None),  # the test reset it
        (None, (100, 100), None),
        ((100, 100), None, None),
    ],
)
def test_highest_memory_of_old_is_not_taken_for_that_of_the_test(before, after, expected):
    readings = [resources._Reading(at_s=0.0, cpu_s=0.0, resident=found, cuda=()) for found in (before, after)]
    assert resources._peak_rss(*readings) == expected


@on_linux
def test_memory_of_a_pause_is_not_that_of_the_next_test():
    meter = ResourceMeter()
    meter.begin()
    meter.end()
    block = bytearray(b"x") * ((meter._latest.resident[0] - meter._latest.resident[1]) + 300 * MIB)
    del block
    time.sleep(2 * resources._SAME_S)
    meter.begin()
    meter.end()
    assert meter.took.peak_rss_bytes is None


@on_linux
def test_counters_that_a_test_may_read_are_left_alone():
    import resource

    meter = ResourceMeter()
    block = bytearray(b"x") * (64 * MIB)
    most_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    del block
    meter.begin()
    meter.end()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >= most_before


def test_where_the_kernel_tells_nothing_memory_is_unknown(monkeypatch):
    monkeypatch.setattr(resources, "_STATUS", "/proc/self/nothing-of-this-name")
    meter = ResourceMeter()
    meter.begin()
    meter.end()
    assert meter.took.peak_rss_bytes is None
    assert meter.took.cpu_s > 0


def test_tests_that_replace_functions_are_measured_too(tmp_path):
    root = make_root(
        tmp_path / "repo",
        "import os, time\n"
        "def broken(*_): raise ZeroDivisionError\n"
        "def check_replaces():\n"
        "    os.times = os.read = time.process_time = time.monotonic = broken\n"
        "def check_after():\n"
        "    sum(range(10**6))\n",
    )
    run = record(root, "-p", "no:timeout")
    assert run.status == 0, run.output
    assert [facts.cpu_s > 0 for facts in facts_of(run).values()] == [True, True]
    assert all(not record.gaps for record in run.records.values())


def test_failure_of_ours_is_a_gap_and_changes_no_outcome(tmp_path):
    root = make_root(
        tmp_path / "repo",
        "def check_one(): pass\n",
        conftest="def pytest_collection_finish(session):\n"
        "    plugin = session.config.pluginmanager.get_plugin('fastci-record')\n"
        "    plugin._meter._times = lambda: 1 / 0\n",
    )
    run = record(root, "-W", "error")
    assert run.status == 0, run.output
    (found,) = run.records.values()
    assert found.gaps == ((Gap.RECORDER_FAILED, "ZeroDivisionError: division by zero"),)
    assert found.facts.outcome == "passed"
    assert found.facts.cpu_s is None


# --------------------------------------------------------------------------------------------- no GPU here


@no_driver
def test_without_a_driver_it_is_said_once_and_nothing_is_known(run):
    # case 53
    if "test session starts" in run.output:
        assert run.output.count("GPU readings are missing") == 1
        assert MISSING + "libnvidia-ml.so.1 is not found" in run.output
    for facts in facts_of(run).values():
        assert (facts.n_gpus, facts.gpu_s, facts.gpu_peak_bytes, facts.gpu_by) == (None, None, None, "")


@no_driver
def test_workers_let_the_controller_say_it_once(tmp_path):
    root = make_root(tmp_path / "repo", SUITE)
    run = record(root, "-n", "2")
    assert run.status == 0, run.output
    assert len(run.bundles) == 2
    assert run.output.count("GPU readings are missing") == 1
    assert facts_of(run)["check_own"].cpu_s >= 0.3


def test_listing_of_tests_looks_for_no_gpu(tmp_path):
    root = make_root(
        tmp_path / "repo",
        "def check_one(): pass\n",
        conftest="import sys\ndef pytest_collection_finish(): assert 'pynvml' not in sys.modules\n",
    )
    run = record(root, "--collect-only", LD_LIBRARY_PATH=str(compile_nvml(tmp_path)))
    assert run.status == 0, run.output


@no_driver
def test_driver_is_looked_for_without_its_bindings():
    assert find_no_driver().slug == "library-not-found"


# --------------------------------------------------------------- a GPU of one's own, by NVIDIA's own bindings

WATCHED = (
    SUITE
    + """
def check_thread():
    assert n_threads() == 2
"""
)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> str:
    return str(compile_nvml(tmp_path_factory.mktemp("nvml")))


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_gpu_that_the_process_holds_is_booked_on_each_test(tmp_path, library, options):
    root = make_root(tmp_path / "repo", SUITE if options else WATCHED)
    run = record(root, *options, *STRICT, LD_LIBRARY_PATH=library)
    assert run.status == 0, run.output
    assert "GPU readings" not in run.output
    facts = facts_of(run)
    for name in ("check_waits", "check_own", "check_child"):
        found = facts[name]
        assert (found.n_gpus, found.gpu_peak_bytes, found.gpu_by) == (1, 250, "process")
        assert found.setup_s + found.call_s + found.teardown_s <= found.gpu_s < found.call_s + 0.5
    # The thread is ours, and no reason to distrust anything.
    gaps = {gap for bundle in run.bundles for capture in bundle.captures.values() for gap, _ in capture.gaps}
    assert gaps == set()
    assert all(bundle.gaps == [] for bundle in run.bundles)


# How long the driver takes to refuse nobody says.
PATIENT = """
import time

def check_first():
    time.sleep(1.0)

def check_second():
    until = time.monotonic() + 10
    while n_threads() > N_OTHERS and time.monotonic() < until:
        time.sleep(0.01)
    assert n_threads() == N_OTHERS
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_broken_driver_is_said_once_and_the_thread_ends(tmp_path, library, options):
    # case 53
    n_others = 2 if options else 1  # execnet has a thread that receives
    text = SUITE.partition("def check_nothing")[0] + PATIENT.replace("N_OTHERS", str(n_others))
    root = make_root(tmp_path / "repo", text)
    run = record(root, *options, *STRICT, LD_LIBRARY_PATH=library, NVML_INIT="18")
    assert run.status == 0, run.output
    assert run.output.count("GPU readings are missing") == 1
    assert "the NVIDIA driver in the kernel is of another version than its library" in run.output
    for facts in facts_of(run).values():
        assert (facts.n_gpus, facts.gpu_s, facts.gpu_peak_bytes, facts.gpu_by) == (None, None, None, "")
        assert facts.cpu_s > 0


FORKS = """
def check_forks():
    assert n_threads() == 2
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            os._exit(n_threads())
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert n_threads() == 1

def check_next():
    time.sleep(0.1)
    assert n_threads() == 2

def check_forks_beside_another():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with pytest.warns(DeprecationWarning, match="multi-threaded"):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        assert n_threads() == 3
"""


@on_linux
@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "3.11"])
def test_fork_warns_of_no_thread_of_ours(tmp_path, library, version):
    python = python_or_skip(version)
    path = pure_packages(tmp_path / "packages")
    (path / "pynvml.py").symlink_to(pynvml.__file__)
    head = "import pytest\nfrom concurrent.futures import ThreadPoolExecutor\n"
    root = make_root(tmp_path / "repo", head + SUITE.partition("def check_nothing")[0] + FORKS)
    places = [path] if python else []
    run = record(root, "-q", *STRICT, python=python, path=places, LD_LIBRARY_PATH=library)
    assert run.status == 0, run.output
    facts = facts_of(run)
    assert (facts["check_next"].n_gpus, facts["check_next"].gpu_by) == (1, "process")


def test_driver_that_hangs_keeps_no_test_waiting(tmp_path, library):
    root = make_root(tmp_path / "repo", "def check_one(): pass\n")
    start_s = time.monotonic()
    run = record(root, LD_LIBRARY_PATH=library, NVML_HANG_S="60")
    assert run.status == 0, run.output
    assert time.monotonic() - start_s < 30
    assert facts_of(run)["check_one"].gpu_s is None


def test_bindings_that_are_not_installed_are_named(tmp_path, library):
    root = make_root(
        tmp_path / "repo",
        "def check_one(): pass\n",
        conftest="import sys\nsys.modules['pynvml'] = None\n",
    )
    run = record(root, LD_LIBRARY_PATH=library)
    assert run.status == 0, run.output
    assert MISSING + "the Python package nvidia-ml-py is not installed" in run.output
    assert facts_of(run)["check_one"].gpu_by == ""


def test_what_a_test_took_reaches_the_store_and_is_explained(tmp_path, library, monkeypatch, capsys):
    root = make_root(tmp_path / "repo", SUITE)
    run = record(root, LD_LIBRARY_PATH=library)
    monkeypatch.chdir(root)
    assert app.main(["merge"]) == 0
    capsys.readouterr()
    assert app.main(["explain", "--json", "--evidence", "checks_it.py::check_own"]) == 0
    (stored,) = json.loads(capsys.readouterr().out)["records"]
    recorded = facts_of(run)["check_own"]
    for name in Resources._fields:
        assert stored["facts"][name] == getattr(recorded, name)
        assert stored["facts"][name] is not None
    assert app.main(["explain", "--evidence", "checks_it.py::check_own"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  took ")]
    assert line.startswith("  took 0.3")
    assert line.endswith("GPU-seconds, 0 MiB of GPU memory (by process)")


# ------------------------------------------------------------------------------ NVML as it answered elsewhere


@pytest.fixture
def measured():
    """Measure a moment against a recording."""
    meters = []

    def measure(recording: str, pids: dict[int, int] | None = None) -> tuple[ResourceMeter, float]:
        meter = ResourceMeter()
        meters.append(meter)
        meter.start(GpuReader(nvml=ReplayedNvml(recording, pids), environ={}))
        until_s = time.monotonic() + PATIENCE_S
        while not meter._sampler.samples() and time.monotonic() < until_s:
            time.sleep(0.005)
        start_s = time.monotonic()
        meter.begin()
        time.sleep(0.05)
        meter.end()
        return meter, time.monotonic() - start_s

    yield measure
    for meter in meters:
        meter.finish()


def test_slices_of_a_gpu_count_as_parts(measured):
    # case 51
    meter, length_s = measured("mig_a100_three_instances")
    took = meter.took
    assert (took.n_gpus, took.gpu_by, took.gpu_peak_bytes) == (1, "device", 14366 * MIB)
    assert 0.05 * 2 / 7 <= took.gpu_s <= length_s * 2 / 7


def test_ids_of_another_namespace_leave_the_device(measured):
    # case 52
    meter, length_s = measured("container_host_pids")
    assert (meter.took.n_gpus, meter.took.gpu_by, meter.took.gpu_peak_bytes) == (1, "device", 1064304640)
    assert 0.05 <= meter.took.gpu_s <= length_s


def test_memory_that_a_container_hides_is_unknown_though_the_process_is_known(measured):
    # case 52
    meter, _ = measured("container_own_pids", {324: os.getpid()})
    took = meter.took
    assert (took.n_gpus, took.gpu_by, took.gpu_peak_bytes) == (1, "process", None)
    assert took.gpu_s > 0


def test_machine_without_devices_is_seen_to_have_none_and_needs_no_thread(measured):
    meter, _ = measured("no_devices")
    assert not meter.is_sampling
    assert meter.took[2:5] == (0, 0.0, 0)
    assert meter.later_problem is None


@pytest.mark.parametrize("name", ["init_version_mismatch", "init_driver_not_loaded", "init_no_permission"])
def test_driver_that_gave_up_needs_no_thread(measured, name):
    meter, _ = measured(name)
    assert not meter.is_sampling
    assert meter.took[2:] == (None, None, None, "")
    assert meter.later_problem is not None


def test_figures_of_one_test_are_not_those_of_the_next(measured):
    meter, _ = measured("container_host_pids")
    assert meter.took.gpu_s is not None
    meter.begin()
    assert meter.took == Resources()
    meter.end()
    assert meter.took.gpu_s < 0.05


def test_samples_of_earlier_tests_are_not_kept(measured):
    meter, start_s = measured("container_host_pids")[0], time.monotonic()
    for age_s in range(100, 50, -1):
        meter._sampler._keep(GpuSample(at_s=start_s - age_s))
    meter._sampler._samples.sort(key=lambda sample: sample.at_s)
    meter.begin()
    meter.end()
    assert len(meter._sampler.samples()) < 10


# ------------------------------------------------------------------------------------------------------ torch


class FakeCuda(SimpleNamespace):
    """What is asked of `torch.cuda`."""

    def __init__(self, *peaks: object, is_ready: object = True) -> None:
        super().__init__(peaks=peaks, is_initialized=lambda: is_ready, device_count=lambda: len(self.peaks))

    def memory_stats_as_nested_dict(self, number: int):
        return {"allocated_bytes": {"all": {"peak": self.peaks[number]}}}


def test_peaks_of_torch_are_read_where_cuda_is_initialized(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch.cuda", raising=False)
    assert read_peaks() == ()
    for cuda, expected in [
        (FakeCuda(512, 0), (512, 0)),
        (FakeCuda(512, is_ready=False), ()),
        (FakeCuda(512, is_ready="a mock"), ()),
        (FakeCuda("a mock"), None),
        (SimpleNamespace(is_initialized=lambda: True), None),
    ]:
        monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
        assert read_peaks() == expected


def test_real_torch_is_asked_for_what_it_has():
    torch = pytest.importorskip("torch")
    was_ready = torch.cuda.is_initialized()
    assert (read_peaks() == ()) == (not was_ready)
    assert torch.cuda.is_initialized() == was_ready
    assert callable(torch.cuda.memory_stats_as_nested_dict)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((), (), None),
        ((), (512,), CudaPeak(1, 512)),
        ((512,), (512,), None),
        ((512, 64), (512, 128), CudaPeak(1, 128)),
        ((512, 64), (1024, 128), CudaPeak(2, 1152)),
        ((512,), (100,), CudaPeak(1, 100)),  # reset in between
        ((512,), (0,), None),
        (None, (512,), None),
        ((), None, None),
    ],
)
def test_peak_of_before_is_not_that_of_the_test(before, after, expected):
    assert peak_between(before, after) == expected


@pytest.mark.parametrize(
    ("usage", "cuda", "expected"),
    [
        (GpuUsage(), None, (None, None, None, "")),
        (GpuUsage(), CudaPeak(1, 7), (None, None, 7, "process")),
        (GpuUsage(1, 2.0, 10, None, Attribution.PROCESS), CudaPeak(1, 7), (1, 2.0, 10, "process")),
        (GpuUsage(1, 2.0, 10, None, Attribution.DEVICE), CudaPeak(1, 17), (1, 2.0, 17, "device")),
        (GpuUsage(1, 2.0, None, None, Attribution.PROCESS), CudaPeak(1, 7), (1, 2.0, 7, "process")),
        # Between two samples: that nothing was held is no longer true, and for how long nobody saw.
        (GpuUsage(0, 0.0, 0, None, Attribution.PROCESS), CudaPeak(1, 7), (1, None, 7, "process")),
        (GpuUsage(0, 0.0, 0, None, Attribution.PROCESS), None, (0, 0.0, 0, "process")),
        (GpuUsage(None, None, 10), None, (None, None, 10, "unknown")),
    ],
)
def test_of_two_peaks_the_larger_counts(usage, cuda, expected):
    assert resources._with_gpus(Resources(cpu_s=1.0), usage, cuda) == (1.0, None, *expected)


def test_torch_that_fails_leaves_the_test_as_it_is(tmp_path):
    root = make_root(
        tmp_path / "repo",
        "import sys\nfrom unittest.mock import MagicMock\n"
        "class Broken:\n"
        "    def is_initialized(self): raise RuntimeError('CUDA error')\n"
        "def check_mock(): sys.modules['torch'] = sys.modules['torch.cuda'] = MagicMock()\n"
        "def check_broken(): sys.modules['torch.cuda'] = Broken()\n"
        "def check_last(): pass\n",
    )
    run = record(root, "-W", "error")
    assert run.status == 0, run.output
    assert all(found.is_complete for found in run.records.values())
    assert {facts.gpu_peak_bytes for facts in facts_of(run).values()} == {None}


HARDWARE = """
import time
import torch

def check_before():
    assert not torch.cuda.is_initialized()

def check_allocates():
    block = torch.empty(512 * 2**20, dtype=torch.uint8, device="cuda").fill_(1)
    torch.cuda.synchronize()
    time.sleep(1.5)
    assert torch.cuda.max_memory_allocated() >= 512 * 2**20

def check_less():
    block = torch.empty(2**20, dtype=torch.uint8, device="cuda").fill_(1)
    time.sleep(0.5)

def check_more_for_a_moment():
    torch.empty(1536 * 2**20, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
"""


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA driver here")
def test_figures_of_a_real_gpu(tmp_path):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch sees no GPU")
    run = record(make_root(tmp_path / "repo", HARDWARE), "-v")
    assert run.status == 0, run.output
    facts = facts_of(run)
    found = facts["check_allocates"]
    assert found.gpu_by in ("process", "device")
    assert found.n_gpus >= 1
    assert 1.0 < found.gpu_s < found.n_gpus * (found.call_s + 0.5)
    assert found.gpu_peak_bytes >= 512 * MIB
    # As the context stays with the process; the peak is NVML's, if it tells one.
    assert facts["check_less"].n_gpus >= 1
    moment = facts["check_more_for_a_moment"]
    assert moment.gpu_peak_bytes >= 1536 * MIB
    if found.gpu_by == "process":
        assert not facts["check_before"].n_gpus
        assert facts["check_less"].gpu_peak_bytes < 1536 * MIB

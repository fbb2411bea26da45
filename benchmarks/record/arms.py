"""One run of a suite, plain or recorded by one of several tools, with the CPU time that it took."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from record.suites import Suite

from fastci_ml.evidence.bundle.reader import Bundle, find_bundles, read_bundle
from fastci_ml.execution.stragglers import wait_for_stragglers
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

PLAIN, OURS, COVERAGE, TESTMON = ARMS = ("plain", "fastci", "coverage", "testmon")
# Longer than any run; one that hangs must not hold up a night.
_LIMIT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run took, and gave.

    Attributes
    ----------
    cpu_s : float
        User and system time of the process and of all children that it waited for.
    outcomes : dict of str to str
        By node id, each phase with its word.
    code : int
        Exit code of pytest.
    output : str
        The end of what it wrote.
    added : dict
        What a tool tells of itself: of ours the back end and the size of the bundle.
    """

    cpu_s: float
    outcomes: Mapping[str, str]
    code: int
    output: str
    added: Mapping[str, object]


def run_arm(suite: Suite, arm: str, python: Path, folder: Path, extra: tuple[str, ...] = ()) -> Run:
    """Run a suite from scratch.

    Parameters
    ----------
    suite : Suite
        What to run.
    arm : str
        One of `ARMS`.
    python : Path
        Interpreter, with pytest and the tool.
    folder : Path
        Emptied; what the run and its tool write goes here.
    extra : tuple of str
        More options for pytest.

    Raises
    ------
    SystemExit
        If our own recording is not complete: then its cost means nothing.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outcomes = folder / "outcomes.json"
    environ = suite.environ() | {"BENCH_OUTCOMES": str(outcomes), "TMPDIR": str(folder)}
    options = ["-q", "-p", "no:cacheprovider", "-p", "outcomes", "--color=no", *extra]
    if arm == OURS:
        options += ["--fastci-record", f"--fastci-bundles={folder / 'bundles'}"]
    elif arm == COVERAGE:
        environ["COVERAGE_FILE"] = str(folder / "coverage")
        options += [f"--cov={suite.code}", "--cov-context=test", "--cov-report="]
    elif arm == TESTMON:
        environ["TESTMON_DATAFILE"] = str(folder / "testmon")
        options += ["--testmon", "--testmon-noselect"]
    command = [str(python), "-m", "pytest", *suite.options, *options]
    code, cpu_s = _measure(command, suite.root, environ, folder / "output")
    output = (folder / "output").read_text(errors="replace")[-6000:]
    if not outcomes.exists():
        raise SystemExit(f"{suite.name}, {arm}: pytest ended with {code} before its end:\n{output}")
    found = json.loads(outcomes.read_text())
    added: dict[str, object] = {"dynamo": found["dynamo"]}
    if arm == OURS:
        added |= _check_bundle(suite, folder / "bundles", found["outcomes"], output)
    return Run(cpu_s=cpu_s, outcomes=found["outcomes"], code=code, output=output, added=added)


def _measure(command: list[str], cwd: Path, environ: Mapping[str, str], output: Path) -> tuple[int, float]:
    """Exit code and CPU seconds, children included, as the kernel counts them."""
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=cwd, env=dict(environ), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
        watchdog = threading.Timer(_LIMIT_S, os.kill, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            watchdog.cancel()
        # The process was waited for here, for its usage; Popen must not wait for it again.
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def _check_bundle(suite: Suite, folder: Path, outcomes: Mapping[str, str], output: str) -> dict[str, object]:
    paths = find_bundles([folder])
    wait_for_stragglers(paths)
    found = [read_bundle(path) for path in paths]
    bundles = [bundle for bundle in found if not bundle.provenance.parent]
    children = [bundle for bundle in found if bundle.provenance.parent]
    if len(bundles) != 1:
        raise SystemExit(f"{suite.name}: {len(bundles)} bundles where one was expected\n{output}")
    (bundle,) = bundles
    ran = sum("call:" in words for words in outcomes.values())
    tests = {n: c for n, c in bundle.captures.items() if c.kind is CaptureKind.TEST}
    empty = [
        c.label for n, c in tests.items() if n in bundle.runs and not c.codes and _called(c.label, outcomes)
    ]
    problems = [f"{gap}: {detail}" for gap, detail in bundle.gaps]
    if len(bundle.runs) < ran:
        problems.append(f"{len(bundle.runs)} tests in the bundle, {ran} were called")
    if empty:
        problems.append(f"{len(empty)} tests without a unit, such as {empty[0]}")
    for one in (bundle, *children):
        problems += _gaps(one)
    problems += [f"a child: {gap}: {detail}" for child in children for gap, detail in child.gaps]
    if problems:
        raise SystemExit(f"{suite.name}: the recording is not complete: {'; '.join(problems[:5])}")
    return {
        "backend": bundle.provenance.backend,
        "python": bundle.provenance.python,
        "bundle_bytes": bundle.n_bytes,
        "n_units": sum(len(capture.codes) for capture in tests.values()),
        "n_files": len(bundle.files),
        "n_processes": len(children),
    }


def _called(label: str, outcomes: Mapping[str, str]) -> bool:
    return "call:" in outcomes.get(label, "")


def _gaps(bundle: Bundle) -> list[str]:
    """Gaps that mean that less was recorded than should be, so that it cost less than it should."""
    ours = (Gap.SLOT_LOST, Gap.RECORDER_FAILED, Gap.FIXTURES_UNKNOWN)
    return [
        f"{capture.label}: {gap}: {detail}"
        for capture in bundle.captures.values()
        for gap, detail in capture.gaps
        if gap in ours
    ]


def has_module(python: Path, module: str) -> bool:
    """Whether an interpreter can import a module."""
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], check=False, capture_output=True).returncode == 0


def tell(text: str) -> None:
    """Progress, for whoever waits."""
    print(text, file=sys.stderr, flush=True)

"""A command as one test case: what suites that are not pytest are made of, programs of torchrun above all."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from fastci_ml.errors import EvidenceError, UsageError
from fastci_ml.evidence.bundle.reader import find_bundles
from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.evidence.recorder.captures import ClosedCapture
from fastci_ml.evidence.recorder.family import (
    TEST_VARIABLE,
    VARIABLE,
    matches,
)
from fastci_ml.evidence.recorder.origin import family_of, new_provenance
from fastci_ml.evidence.recorder.process_names import name_of
from fastci_ml.evidence.recorder.programs import (
    find_program,
    may_run_python,
    records_itself,
    summary_of,
)
from fastci_ml.evidence.seal_key import VARIABLE as KEY_VARIABLE
from fastci_ml.execution.plugin import RECORD_VARIABLE
from fastci_ml.execution.recorded_command import Recorded
from fastci_ml.execution.runner import forwarding_signals, shell_code
from fastci_ml.execution.stragglers import wait_for_stragglers
from fastci_ml.records.evidence import RunFacts
from fastci_ml.records.evidence_kinds import COMMAND_BACKEND, CaptureKind, Gap
from fastci_ml.records.outcomes import Outcome
from fastci_ml.settings import Settings
from fastci_ml.sources.projects import repository_top

_LONGEST_ID = 1_000


def record_case(
    test_id: str,
    command: Sequence[str],
    settings: Settings,
    bundles_dir: Path,
    *,
    lane: str | None = None,
    folder: Path | None = None,
) -> Recorded:
    """Run a command, on the same stdin, stdout and stderr, and record all of it as one test.

    Nothing is added to the command: each Python process below it records itself, by the start-up hook and two
    variables of its environment.

    Parameters
    ----------
    test_id : str
        Name of the test; the same from run to run.
    command : sequence of str
        Program and arguments.
    settings : Settings
        Of the target.
    bundles_dir : Path
        Where bundles go; made where missing.
    lane : str, optional
        Name of the environment in place of the detected one.
    folder : Path, optional
        Where to run; the current folder by default.

    Returns
    -------
    Recorded
        Its exit code, which recording does not change, and the bundles. The test passed if the code is 0.

    Raises
    ------
    UsageError
        If the name is none, or the command cannot be started.
    EvidenceError
        If the folder cannot be written; then nothing is run.
    """
    if not test_id.strip() or not test_id.isprintable() or len(test_id) > _LONGEST_ID:
        raise UsageError(
            f"--id {test_id[:60]!r}: expected printable text of at most {_LONGEST_ID:,} characters",
            hint="fastci-ml record --id smoke/two-ranks -- torchrun --nproc-per-node 2 train.py",
        )
    if not command:
        raise UsageError("no command to record", hint=f"fastci-ml record --id {test_id} -- torchrun train.py")
    top = repository_top(settings.root)
    provenance = new_provenance(settings, top, COMMAND_BACKEND, lane=lane)
    family = family_of(provenance, settings, top, bundles_dir)
    before = set(find_bundles([bundles_dir]) if bundles_dir.is_dir() else ())
    try:
        writer = BundleWriter(bundles_dir, provenance)
    except OSError as error:
        raise EvidenceError(f"{bundles_dir}: no bundle can be written: {error}") from error
    environ = {**os.environ, VARIABLE: family.as_text(), TEST_VARIABLE: test_id}
    for name in (RECORD_VARIABLE, KEY_VARIABLE):
        environ.pop(name, None)
    started_s, before_cpu = time.monotonic(), os.times()
    try:
        child = subprocess.Popen(command, cwd=folder, env=environ)
    except (OSError, ValueError) as error:
        Path(writer.file).unlink(missing_ok=True)
        raise UsageError(f"{command[0]}: cannot be started: {error}", hint="is it on PATH?") from error
    name = name_of(child.pid)
    with forwarding_signals(child):
        code = child.wait()
    after_cpu = os.times()
    capture = _capture_of(test_id, name, command, folder, family.trusted)
    number = writer.new_capture()
    writer.add_capture(number, capture)
    writer.add_run(
        number,
        RunFacts(
            outcome=(Outcome.PASSED if code == 0 else Outcome.FAILED).value,
            started_us=provenance.started_us,
            call_s=time.monotonic() - started_s,
            cpu_s=(after_cpu.children_user - before_cpu.children_user)
            + (after_cpu.children_system - before_cpu.children_system),
        ),
    )
    writer.add_capture(writer.new_capture(), ClosedCapture(CaptureKind.SESSION, ""))
    writer.close()
    bundles = tuple(path for path in find_bundles([bundles_dir]) if path not in before)
    return Recorded(code=shell_code(code), bundles=bundles, n_living=len(wait_for_stragglers(bundles)))


def _capture_of(
    test_id: str, name: str, command: Sequence[str], folder: Path | None, trusted: Sequence[str]
) -> ClosedCapture:
    """The test, with the process of the command itself if it is to leave a bundle."""
    shown = " ".join([Path(command[0]).name, *command[1:]])
    program = find_program(command[0], None, str(folder or Path.cwd()))
    if not may_run_python(program, list(command)) or matches(shown, trusted):
        return ClosedCapture(CaptureKind.TEST, test_id)
    detail = summary_of(command[0], list(command))
    # What is no Python may start any, without us, before it becomes one that records.
    is_opaque = not records_itself(program, list(command))
    gaps = ((Gap.CHILD_WITHOUT_RECORD, detail),) if is_opaque else ()
    return ClosedCapture(CaptureKind.TEST, test_id, gaps=gaps, children=((name, detail),))

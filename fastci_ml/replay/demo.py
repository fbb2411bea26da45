"""What the demo works on: a small real repository, made from this project's files, with one seeded fault."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastci_ml.errors import DataError, GitError
from fastci_ml.replay.faults import Fault, find_faults
from fastci_ml.sources.git.commands import ENVIRONMENT, SAFE_OPTIONS

# Tests whose whole run takes seconds: what data/selfhistory/ has recorded and the demo runs.
FAST_TESTS = (
    "tests/test_errors.py",
    "tests/test_settings.py",
    "tests/records",
    "tests/metrics",
    "tests/features/test_state.py",
    "tests/planning/test_explain.py",
    "tests/sources/test_environment.py",
    "tests/sources/test_repository.py",
    "tests/sources/test_worktree.py",
)

# The recording and the demo run the tests alike, so that their results and durations can be compared.
PYTEST_ARGUMENTS = (
    "--import-mode=importlib",
    "--continue-on-collection-errors",
    "-p",
    "no:cacheprovider",
    "-m",
    "not slow and not gpu",
    "-o",
    "junit_family=xunit1",
    "-o",
    "junit_logging=no",
    "-q",
)

# In the demo's repository: what `pytest @fast-tests.txt` reads, one argument a line.
ARGUMENTS_FILE = "fast-tests.txt"
SELF_HISTORY = Path("data", "selfhistory", "runs")
# The fault of the demo: the first of this kind in a module that many fast tests look at.
_FAULTY_PATH = Path("fastci_ml", "metrics", "ordering.py")
_OPERATOR = "swap-arithmetic"
_DATE = "2026-01-01T00:00:00+00:00"
_IDENTITY = ("-c", "user.name=demo", "-c", "user.email=demo@example.org", "-c", "commit.gpgsign=false")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRepository:
    """A repository with a base commit and a head that holds one fault more.

    Attributes
    ----------
    root : Path
        Its folder.
    base, head : str
        Full shas.
    path : str
        The file with the fault.
    fault : Fault
        What was planted there.
    """

    root: Path
    base: str
    head: str
    path: str
    fault: Fault


def make_repository(checkout: Path, root: Path) -> DemoRepository:
    """Make the demo's repository from the tracked files of a checkout of this project.

    Parameters
    ----------
    checkout : Path
        This project, with its recorded history.
    root : Path
        Folder to make.

    Returns
    -------
    DemoRepository
        The same files give the same shas. Its settings name the lane that the history was recorded on: the
        demo learns from runs of another machine, which real use never does.

    Raises
    ------
    DataError
        If `checkout` is not this project, or no longer has the place of the fault.
    GitError
        If git fails, or `checkout` is no git checkout.
    """
    lane = recorded_lane(checkout)
    listed = _git(checkout, "ls-files", "-z").split("\0")
    for name in filter(None, listed):
        source = checkout / name
        # The recorded history would be most of the files, and no test needs it. A tracked file that was
        # deleted and not yet committed is not there.
        if not Path(name).is_relative_to(SELF_HISTORY.parent) and source.is_file():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    arguments = [*FAST_TESTS, *PYTEST_ARGUMENTS, "--tb=no"]
    (root / ARGUMENTS_FILE).write_text("\n".join(arguments) + "\n", encoding="utf-8")
    (root / "fastci.toml").write_text(f"lane = {json.dumps(lane)}\n", encoding="utf-8")
    _git(root, "init", "--quiet", "--initial-branch=main")
    base = _commit(root, "The project as it is")
    faulty = root / _FAULTY_PATH
    fault = _choose_fault(faulty)
    faulty.write_text(fault.apply(faulty.read_text(encoding="utf-8")), encoding="utf-8")
    head = _commit(root, "A change with a mistake in it")
    return DemoRepository(root=root, base=base, head=head, path=_FAULTY_PATH.as_posix(), fault=fault)


def recorded_lane(checkout: Path) -> str:
    """Lane of the newest recorded run; DataError where nothing is recorded."""
    runs = sorted((checkout / SELF_HISTORY).glob("*/run.json"))
    if not runs:
        raise DataError(
            f"{checkout}: no recorded runs in {SELF_HISTORY}, expected a checkout of fastci-ml",
            hint="fastci-ml demo --root <checkout of fastci-ml>",
        )
    return str(json.loads(runs[-1].read_text(encoding="utf-8"))["lane"])


def _choose_fault(path: Path) -> Fault:
    source = path.read_text(encoding="utf-8")
    fault = next((fault for fault in find_faults(source) if fault.operator == _OPERATOR), None)
    if fault is None:
        raise DataError(f"{path}: no place for a fault of kind {_OPERATOR}", hint="git status")
    return fault


def _commit(root: Path, message: str) -> str:
    _git(root, "add", "--all", "--force")
    _git(root, *_IDENTITY, "commit", "--quiet", "--message", message)
    return _git(root, "rev-parse", "HEAD").strip()


def _git(root: Path, *arguments: str) -> str:
    """Run a git command that writes; `sources.git.repository` only reads."""
    command: Sequence[str] = ["git", *SAFE_OPTIONS, *arguments]
    dated = {"GIT_AUTHOR_DATE": _DATE, "GIT_COMMITTER_DATE": _DATE}
    environment = {**os.environ, **ENVIRONMENT, **dated}
    try:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, check=False)
    except OSError as error:
        raise GitError(f"{root}: cannot run git: {error}", hint="git --version") from error
    if done.returncode:
        raise GitError(f"{root}: git {arguments[0]}: {os.fsdecode(done.stderr).strip()}", hint="git status")
    return os.fsdecode(done.stdout)

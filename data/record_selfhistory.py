"""Record the history that the demo learns from: this project's own fast tests, run for real.

The tests run at each commit of this project that has some, and at commits with one seeded fault each. Every
run leaves a folder ``data/selfhistory/runs/<NNN>/`` with ``junit.xml`` (names of this machine scrubbed) and
``run.json`` (what ran, when, on which change). A fault that no test notices is a run that passed, and stays.

The same arguments give the same commits and the same faults; a recording that was interrupted goes on where
it stopped::

    python data/record_selfhistory.py --until <commit> --runs 90 --seed 1 --minutes 60

`selfhistory_card.py` writes the card, data/README.md, from what was recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from fastci_ml.records.changes import FileChange
from fastci_ml.replay.demo import FAST_TESTS, PYTEST_ARGUMENTS
from fastci_ml.replay.faults import Fault, find_faults
from fastci_ml.sources.environment import detect_lane
from fastci_ml.sources.git.repository import Repository

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "data" / "selfhistory" / "runs"
# Faults go where the fast tests look, so that a fair part of them is noticed.
FAULTY = (
    "errors.py",
    "settings.py",
    "records",
    "metrics",
    "features",
    "planning/explain.py",
    "sources/environment.py",
    "sources/git/commands.py",
    "sources/git/repository.py",
    "sources/git/worktree.py",
)
RUN_TIMEOUT_S = 300
MAX_TEXT = 300
MAX_MEMORY_BYTES = 8 * 2**30


@dataclass(frozen=True, slots=True)
class Slot:
    """One run to record: a commit, and the number of the fault at it (0 for the commit itself)."""

    number: int
    commit: str
    fault_number: int


def main() -> int:
    """Record the slots that have no folder yet, oldest commit first, until the time is over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--until", default="HEAD", help="newest commit to record")
    parser.add_argument("--runs", type=int, default=90, help="runs in all")
    parser.add_argument("--seed", type=int, default=1, help="chooses the faults")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this time")
    args = parser.parse_args()
    deadline_s = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory(prefix="selfhistory-") as folder:
        clone = Path(folder) / "clone"
        # A clone that borrows our objects: commits with faults never enter the project's own repository.
        git(ROOT, "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(clone))
        slots = schedule(clone, Repository(ROOT).resolve(args.until), args.runs)
        for slot in slots:
            target = OUT / f"{slot.number:03d}"
            if (target / "run.json").exists():
                continue
            if time.monotonic() > deadline_s:
                say(f"time is over at run {slot.number} of {len(slots)}; the same command goes on")
                return 1
            started_s = time.monotonic()
            summary = record_slot(clone, slot, target, args.seed)
            say(f"run {slot.number}/{len(slots)}: {summary}, {time.monotonic() - started_s:.0f} s")
    return 0


def schedule(clone: Path, until: str, n_runs: int) -> list[Slot]:
    """Spread the runs over the commits that have fast tests: more faults where there are more tests."""
    commits = [
        (sha, count)
        for sha in git(clone, "rev-list", "--reverse", "--first-parent", until).split()
        if (count := len(test_files(clone, sha)))
    ]
    n_faults = max(0, n_runs - len(commits))
    weights = sum(count for _, count in commits)
    slots: list[Slot] = []
    done = given = 0
    for sha, count in commits:
        done += count
        share = round(n_faults * done / weights) - given
        given += share
        slots += [Slot(len(slots) + k + 1, sha, k) for k in range(share + 1)]
    return slots


def test_files(clone: Path, sha: str) -> list[str]:
    """Files of the fast tests at a commit."""
    listed = git(clone, "ls-tree", "-r", "--name-only", sha, "--", *FAST_TESTS).splitlines()
    return [path for path in listed if Path(path).name.startswith("test_")]


def record_slot(clone: Path, slot: Slot, target: Path, seed: int) -> str:
    """Record one run; a fault after which no report comes (a hang) is replaced by the next one."""
    for attempt in range(20):
        git(clone, "checkout", "--quiet", "--force", "--detach", slot.commit)
        git(clone, "clean", "--quiet", "-ffdx")
        chosen = plant(clone, slot, random.Random(f"{seed}/{slot.commit}/{slot.fault_number}/{attempt}"))
        started_at = datetime.now(UTC)
        report = run_tests(clone)
        if report is not None:
            break
        say(f"run {slot.number}: no report, so another fault: {chosen}")
    else:
        raise SystemExit(f"run {slot.number}: twenty faults in a row left no report")
    finished_at = datetime.now(UTC)
    n_tests, n_failed = scrub(report, clone)
    source = Repository(clone)
    head = source.resolve("HEAD")
    ((_, files),) = source.commit_changes([head])
    parents = git(clone, "rev-list", "--parents", "-n1", head).split()[1:]
    document = {
        "schema": "fastci.run/1",
        "run_id": f"self-{slot.number:03d}",
        "job": "",
        "shard": "",
        "lane": detect_lane(),
        "base": parents[0] if parents else "",
        "head": head,
        "started_at": started_at.isoformat(),
        "finished_at": finished_at.isoformat(),
        "changes": [change_to_json(file) for file in files],
        "fault": None if chosen is None else {"path": chosen[0], "seed": seed, **asdict(chosen[1])},
    }
    target.mkdir(parents=True, exist_ok=True)
    report.write(target / "junit.xml", encoding="utf-8", xml_declaration=True)
    # Last, under its own name at once: a folder with run.json is a whole one.
    partial = target / "run.json.partial"
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(target / "run.json")
    return f"{n_failed} of {n_tests} failed, {'as committed' if chosen is None else chosen[1].operator}"


def plant(clone: Path, slot: Slot, rng: random.Random) -> tuple[str, Fault] | None:
    """Commit one fault on top of the checkout; None where the slot is the commit itself."""
    if slot.fault_number == 0:
        return None
    package = clone / "fastci_ml"
    paths = [path for name in FAULTY for path in (package / name, *sorted(package.glob(f"{name}/*.py")))]
    candidates = [
        (path, fault) for path in paths if path.is_file() for fault in find_faults(path.read_text("utf-8"))
    ]
    # First the kind, then the place: off-by-one has ten times the places of a wrong default.
    operator = rng.choice(sorted({fault.operator for _, fault in candidates}))
    path, fault = rng.choice([pair for pair in candidates if pair[1].operator == operator])
    path.write_text(fault.apply(path.read_text("utf-8")), encoding="utf-8")
    date = git(clone, "show", "-s", "--format=%cI", slot.commit)
    who = ["-c", "user.name=seeded fault", "-c", "user.email=fault@example.org", "-c", "commit.gpgsign=false"]
    dated = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    git(clone, *who, "commit", "--quiet", "--all", "--message", f"seeded fault: {fault.operator}", **dated)
    return path.relative_to(clone).as_posix(), fault


def run_tests(clone: Path) -> ET.ElementTree[ET.Element] | None:
    """Run the fast tests of the checkout; the report, or None where there is none to read."""
    junit = clone.parent / "junit.xml"
    junit.unlink(missing_ok=True)
    basetemp = clone.parent / "tmp"
    shutil.rmtree(basetemp, ignore_errors=True)
    tests = [name for name in FAST_TESTS if (clone / name).exists()]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "FASTCI_"))},
        "PYTHONPATH": f"{clone}{os.pathsep}{ROOT / 'data'}",
        "PYTHONHASHSEED": "0",
    }
    check = [sys.executable, "-c", "import fastci_ml; print(fastci_ml.__file__)"]
    loaded = subprocess.run(
        check, cwd=clone.parent, env=environment, capture_output=True, text=True, check=False
    )
    # A fault in the package's own __init__ would fail here too; FAULTY has none there.
    if Path(loaded.stdout.strip()).parent != clone / "fastci_ml":
        raise SystemExit(f"the tests would import {loaded.stdout}{loaded.stderr}, expected {clone}")
    command = [sys.executable, "-m", "pytest", *tests, *PYTEST_ARGUMENTS, "-p", "no:fastci"]
    command += ["-p", "recording_profile", "--hypothesis-profile=recording"]
    command += [f"--junitxml={junit}", f"--basetemp={basetemp}", "--timeout=60"]
    # A session of its own, to end with all its children; a memory limit, for a fault may allocate for ever.
    process = subprocess.Popen(
        command,
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_limit,
    )
    try:
        process.wait(RUN_TIMEOUT_S)
        return ET.parse(junit)
    except (subprocess.TimeoutExpired, FileNotFoundError, ET.ParseError):
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _limit() -> None:
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def scrub(report: ET.ElementTree[ET.Element], clone: Path) -> tuple[int, int]:
    """Take this machine's names and long texts out of a report; how many tests it has and how many failed."""
    names = {
        str(clone.parent / "tmp"): "TMP",
        str(clone): "ROOT",
        str(clone.parent): "TMP",
        sys.prefix: "VENV",
        sys.base_prefix: "PYTHON",
        str(ROOT): "ROOT",
        str(Path.home()): "HOME",
        tempfile.gettempdir(): "TMP",
        socket.gethostname(): "HOST",
    }
    pattern = re.compile(
        "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True) if name != "/")
    )

    def clean(text: str) -> str:
        return pattern.sub(lambda match: names[match[0]], text)[:MAX_TEXT]

    n_tests = n_failed = 0
    for parent in list(report.iter()):
        parent.attrib.pop("hostname", None)
        for child in list(parent):
            if child.tag in ("system-out", "system-err", "properties"):
                parent.remove(child)
        if parent.tag == "testcase":
            n_tests += 1
            n_failed += any(child.tag in ("failure", "error") for child in parent)
        elif parent.tag in ("failure", "error", "skipped"):
            parent.attrib = {name: clean(value) for name, value in parent.attrib.items()}
            # Tracebacks repeat the source; the place of the failure stands on their last line.
            parent.text = clean((parent.text or "").strip().rpartition("\n")[2])
    return n_tests, n_failed


def change_to_json(file: FileChange) -> dict[str, object]:
    """One file of a change as run.json has it; null where lines could not be counted."""
    document = asdict(file)
    for name in ("n_added", "n_deleted"):
        document[name] = None if document[name] != document[name] else int(document[name])
    return {**document, "status": file.status.value}


def git(folder: Path, *arguments: str, **environment: str) -> str:
    """Run git in a repository of our own making."""
    command: Sequence[str] = ["git", *arguments]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def say(text: str) -> None:
    """Tell how far it is."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

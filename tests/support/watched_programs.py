"""Running a module of checks under the recorder alone, without pytest, on this interpreter and on others."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import fastci_ml
from fastci_ml.evidence.bundle.reader import Bundle, find_bundles, read_bundle
from fastci_ml.records.evidence import Capture
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

# Runs each function `check_*` of a module `program` as a test.
_DRIVER = """
import sys
import time
from pathlib import Path

from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.evidence.recorder.backend import choose_backend
from fastci_ml.evidence.recorder.collector import Collector
from fastci_ml.evidence.recorder.family import Family
from fastci_ml.evidence.recorder.project_files import ProjectFiles
from fastci_ml.evidence.recorder.watches import make_watches
from fastci_ml.records.evidence import Provenance, RunFacts
from fastci_ml.records.evidence_kinds import CaptureKind


def main():
    root, before, prefixes = Path(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:])
    names = dict(bundle_id="b", session_id="s", lane="l", scope="trunk", commit="", tree="", python="")
    backend = choose_backend()
    backend.start()
    started_ns = time.time_ns()
    writer = BundleWriter(
        root / ".fastci", Provenance(**names, worker="", backend=backend.name, started_us=started_ns // 1000)
    )
    files = ProjectFiles(root, [root / ".fastci"], started_ns, writer.sources)
    collector = Collector(backend, files, writer)
    texts = dict(session_id="s", lane="l", scope="trunk", commit="", tree="", job="", parent="b", project="")
    lists = dict(outside=(str(root / ".fastci"),), environ_prefixes=prefixes)
    lists |= dict(skipped=(), trusted=(), flushed=())
    family = Family(top=str(root), bundles=str(root / ".fastci"), limit=0, **texts, **lists)
    collector.watches = make_watches(collector, family)
    sys.path.insert(0, str(root))
    exec(before)
    collector.start()
    capture = collector.push(CaptureKind.COLLECTOR, "program.py")
    import program
    collector.pop(capture)
    for name, check in list(vars(program).items()):
        if name.startswith("check_"):
            capture = collector.push(CaptureKind.TEST, name)
            try:
                check()
            finally:
                number = collector.pop(capture)
            collector.add_run(number, RunFacts(outcome="passed", started_us=1))
    collector.finish()
    getattr(program, "after_recording", lambda: None)()


# Children that multiprocessing spawns import this module.
if __name__ == "__main__":
    main()
"""


@dataclass(slots=True)
class Watched:
    """What was recorded of a program, by the names of its checks.

    Attributes
    ----------
    root : Path
        Its repository.
    bundle : Bundle
        What it left.
    output : str
        What it printed.
    """

    root: Path
    bundle: Bundle
    output: str

    def capture(self, label: str, kind: CaptureKind = CaptureKind.TEST) -> Capture:
        """The one capture of a label."""
        (found,) = [one for one in self.bundle.captures.values() if one.label == label and one.kind is kind]
        return found

    def reads(self, label: str, kind: CaptureKind = CaptureKind.TEST) -> set[str]:
        """Paths of the files that it read."""
        return {self.bundle.files[number].path for number in self.capture(label, kind).reads}

    def listings(self, label: str) -> set[str]:
        """Paths of the folders that it listed."""
        return {self.bundle.files[number].path for number in self.capture(label).listings}

    def imports(self, label: str, kind: CaptureKind = CaptureKind.TEST) -> set[str]:
        """Paths of the modules that it imported."""
        return {self.bundle.files[number].path for number in self.capture(label, kind).imports}

    def gaps(self, label: str) -> set[Gap]:
        """Why it is incomplete, with what it stands on; as if none of its processes had recorded."""
        captures = self.all_captures(label)
        unseen = {Gap.CHILD_WITHOUT_RECORD} if any(one.children for one in captures) else set()
        return unseen | {gap for one in captures for gap, _ in one.gaps}

    def codes(self, label: str) -> set[str]:
        """Names of what it ran, with what it stands on."""
        numbers = {number for one in self.all_captures(label) for number in one.codes}
        return {self.bundle.codes[number].name for number in numbers}

    def all_captures(self, label: str) -> list[Capture]:
        """The capture of a test and all that it stands on."""
        found, ahead = [self.capture(label)], list(self.capture(label).uses)
        seen: set[int] = set()
        while ahead:
            number = ahead.pop()
            if number not in seen:
                seen.add(number)
                found.append(self.bundle.captures[number])
                ahead.extend(self.bundle.captures[number].uses)
        return found

    def edges(self) -> set[tuple[str, str]]:
        """Who imported whom."""
        files = self.bundle.files
        return {(files[one].path, files[other].path) for one, other in self.bundle.edges}


def watch_program(
    root: Path, program: str, *prefixes: str, python: str | None = None, before: str = "", **environ: str
) -> Watched:
    """Run a program and read what was recorded of it.

    Parameters
    ----------
    root : Path
        Folder that is the repository; other files of it may be there already.
    program : str
        Text of its module ``program``.
    *prefixes : str
        Of the variables to watch.
    python : str, optional
        Interpreter; this one by default.
    before : str, optional
        Statements that are run before recording begins.
    **environ : str
        More variables.
    """
    root.mkdir(exist_ok=True)
    (root / "program.py").write_text(program)
    library = root.parent / f"{root.name}-library"
    library.mkdir()
    (library / "fastci_ml").symlink_to(Path(fastci_ml.__file__).parent)
    (library / "driver.py").write_text(_DRIVER)
    done = subprocess.run(
        [python or sys.executable, str(library / "driver.py"), str(root), before, *prefixes],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(library), "PYTHONDONTWRITEBYTECODE": "1", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    bundles = [read_bundle(path) for path in find_bundles([root / ".fastci"])]
    (bundle,) = [one for one in bundles if not one.provenance.parent]
    return Watched(root, bundle, done.stdout)

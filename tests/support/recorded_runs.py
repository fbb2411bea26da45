"""Recording a small project with a real pytest, on this interpreter and on others that lie on the machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import fastci_ml
from fastci_ml.evidence.bundle.reader import Bundle, find_bundles, read_bundle
from fastci_ml.evidence.merge.bundle_evidence import build_records
from fastci_ml.evidence.merge.sources_at_hand import SourcesAtHand
from fastci_ml.execution.stragglers import wait_for_stragglers
from fastci_ml.records.evidence import EvidenceRecord
from fastci_ml.records.evidence_kinds import Gap

SUBJECT = Path(__file__).parent.parent / "evidence" / "subject"
# pytest and what it needs are pure Python: other interpreters run those of this environment.
_PURE = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")


def pure_packages(folder: Path) -> Path:
    """Folder for PYTHONPATH with pytest, what it needs, and this package with its start-up hook."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _PURE:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            source = origin.parent if origin.name == "__init__.py" else origin
            (folder / source.name).symlink_to(source)
    package = Path(fastci_ml.__file__).parent
    (folder / "fastci_ml").symlink_to(package)
    # A folder on PYTHONPATH is none of packages, where the start-up hook of children would lie.
    hook = folder / "hook"
    hook.mkdir()
    (hook / "fastci_ml_children.pth").symlink_to(package.parent / "fastci_ml_children.pth")
    (folder / "sitecustomize.py").write_text(f"import site\n\nsite.addsitedir({str(hook)!r})\n")
    return folder


@dataclass(slots=True, kw_only=True)
class RecordedRun:
    """What a run left behind; of bundles those of pytest, and those of processes that were started."""

    root: Path
    status: int
    output: str
    bundles: list[Bundle]
    children: list[Bundle]
    records: dict[str, EvidenceRecord]

    def units(self, node_id: str) -> set[str]:
        """Blocks that a test executed, as ``path::name``."""
        return {f"{unit.path}::{unit.name}" for unit in self.records[node_id].units}

    def gaps(self, node_id: str) -> set[Gap]:
        """Why a test's record is not complete."""
        return {gap for gap, _ in self.records[node_id].gaps}


def make_subject(root: Path, subject: Path = SUBJECT) -> Path:
    """Repository that holds a subject, committed."""
    shutil.copytree(subject, root, ignore=shutil.ignore_patterns("__pycache__", ".fastci"))
    if not (root / "fastci.toml").exists():
        (root / "fastci.toml").write_text("")
    author = ["-c", "user.email=a@example.com", "-c", "user.name=a"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*author, "commit", "-q", "-m", "subject"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    return root


def record(
    root: Path,
    *arguments: str,
    python: str | None = None,
    path: Sequence[Path] = (),
    program: Sequence[str] = ("-m", "pytest"),
    **environ: str,
) -> RecordedRun:
    """Run pytest over checks of a repository with recording on.

    Parameters
    ----------
    root : Path
        From `make_subject`.
    *arguments : str
        Of pytest.
    python : str, optional
        Interpreter; this one by default.
    path : sequence of Path
        Of PYTHONPATH; one from `pure_packages` for another interpreter.
    program : sequence of str
        What the interpreter runs.
    **environ : str
        More variables.
    """
    names = ("python_files=checks_*.py", "python_functions=check_*", "python_classes=Check*")
    command = [python or sys.executable, *program, "-p", "no:cacheprovider", "--fastci-record"]
    command += [word for name in names for word in ("-o", name)]
    if python:
        command += ["-p", "fastci_ml.execution.plugin"]
    ours = ("PYTEST_", "CI", "GITHUB_", "FASTCI_", "COV_")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    done = subprocess.run(
        [*command, *arguments],
        cwd=root,
        env={
            **inherited,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environ,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
        # Another run of the same tests at the same time is told apart by its session.
        start_new_session=True,
    )
    folder = root / ".fastci" / "bundles"
    files = find_bundles([folder]) if folder.is_dir() else []
    wait_for_stragglers(files)
    # A child that is killed in its first moments leaves an empty file.
    bundles = [read_bundle(file) for file in files if file.stat().st_size]
    roots = [bundle for bundle in bundles if not bundle.provenance.parent]
    children = [bundle for bundle in bundles if bundle.provenance.parent]
    sources = SourcesAtHand([bundle.path for bundle in bundles], root / "no working tree")
    records = {
        record.node_id: record
        for bundle in roots
        for below in [[one for one in children if one.provenance.parent == bundle.provenance.bundle_id]]
        for record in build_records(bundle, sources, children=below).records()
    }
    return RecordedRun(
        root=root,
        status=done.returncode,
        output=done.stdout,
        bundles=roots,
        children=children,
        records=records,
    )

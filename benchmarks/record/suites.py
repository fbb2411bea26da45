"""Suites to record: each a git repository of its own in a temporary folder, never the project's."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_PROJECT = _HERE.parents[1]
# Torch that waits in many threads burns CPU time without an end; hash seeds change what some suites do.
_STEADY = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "HF_HUB_OFFLINE": "1",
    "PYTEST_ADDOPTS": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Tests of one repository.

    Attributes
    ----------
    name : str
        As the output calls it.
    root : Path
        Top of the repository: working directory of its runs, and first on the path of modules.
    options : tuple of str
        For pytest.
    code : str
        Package or folder that coverage measures.
    """

    name: str
    root: Path
    options: tuple[str, ...]
    code: str

    def environ(self) -> dict[str, str]:
        """Environment of its runs."""
        # What is measured is this checkout, whatever is installed.
        path = os.pathsep.join([str(self.root), str(_HERE), str(_PROJECT)])
        # Byte code is kept, as everywhere: else what is measured is mostly the compiler.
        left_out = ("FASTCI_", "COV", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        return kept | _STEADY | {"PYTHONPATH": path}


def make_repository(root: Path) -> None:
    """Commit what lies in a folder: what is recorded belongs to a repository, and to a commit."""
    (root / ".gitignore").write_text("__pycache__/\n*.pyc\n.fastci/\n")
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "as installed")):
        subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


def minitrain(folder: Path) -> Suite:
    """The trainer of this project's examples: its tests that stay in one process, and `training.py`."""
    root = folder / "minitrain"
    shutil.copytree(
        _PROJECT / "examples" / "minitrain",
        root,
        ignore=shutil.ignore_patterns("__pycache__", ".*_cache", "*.egg-info", "runs"),
    )
    shutil.copy(_HERE / "training.py", root / "tests" / "test_training.py")
    make_repository(root)
    # Ranks and commands are processes of their own; what a child costs is measured elsewhere.
    apart = ("tests/test_command.py", "tests/test_pool.py")
    child = "tests/test_config.py::test_configuration_modules_import_no_torch"
    options = ("-m", "not recipe", *(f"--ignore={path}" for path in apart), f"--deselect={child}")
    return Suite(name="minitrain", root=root, options=options, code="minitrain")


def checkout(folder: Path, source: Path, options: Sequence[str]) -> Suite:
    """A project that lies in a folder, copied."""
    root = folder / source.name
    shutil.copytree(source, root, ignore=shutil.ignore_patterns("__pycache__", ".git", ".*_cache"))
    make_repository(root)
    code = source.name if (root / source.name).is_dir() else "."
    return Suite(name=source.name, root=root, options=tuple(options), code=code)


def installed(folder: Path, package: str, python: Path, parts: Sequence[str], name: str = "") -> Suite:
    """A package that was installed together with its tests, copied so that it is the repository.

    Parameters
    ----------
    folder : Path
        Where the copy goes; one that is there already is used again.
    package : str
        Its name.
    python : Path
        Interpreter that has it.
    parts : sequence of str
        Folders and files of it that hold the tests, or options for pytest.
    name : str, optional
        As the output calls it; the package by default.
    """
    root = folder / f"{package}-repository"
    if not root.exists():
        shutil.copytree(_place(package, python), root / package, ignore=shutil.ignore_patterns("__pycache__"))
        make_repository(root)
    # Options of a project's own are in its conftest files, so paths come first.
    options = tuple(part if part.startswith("-") else f"{package}/{part}" for part in parts)
    return Suite(name=name or package, root=root, options=options, code=package)


def _place(package: str, python: Path) -> Path:
    if str(python) == sys.executable:
        found = importlib.util.find_spec(package)
        origin = found.origin if found is not None else None
    else:
        code = f"import importlib.util as u; s = u.find_spec({package!r}); print(s.origin if s else '')"
        done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
        origin = done.stdout.strip()
    if not origin:
        raise SystemExit(f"{package} is not installed for {python}")
    return Path(origin).parent

"""Running a command of the user with recording on. Standard library only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from fastci_ml.errors import UsageError
from fastci_ml.evidence.bundle.reader import find_bundles
from fastci_ml.evidence.seal_key import VARIABLE as KEY_VARIABLE
from fastci_ml.execution.plugin import RECORD_VARIABLE
from fastci_ml.execution.runner import forwarding_signals, shell_code
from fastci_ml.execution.stragglers import wait_for_stragglers
from fastci_ml.sources.environment import VARIABLE as LANE_VARIABLE

_PLUGIN = "fastci_ml.execution.named_plugin"
_NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
_PLUGINS = "PYTEST_PLUGINS"
_PYTEST = frozenset({"pytest", "py.test"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What came of a recorded command.

    Attributes
    ----------
    code : int
        Its exit code; ``128 + n`` where signal n ended it.
    bundles : tuple of Path
        Bundles that it left.
    n_living : int
        Processes that it started and that live on: what they have touched is not complete.
    """

    code: int
    bundles: tuple[Path, ...]
    n_living: int = 0


def is_pytest_command(command: Sequence[str]) -> bool:
    """Whether a command runs pytest: itself, as a module of Python, or by a program that runs others.

    Examples
    --------
    >>> is_pytest_command(["python3", "-X", "dev", "-m", "pytest", "tests"])
    True
    >>> is_pytest_command(["uv", "run", "pytest", "-q"]), is_pytest_command(["env", "A=1", "/bin/pytest"])
    (True, True)
    >>> is_pytest_command(["torchrun", "train.py", "-k", "pytest"]), is_pytest_command(["make", "test"])
    (False, False)
    """
    for place, word in enumerate(command):
        if word == "-m":
            return command[place + 1 : place + 2] in (["pytest"], ["py.test"])
        if PurePath(word).name.removesuffix(".exe") in _PYTEST:
            return True
        if word.endswith(".py"):
            return False
    return False


def run_recorded(
    command: Sequence[str], bundles_dir: Path, *, lane: str | None = None, folder: Path | None = None
) -> Recorded:
    """Run a pytest command with recording on, on the same stdin, stdout and stderr.

    Nothing is added to the command: the plugin, which pytest loads by itself, reads an environment variable,
    and so do workers of pytest-xdist and whatever pytest the command may start in between.

    Parameters
    ----------
    command : sequence of str
        Program and arguments.
    bundles_dir : Path
        Where bundles go; made where missing.
    lane : str, optional
        Name of the environment in place of the detected one.
    folder : Path, optional
        Where to run; the current folder by default.

    Returns
    -------
    Recorded
        Its exit code, which recording does not change, and the bundles.

    Raises
    ------
    UsageError
        If it cannot be started, or does not run pytest.
    """
    if not is_pytest_command(command):
        shown = " ".join(command)[:120] or "no command"
        raise UsageError(
            f"{shown}: does not run pytest by name, and is not named as one test by itself",
            hint="fastci-ml record -- python -m pytest tests; fastci-ml record --id ID -- torchrun train.py",
        )
    before = set(find_bundles([bundles_dir]) if bundles_dir.is_dir() else ())
    try:
        child = subprocess.Popen(command, cwd=folder, env=_environment(os.environ, bundles_dir, lane))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{command[0]}: cannot be started: {error}", hint="fastci-ml record -- pytest"
        ) from error
    with forwarding_signals(child):
        code = child.wait()
    after = find_bundles([bundles_dir]) if bundles_dir.is_dir() else ()
    bundles = tuple(path for path in after if path not in before)
    return Recorded(code=shell_code(code), bundles=bundles, n_living=len(wait_for_stragglers(bundles)))


def _environment(environ: Mapping[str, str], bundles_dir: Path, lane: str | None) -> dict[str, str]:
    changed = {**environ, RECORD_VARIABLE: str(bundles_dir.absolute())}
    # Whoever has it can seal what they like: no code under test may read it.
    changed.pop(KEY_VARIABLE, None)
    if lane is not None:
        changed[LANE_VARIABLE] = lane
    if environ.get(_NO_AUTOLOAD):
        # Then pytest loads what is named and nothing else.
        changed[_PLUGINS] = ",".join(filter(None, (environ.get(_PLUGINS, ""), _PLUGIN)))
    return changed

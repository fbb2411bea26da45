"""How every git command of ours starts, whoever runs it: independent of the target's own configuration.

Standard library only. ``GIT_DIR`` and its kin are honoured, as git itself does: a hook sets them for its own
repository.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from fastci_ml.errors import GitError

# A repository can name programs to run in its configuration; none of them is needed to read it. What cannot
# be switched off without knowing its name (filters, remotes) is in `git.programs`.
SAFE_OPTIONS = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")

ENVIRONMENT = MappingProxyType(
    {
        "GIT_OPTIONAL_LOCKS": "0",  # reading must not make a concurrent `git commit` fail on index.lock
        "GIT_NO_REPLACE_OBJECTS": "1",  # a plan is bound to the tree that the commit names, not to a stand-in
        "GIT_GRAFT_FILE": os.devnull,  # the older way to lie about parents
        "GIT_LITERAL_PATHSPECS": "1",  # a file may be called `*.py`
        # A partial clone fetches what it lacks in the middle of any command, by whatever program the target
        # names for it. Git before 2.45 does not know the first variable; no transport is called "none".
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_TERMINAL_PROMPT": "0",  # CI has nobody to type a password
        "GIT_ASKPASS": "",
        "GIT_DIFF_OPTS": "",  # would overrule -U0
        "LC_ALL": "C",
        "LANGUAGE": "C",
    }
)

# Longer than any status of a large checkout on a cold disk; a hung network mount must not hang the tests.
TIMEOUT_S = 300.0

# What binds git to one repository: inside another (a submodule) it would be asked for the wrong one.
_BINDINGS = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
# A git that is told to end removes its lock files; one that is killed leaves them.
_GRACE_S = 5.0
_MAX_SAID = 600
_HOW_TO_TRUST = re.compile(r"git config --global --add safe\.directory \S.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one git command gave: its exit status, its output, and what it said on the standard error."""

    status: int
    output: bytes
    said: str


def run_git(
    root: Path,
    arguments: Sequence[str],
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] = ENVIRONMENT,
    stdin: bytes = b"",
    timeout_s: float = TIMEOUT_S,
    is_other_repository: bool = False,
) -> Answer:
    """Run git in a folder, and never longer than told.

    Parameters
    ----------
    root : Path
        Where.
    arguments : sequence of str
        The command and its arguments.
    options : sequence of str
        Further options of git itself, after `SAFE_OPTIONS`.
    environment : mapping
        What differs from the environment of this process.
    stdin : bytes
        What it reads.
    timeout_s : float
        After this time it and whatever it started are ended, and status -15 is the answer.
    is_other_repository : bool
        Whether `root` is not what ``GIT_DIR`` and its kin, where they are set, speak of.

    Raises
    ------
    GitError
        If there is no git program, or the system cannot start it.
    """
    inherited = {
        name: value for name, value in os.environ.items() if not is_other_repository or name not in _BINDINGS
    }
    try:
        with (
            subprocess.Popen(
                ["git", *SAFE_OPTIONS, *options, *arguments],
                cwd=root,
                env={**inherited, **environment},
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # A session of its own has no terminal where ssh could ask, and can be ended as a whole.
                start_new_session=True,
            ) as process,
            _ended(process),
        ):
            output, said = process.communicate(stdin or None, timeout=timeout_s)
    except FileNotFoundError as error:
        raise GitError(f"{root}: cannot run git there: {error}", hint="git --version") from error
    except subprocess.TimeoutExpired:
        return Answer(status=-signal.SIGTERM, output=b"", said=f"no answer within {timeout_s:.3g} s")
    except OSError as error:
        raise GitError(f"{root}: git {arguments[0]} failed: {error}", hint="git status") from error
    return Answer(status=process.returncode, output=output, said=said.decode("utf-8", "backslashreplace"))


def complaint(said: str, status: int) -> str:
    r"""What a failed git has to say, in few words: its errors, without its warnings and advice.

    Examples
    --------
    >>> complaint("warning: odd\nfatal: bad object x\n\nTry this\n", 128)
    'bad object x'
    >>> complaint("", 128)
    'exit code 128'
    """
    lines = [line for line in said.splitlines() if line.strip()]
    errors: list[str] = []
    is_error = False
    for line in lines:
        # Names that an error lists stand below it, indented.
        is_more = is_error and line[0].isspace()
        is_error = line.startswith(("fatal: ", "error: ")) or is_more
        if is_more:
            errors[-1] += f" {line.strip()}"
        elif is_error:
            errors.append(line.partition(": ")[2].strip())
    text = "; ".join(dict.fromkeys(errors)) or " ".join(lines[-3:]) or f"exit code {status}"
    return text if len(text) <= _MAX_SAID else text[:_MAX_SAID] + "..."


def failure(root: Path, command: str, status: int, said: str) -> GitError:
    """Error for a git command that failed, with what git itself advises to type where it refuses."""
    advised = _HOW_TO_TRUST.search(said)
    hint = advised[0].strip() if advised else f"git -C {root} status"
    return GitError(f"{root}: git {command}: {complaint(said, status)}", hint=hint)


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave nothing of the process running when its time is up or we are interrupted."""
    try:
        yield
    except BaseException:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            deadline_s = time.monotonic() + _GRACE_S
            while process.poll() is None and time.monotonic() < deadline_s:
                time.sleep(0.01)
        raise

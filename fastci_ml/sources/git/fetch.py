"""Fetch commits that a clone lacks: bounded, one process at a time, and without a trace but the commits.

No ref, no FETCH_HEAD, no tag and no submodule is changed, nobody is asked for a password, and no program that
the target configures is run. A clone that was shallow stays so, with a longer history.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fastci_ml.errors import GitError
from fastci_ml.sources.git.commands import complaint, run_git
from fastci_ml.sources.git.programs import Programs, read_programs
from fastci_ml.sources.git.reader import GitReader

try:
    import fcntl
except ImportError:  # pragma: no cover  Windows has other locks; there a shallow clone stays as it is
    fcntl = None  # type: ignore[assignment]

LOCK_NAME = "fastci-fetch.lock"

_OPTIONS = (
    "--no-tags",
    "--no-write-fetch-head",
    "--no-recurse-submodules",
    "--no-auto-gc",
    "--no-prune",
    "--no-progress",
    "--refmap=",  # or what is asked for by name would move the remote's branch here as well
    "--upload-pack=git-upload-pack",
)
# Another git that writes the list of shallow commits, or has just written it.
_BUSY = re.compile(r"shallow\.lock|shallow file has changed")
_BUSY_WAIT_S = 20.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much may be fetched to learn what a change is.

    Attributes
    ----------
    n_commits : int
        Commits by which each line of a shallow history may grow; 0 forbids to fetch anything.
    timeout_s : float
        Seconds for all of it, waiting for others included.
    """

    n_commits: int = 1050
    timeout_s: float = 120.0


class FetchError(GitError):
    """A remote did not give what was asked for; the message says why."""


@dataclass(slots=True)
class Fetcher:
    """Fetches from one remote into one repository.

    Parameters
    ----------
    reader : GitReader
        The repository.
    limits : FetchLimits
        How much; the time counts from now on.
    """

    reader: GitReader
    limits: FetchLimits
    _deadline_s: float = field(init=False)
    _known_programs: Programs | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Start the clock."""
        self._deadline_s = time.monotonic() + self.limits.timeout_s

    @property
    def _programs(self) -> Programs:
        """What the configuration names; most who could fetch never have to."""
        if self._known_programs is None:
            self._known_programs = read_programs(self.reader.root)
        return self._known_programs

    @property
    def is_partial(self) -> bool:
        """Whether the clone left out objects on purpose, to be fetched when needed."""
        return bool(self._programs.promisors)

    def remote(self, base: str) -> str:
        """Name of the remote to ask: the one that `base` names, that of the branch, ``origin``, the only one.

        Raises
        ------
        FetchError
            If there is none, or no telling which.
        """
        remotes = self._programs.remotes
        short = base.removeprefix("refs/remotes/")
        named = [name for name in remotes if short.startswith(f"{name}/")]
        if named:
            return max(named, key=len)
        head = run_git(self.reader.root, ("symbolic-ref", "--quiet", "--short", "HEAD"))
        branch = head.output.decode("utf-8", "surrogateescape").strip()
        tracked = run_git(self.reader.root, ("config", "--get", f"branch.{branch}.remote"))
        of_branch = tracked.output.decode("utf-8", "surrogateescape").strip()
        candidates: list[str] = [of_branch, "origin", *(remotes if len(remotes) == 1 else ())]
        for name in candidates:
            if name in remotes:
                return name
        what = f"several remotes ({', '.join(remotes)}) and no origin" if remotes else "no remote"
        raise FetchError(f"{self.reader.root}: the repository has {what}", hint="git remote add origin URL")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Let one process fetch at a time; the others wait, and should look again before they fetch.

        The system lets go of the lock of a process that dies.

        Raises
        ------
        FetchError
            If the others take too long, or the repository cannot be written to.
        """
        path = self.reader.git_dir / LOCK_NAME
        if fcntl is None:  # pragma: no cover
            raise FetchError(f"{path}: cannot be locked on this system", hint="git fetch --unshallow")
        with contextlib.ExitStack() as stack:
            try:
                descriptor = stack.enter_context(path.open("ab")).fileno()
                while not _try_lock(descriptor):
                    if time.monotonic() > self._deadline_s:
                        raise FetchError(
                            f"{path}: another process has held it for {self.limits.timeout_s:.3g} s",
                            hint="git fetch --unshallow",
                        )
                    time.sleep(_POLL_S)
            except OSError as error:
                raise FetchError(
                    f"{path}: cannot be locked: {error}", hint="git fetch --unshallow"
                ) from error
            yield

    def fetch(self, remote: str, wants: Sequence[str], *options: str) -> None:
        """Fetch objects by their ids, or refs by their names.

        Raises
        ------
        FetchError
            If the remote does not answer, or refuses.
        """
        self._ask(remote, "fetch", *_OPTIONS, *options, "--", remote, *wants)

    def find(self, remote: str, name: str) -> str | None:
        """Commit that a remote's branch or tag is at; None where it has none of this name.

        Raises
        ------
        FetchError
            If the remote does not answer.
        """
        short = name.removeprefix("refs/remotes/").removeprefix(f"{remote}/")
        names = (f"refs/heads/{short}", f"refs/tags/{short}^{{}}", f"refs/tags/{short}", name)
        listed = self._ask(remote, "ls-remote", "--upload-pack=git-upload-pack", "--", remote, *names)
        found: dict[str, str] = {}
        for line in listed.splitlines():
            sha, _, ref = line.partition("\t")
            found[ref] = sha
        return next((found[known] for known in names if known in found), None)

    def read(self, *arguments: str) -> bytes:
        """Output of a command that may fetch objects which a partial clone left out.

        Raises
        ------
        FetchError
            If it fails.
        """
        return self._run(*arguments)

    def _ask(self, remote: str, *arguments: str) -> str:
        """Output of a command; while another git writes the list of shallow commits, try again."""
        busy_until_s = min(self._deadline_s, time.monotonic() + _BUSY_WAIT_S)
        busy: FetchError | None = None
        while True:
            try:
                return self._run(*arguments).decode("utf-8", "surrogateescape")
            except FetchError as error:
                # What it waited for in vain says more than that the time is over.
                busy = error if _BUSY.search(str(error)) else None if busy is None else busy
                if busy is None or time.monotonic() > busy_until_s:
                    raise self._explained(busy or error, remote) from error
            time.sleep(_POLL_S)

    def _explained(self, error: FetchError, remote: str) -> FetchError:
        """The error, with what the repository wanted to be run for this remote and was not."""
        names = ("core.", "credential.", f"remote.{remote}.")
        ignored = ", ".join(key for key in self._programs.own if key.startswith(names))
        note = f" (not run, since the repository itself names it: {ignored})" if ignored else ""
        return FetchError(f"{error}{note}", hint=error.hint)

    def _run(self, *arguments: str) -> bytes:
        if self._programs.lazy_programs:
            # Any command may fetch a content in passing, and git would run that program.
            keys = ", ".join(self._programs.lazy_programs)
            raise FetchError(
                f"the partial clone names a program of its own, which is not run: {keys}",
                hint=f"git config --unset {self._programs.lazy_programs[0]}",
            )
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise FetchError(
                f"git {arguments[0]}: the time of {self.limits.timeout_s:.3g} s is over",
                hint="git fetch --unshallow",
            )
        answer = run_git(
            self.reader.root,
            arguments,
            options=self._programs.transport_options(),
            environment=self._programs.transport_environment(),
            timeout_s=left_s,
        )
        if answer.status:
            raise FetchError(
                f"git {arguments[0]}: {complaint(answer.said, answer.status)}",
                hint=f"git -C {self.reader.root} fetch",
            )
        return answer.output


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

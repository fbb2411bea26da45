"""Programs that a repository's own configuration names, and the options by which git runs none of them.

Most are switched off for every command (`git.commands`). Filters, helpers and transports have names of their
own, so they have to be asked for first. What the user or the machine configures, or the environment names, is
not the target's, and stays: CI hands over its credentials in this way. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fastci_ml.errors import GitError
from fastci_ml.sources.git.commands import ENVIRONMENT, failure, run_git

# `file` is a clone of a local path. What needs a helper program (`ext`) is left out, as git does by default.
_PROTOCOLS = frozenset({"file", "git", "http", "https", "ssh"})
_OWN_SCOPES = frozenset({"local", "worktree"})
_NO = frozenset({"false", "no", "off", "0"})
# ssh would wait for a passphrase or for a yes to a host key otherwise.
_SSH_COMMAND = "ssh -oBatchMode=yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """What the configuration names.

    Attributes
    ----------
    filters : tuple of str
        Names of the content filters, whoever configures them: a filter of the user's own reads settings of
        the target in turn (git-lfs does).
    remotes : tuple of str
        Names of the remotes.
    promisors : tuple of str
        Those that owe objects to a partial clone.
    helpers : tuple of (str, str)
        Key and value of each credential helper that is not the target's own.
    ssh_command : str
        What connects by ssh, unless the target names it; empty for git's default.
    own : tuple of str
        Keys by which the target itself names a program for its transports; they are not obeyed.
    """

    filters: tuple[str, ...] = ()
    remotes: tuple[str, ...] = ()
    promisors: tuple[str, ...] = ()
    helpers: tuple[tuple[str, str], ...] = ()
    ssh_command: str = ""
    own: tuple[str, ...] = ()

    def filter_options(self) -> tuple[str, ...]:
        """Options of git by which no filter is run: content is compared as it is.

        Raises
        ------
        GitError
            If a filter cannot be switched off, for its name.

        Examples
        --------
        >>> Programs(filters=("lfs",)).filter_options()[:4]
        ('-c', 'filter.lfs.clean=', '-c', 'filter.lfs.smudge=')
        """
        settings = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
        return _options((f"filter.{name}.{key}", value) for name in self.filters for key, value in settings)

    def transport_options(self) -> tuple[str, ...]:
        """Options of git by which a fetch runs no program of the target, and does not tidy up either.

        A remote's own ``uploadpack`` is not among what they overrule: of several values git takes the first.
        `git fetch --upload-pack` does, and what a partial clone fetches by itself has to be asked for only
        where `lazy_programs` is empty.
        """
        settings = [
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
            ("fetch.writeCommitGraph", "false"),
            ("core.alternateRefsCommand", "true"),  # the program of that name: it lists no refs
            ("credential.helper", ""),  # forgets those named before
            *self.helpers,
        ]
        return _options(settings)

    @property
    def lazy_programs(self) -> tuple[str, ...]:
        """Keys of the target by which the fetches of a partial clone run a program of its own."""
        keys = {f"remote.{name}.{variable}" for name in self.promisors for variable in ("uploadpack", "vcs")}
        return tuple(key for key in self.own if key in keys)

    def transport_environment(self) -> dict[str, str]:
        """Environment for a fetch: the usual protocols, and nobody is asked for anything."""
        allowed = os.environ.get("GIT_ALLOW_PROTOCOL")
        protocols = _PROTOCOLS if allowed is None else _PROTOCOLS & set(allowed.split(":"))
        environment = {
            **ENVIRONMENT,
            "GIT_ALLOW_PROTOCOL": ":".join(sorted(protocols)) or "none",
            "GIT_NO_LAZY_FETCH": "0",
            # The first value wins, and this one, though empty, comes before the configuration's.
            "GIT_PROXY_COMMAND": os.environ.get("GIT_PROXY_COMMAND", ""),
            "SSH_ASKPASS": "",
            "SSH_ASKPASS_REQUIRE": "never",
            "GCM_INTERACTIVE": "never",
        }
        if "GIT_SSH_COMMAND" not in os.environ and "GIT_SSH" not in os.environ:
            environment["GIT_SSH_COMMAND"] = self.ssh_command or _SSH_COMMAND
        return environment


class _Entry(NamedTuple):
    """One line of the configuration: ``section.name.variable``, the name as it is, the others lower case."""

    is_own: bool
    key: str
    value: str
    section: str
    name: str
    variable: str

    @classmethod
    def parse(cls, scope: str, text: str) -> _Entry:
        key, _, value = text.partition("\n")
        section, _, rest = key.partition(".")
        name, _, variable = rest.rpartition(".")
        return cls(scope in _OWN_SCOPES, key, value, section, name, variable)

    @property
    def is_transport_program(self) -> bool:
        """Whether the value is a program that some transport would run."""
        if self.section == "core":
            return self.variable in ("sshcommand", "gitproxy", "askpass", "alternaterefscommand")
        if self.section == "remote":
            return self.variable in ("uploadpack", "vcs")
        return self.section == "credential" and self.variable == "helper"


def read_programs(root: Path, *, is_other_repository: bool = False) -> Programs:
    """Ask git what its configuration at `root` names, files that it includes as well.

    Raises
    ------
    GitError
        If git fails.
    """
    arguments = ("config", "--list", "--show-scope", "--includes", "-z")
    answer = run_git(root, arguments, is_other_repository=is_other_repository)
    if answer.status:
        raise failure(root, "config", answer.status, answer.said)
    words = answer.output.decode("utf-8", "surrogateescape").split("\0")
    entries = [_Entry.parse(scope, text) for scope, text in zip(words[0::2], words[1::2], strict=False)]
    remotes = [entry for entry in entries if entry.section == "remote" and entry.name]
    programs = [entry for entry in entries if entry.is_transport_program]
    granted = [entry for entry in programs if not entry.is_own]
    return Programs(
        filters=_once(entry.name for entry in entries if entry.section == "filter" and entry.name),
        remotes=_once(entry.name for entry in remotes),
        promisors=_once(
            entry.name
            for entry in remotes
            if entry.variable == "partialclonefilter"
            or (entry.variable == "promisor" and entry.value.lower() not in _NO)
        ),
        helpers=tuple(
            (entry.key, entry.value)
            for entry in granted
            # One that cannot be given back is lost: the fetch may fail, nothing worse.
            if entry.variable == "helper" and "=" not in entry.key
        ),
        ssh_command=next((entry.value for entry in granted[::-1] if entry.variable == "sshcommand"), ""),
        own=_once(entry.key for entry in programs if entry.is_own),
    )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _options(settings: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    words = []
    for key, value in settings:
        if "=" in key:
            # Git would split it at the first "=", and overrule another setting than this one.
            raise GitError(
                f"git setting {key!r} cannot be overruled for the '=' in it, and may name a program to run",
                hint=f"git config --show-origin --get-all '{key}'",
            )
        words += ["-c", f"{key}={value}"]
    return tuple(words)

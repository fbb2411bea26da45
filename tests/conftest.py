"""What tests of every layer share: real git repositories with fixed dates, patience of Hypothesis."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code. CI draws the same examples every time; other runs look for new ones.
settings.register_profile(
    "fastci",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fastci")

_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A U Thor",
    "GIT_AUTHOR_EMAIL": "author@example.org",
    "GIT_COMMITTER_NAME": "A U Thor",
    "GIT_COMMITTER_EMAIL": "author@example.org",
}
_FIRST_COMMIT_S = 1_700_000_000


@dataclass
class GitRepo:
    """A repository on branch `main` whose shas are the same in every run: one minute between commits."""

    root: Path
    n_commits: int = 0

    def git(self, *arguments: str | bytes) -> str:
        """Run git there; surrogates stand for bytes that are not UTF-8."""
        done = subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True)
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def write(self, path: str, content: str | bytes) -> Path:
        """Write a file and make its folders."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def commit(self, message: str = "change") -> str:
        """Commit everything that lies there; the sha."""
        self.git("add", "--all")
        return self._commit("commit", "--quiet", "--allow-empty", "--message", message)

    def merge(self, branch: str) -> str:
        """Merge without fast-forward; the sha."""
        return self._commit("merge", "--quiet", "--no-ff", "--message", f"merge {branch}", branch)

    def _commit(self, *arguments: str) -> str:
        date = f"{_FIRST_COMMIT_S + 60 * self.n_commits} +0000"
        environment = {**os.environ, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True, env=environment)
        self.n_commits += 1
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def make_repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., GitRepo]:
    """Make an empty repository in `tmp_path`; neither the user's settings nor a surrounding hook reach it."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for name, value in _ENVIRONMENT.items():
        monkeypatch.setenv(name, value)

    def make(name: str = "repo") -> GitRepo:
        root = tmp_path / name
        root.mkdir()
        repo = GitRepo(root)
        repo.git("init", "--quiet", "--initial-branch=main")
        return repo

    return make

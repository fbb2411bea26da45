"""A repository whose configuration names a program wherever git would run one: none of ours lets it.

Each trap writes a witness file. The first test shows that each of them works where nobody guards against it.
"""

from __future__ import annotations

import http.server
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastci_ml.errors import GitError
from fastci_ml.planning.change import read_change
from fastci_ml.sources.git.comparison import UnknownChangeError
from fastci_ml.sources.git.fetch import FetchLimits
from fastci_ml.sources.git.programs import read_programs
from fastci_ml.sources.git.repository import Repository
from fastci_ml.sources.git.worktree import read_worktree

HOOKS = ("reference-transaction", "post-checkout", "post-index-change", "pre-auto-gc", "post-rewrite")


class Traps:
    """Programs that tell who was run, each by a file of its own name."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.sprung_in = folder / "sprung"
        self.sprung_in.mkdir()

    def program(self, name: str) -> str:
        path = self.folder / name
        # Whatever it was asked for, it does not do it, and reads all that it is sent.
        path.write_text(f"#!/bin/sh\n: > '{self.sprung_in}/{name}'\nexit 1\n")
        path.chmod(0o755)
        return str(path)

    def sprung(self) -> set[str]:
        """Names of those that were run, and forget them."""
        found = {path.name for path in self.sprung_in.iterdir()}
        for path in self.sprung_in.iterdir():
            path.unlink()
        return found

    def settings(self) -> dict[str, str]:
        """What a repository can set to name a program, or to have one run."""
        return {
            "core.fsmonitor": self.program("fsmonitor"),
            "core.hooksPath": str(self.hooks()),
            "core.pager": self.program("pager"),
            "core.editor": self.program("editor"),
            "core.sshCommand": self.program("ssh"),
            "core.gitProxy": self.program("gitproxy"),
            "core.askPass": self.program("askpass"),
            "core.alternateRefsCommand": self.program("alternaterefs"),
            "credential.helper": self.program("credential"),
            "credential.http://127.0.0.1.helper": self.program("credential-url"),
            "diff.external": self.program("external"),
            "diff.evil.command": self.program("command"),
            "diff.evil.textconv": self.program("textconv"),
            "merge.evil.driver": self.program("merge"),
            "filter.evil.clean": self.program("clean"),
            "filter.evil.smudge": self.program("smudge"),
            "filter.evil.required": "true",
            "filter.long.process": self.program("process"),
            "filter.lfs.clean": self.program("lfs-clean"),
            "filter.lfs.process": self.program("lfs-process"),
            "gpg.program": self.program("gpg"),
            "log.showSignature": "true",
            "status.submoduleSummary": "true",
            "diff.submodule": "log",
            "uploadpack.packObjectsHook": self.program("packobjects"),
            "protocol.ext.allow": "always",
            "protocol.allow": "always",
            "gc.auto": "1",
            "fetch.recurseSubmodules": "true",
            "alias.diff-tree": f"!{self.program('alias')}",
            "alias.fetch": f"!{self.program('alias')}",
            "sequence.editor": self.program("sequence"),
            "interactive.diffFilter": self.program("difffilter"),
            "submodule.sub.update": f"!{self.program('update')}",
            "trace2.eventTarget": str(self.sprung_in / "trace"),
            "core.gitproxy.command": self.program("gitproxy2"),
        }

    def hooks(self) -> Path:
        folder = self.folder / "hooks"
        if not folder.is_dir():
            folder.mkdir()
            for name in HOOKS:
                (folder / name).write_text(f"#!/bin/sh\n: > '{self.sprung_in}/{name}'\n")
                (folder / name).chmod(0o755)
        return folder

    def set_in(self, root: Path) -> None:
        """Into a file that the repository includes: the words are the repository's own all the same."""
        for key, value in self.settings().items():
            subprocess.run(["git", "config", "-f", str(root / "evil.config"), key, value], check=True)
        subprocess.run(["git", "config", "include.path", str(root / "evil.config")], cwd=root, check=True)


ATTRIBUTES = "*.txt diff=evil filter=evil merge=evil\n*.dat filter=long\n*.bin filter=lfs diff=evil\n"


@pytest.fixture
def traps(tmp_path) -> Traps:
    return Traps(tmp_path / "traps")


@pytest.fixture
def repo(make_repo):
    """Files under every filter, and a submodule with such files of its own."""
    inner = make_repo("inner")
    inner.write(".gitattributes", ATTRIBUTES)
    for name in ("a.txt", "b.dat"):
        inner.write(name, "x\n")
    inner.commit()
    inner.write("a.txt", "y\n")
    inner.commit()
    repo = make_repo()
    repo.write(".gitattributes", ATTRIBUTES)
    for name in ("a.txt", "b.dat", "c.bin"):
        repo.write(name, "x\n")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.root), "sub")
    repo.git("-C", "sub", "checkout", "-q", "HEAD~1")
    repo.commit()
    for name in ("a.txt", "b.dat", "c.bin"):
        repo.write(name, "y\n")
    repo.git("-C", "sub", "checkout", "-q", "main")
    repo.commit()
    return repo


def make_stale(*files: Path) -> None:
    """Let git distrust what it knows of the files, so that it looks at their contents."""
    for file in files:
        os.utime(file, ns=(0, 1))


def run_all(root: Path) -> None:
    """Everything of ours that asks git about a repository."""
    with Repository(root) as source:
        change = source.changes("HEAD~1", "HEAD")
        assert [file.path for file in change.files][:4] == ["a.txt", "b.dat", "c.bin", "sub"]
        for file in change.files:
            source.hunks(change, file)
        source.merge_base("HEAD~1", "HEAD")
        source.paths("HEAD")
        list(source.commit_changes(["HEAD", "HEAD~1"]))
        read_change(source, "HEAD~1", "HEAD", limits=FetchLimits())
    read_worktree(root)


def test_each_trap_works_where_nobody_guards(repo, traps, tmp_path):
    traps.set_in(repo.root)
    traps.sprung()

    def expect(*names: str, command: tuple[str, ...]) -> None:
        subprocess.run(["git", *command], cwd=repo.root, check=False, capture_output=True, timeout=60)
        assert set(names) <= traps.sprung(), (names, command)

    make_stale(repo.root / "a.txt", repo.root / "b.dat", repo.root / "c.bin")
    repo.git("config", "filter.evil.required", "false")  # or the first that fails would be the last
    expect("fsmonitor", "clean", command=("status",))
    expect("process", command=("hash-object", "--path=b.dat", "b.dat"))
    expect("lfs-process", command=("hash-object", "--path=c.bin", "c.bin"))
    # Without the filters, whose failure could come before what is looked for.
    plain = read_programs(repo.root).filter_options()
    expect("external", command=(*plain, "diff", "HEAD~1", "HEAD", "--", "b.dat"))
    expect("command", command=(*plain, "diff", "HEAD~1", "HEAD", "--", "a.txt"))
    expect("textconv", command=(*plain, "diff", "--no-ext-diff", "HEAD~1", "HEAD", "--", "a.txt"))
    expect("reference-transaction", command=("update-ref", "refs/x", "HEAD"))
    expect("ssh", command=("ls-remote", "ssh://example.invalid/x"))
    expect("gitproxy", command=("ls-remote", "git://example.invalid/x"))
    (repo.root / ".git" / "objects" / "info" / "alternates").write_text(f"{tmp_path}/inner/.git/objects\n")
    expect("alternaterefs", command=("fetch", f"file://{tmp_path}/inner"))


def test_nothing_that_the_repository_names_is_run_by_reading_it(repo, traps):
    """Traps in the repository and in its submodule, whose files git has to look into."""
    traps.set_in(repo.root)
    traps.set_in(repo.root / "sub")
    make_stale(*(repo.root / name for name in ("a.txt", "b.dat", "c.bin", "sub/a.txt", "sub/b.dat")))
    traps.sprung()
    run_all(repo.root)
    assert traps.sprung() == set()


def test_worktree_under_filters_is_as_dirty_as_its_bytes(repo, traps):
    traps.set_in(repo.root)
    traps.set_in(repo.root / "sub")
    files = [repo.root / name for name in ("a.txt", "b.dat", "sub/a.txt", "sub/b.dat")]
    make_stale(*files)
    assert not read_worktree(repo.root).is_dirty
    for file in files:
        before = file.read_bytes()
        file.write_bytes(b"z\n")
        assert read_worktree(repo.root).is_dirty, file
        file.write_bytes(before)
    assert not read_worktree(repo.root).is_dirty
    assert traps.sprung() == set()


def test_filter_whose_name_cannot_be_overruled_is_refused_by_name(repo, traps):
    repo.git("config", "filter.a=b.clean", traps.program("clean"))
    repo.write(".gitattributes", "*.txt filter=a=b\n")
    with pytest.raises(GitError, match=r"filter\.a=b\.clean") as caught:
        read_worktree(repo.root)
    assert caught.value.hint
    assert traps.sprung() == set()


# --- fetching -----------------------------------------------------------------------------------------------


def shallow_clone(repo, *options: str) -> tuple[Path, str]:
    base = repo.git("rev-parse", "HEAD~1")
    root = repo.root.parent / "clone"
    repo.git("clone", "-q", "--depth=1", *options, f"file://{repo.root}", str(root))
    return root, base


def test_deepening_runs_nothing_that_the_repository_or_its_remote_names(repo, traps):
    root, base = shallow_clone(repo)
    traps.set_in(root)
    traps.set_in(repo.root)  # the remote is hostile as well
    config = {
        "remote.origin.uploadpack": traps.program("uploadpack"),
        "remote.origin.receivepack": traps.program("receivepack"),
    }
    for key, value in config.items():
        subprocess.run(["git", "config", key, value], cwd=root, check=True)
    (root / ".git" / "objects" / "info" / "alternates").write_text(f"{repo.root}/.git/modules/sub/objects\n")
    traps.sprung()
    with Repository(root) as source:
        change = read_change(source, base, "HEAD", limits=FetchLimits())
    assert change.is_known
    assert change.change_set.base == base
    assert traps.sprung() == set()
    subprocess.run(["git", "fetch", "origin"], cwd=root, check=False, capture_output=True)
    assert "uploadpack" in traps.sprung()


def test_contents_of_a_partial_clone_come_without_the_repositorys_programs(repo, traps):
    repo.git("config", "uploadpack.allowFilter", "true")
    base = repo.git("rev-parse", "HEAD~1")
    root = repo.root.parent / "clone"
    repo.git("clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{repo.root}", str(root))
    traps.set_in(root)
    traps.sprung()
    with Repository(root) as source:
        assert "contents are missing" in source.changes(base, "HEAD").notes[0], "without leave nothing comes"
        assert traps.sprung() == set()
        change = source.changes(base, "HEAD", limits=FetchLimits())
    assert [file.n_added for file in change.files[:3]] == [1, 1, 1]
    assert traps.sprung() == set()


@pytest.mark.parametrize("scope", ["--local", "--worktree"])
def test_partial_clone_that_names_a_program_for_its_fetches_gets_no_contents(repo, traps, scope):
    """Of several values git takes the first, so that none of ours could overrule it."""
    repo.git("config", "uploadpack.allowFilter", "true")
    base = repo.git("rev-parse", "HEAD~1")
    root = repo.root.parent / "clone"
    repo.git("clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{repo.root}", str(root))
    subprocess.run(["git", "config", "extensions.worktreeConfig", "true"], cwd=root, check=True)
    command = ["git", "config", scope, "remote.origin.uploadpack", traps.program("uploadpack")]
    subprocess.run(command, cwd=root, check=True)
    change = Repository(root).changes(base, "HEAD", limits=FetchLimits())
    assert [file.path for file in change.files] == ["a.txt", "b.dat", "c.bin", "sub"]
    assert "remote.origin.uploadpack" in change.notes[0]
    assert traps.sprung() == set()
    subprocess.run(["git", "diff-tree", "-p", base, "HEAD"], cwd=root, check=False, capture_output=True)
    assert traps.sprung() == {"uploadpack"}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"remote.origin.url": "ext::sh -c {trap}"}, "not allowed"),
        ({"remote.origin.url": "x:y", "url.ext::sh -c {trap} #.insteadOf": "x:"}, "not allowed"),
        ({"remote.origin.vcs": "evil"}, "not allowed"),
        ({"remote.origin.url": "ssh://example.invalid/x", "core.sshCommand": "{trap}"}, "core.sshcommand"),
        ({"remote.origin.url": "git://127.0.0.1:1/x", "core.gitProxy": "{trap}"}, "core.gitproxy"),
    ],
    ids=["ext", "rewritten to ext", "remote helper", "ssh", "git proxy"],
)
def test_transport_that_is_a_program_of_the_repository_is_a_reason(repo, traps, settings, named):
    root, base = shallow_clone(repo)
    trap = traps.program("trap")
    subprocess.run(["git", "config", "protocol.allow", "always"], cwd=root, check=True)
    for key, value in settings.items():
        command = ["git", "config", key.format(trap=trap), value.format(trap=trap)]
        subprocess.run(command, cwd=root, check=True)
    helper = traps.folder / "git-remote-evil"
    helper.write_text(Path(trap).read_text())
    helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
    monkey = {**os.environ, "PATH": f"{traps.folder}:{os.environ['PATH']}"}
    subprocess.run(["git", "ls-remote", "origin"], cwd=root, env=monkey, check=False, capture_output=True)
    assert traps.sprung(), "the trap works where nobody guards against it"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", monkey["PATH"])
        with pytest.raises(UnknownChangeError, match=named) as caught:
            Repository(root).changes(base, "HEAD", limits=FetchLimits(timeout_s=20.0))
    assert caught.value.code == "unknown_base"
    assert traps.sprung() == set()


@pytest.fixture
def asking_server() -> Iterator[str]:
    """A server that wants a password of everybody."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_password_is_asked_of_nobody_but_of_helpers_that_are_not_the_repositorys(
    repo, traps, asking_server, tmp_path, monkeypatch
):
    root, base = shallow_clone(repo)
    for key, name in {
        "credential.helper": "credential",
        f"credential.{asking_server}.helper": "credential-url",
        "core.askPass": "askpass",
    }.items():
        subprocess.run(["git", "config", key, traps.program(name)], cwd=root, check=True)
    subprocess.run(["git", "remote", "set-url", "origin", f"{asking_server}/x.git"], cwd=root, check=True)
    subprocess.run(["git", "ls-remote", "origin"], cwd=root, check=False, capture_output=True)
    assert traps.sprung() == {"credential", "credential-url", "askpass"}, "the traps work"

    monkeypatch.setenv("SSH_ASKPASS", traps.program("ssh-askpass"))
    with pytest.raises(UnknownChangeError, match=r"credential\.helper"):
        Repository(root).changes(base, "HEAD", limits=FetchLimits(timeout_s=20.0))
    assert traps.sprung() == set()

    # The user's own helper is asked: CI hands over its credentials so.
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "global.config"))
    (tmp_path / "global.config").write_text(f"[credential]\n\thelper = {traps.program('granted')}\n")
    with pytest.raises(UnknownChangeError):
        Repository(root).changes(base, "HEAD", limits=FetchLimits(timeout_s=20.0))
    assert traps.sprung() == {"granted"}


def test_programs_that_the_user_or_the_environment_names_stay(repo, traps, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "global.config"))
    (tmp_path / "global.config").write_text("[core]\n\tsshCommand = ssh -i key\n")
    repo.git("config", "core.sshCommand", traps.program("ssh"))
    programs = read_programs(repo.root)
    assert programs.ssh_command == "ssh -i key"
    assert programs.transport_environment()["GIT_SSH_COMMAND"] == "ssh -i key"
    assert programs.own == ("core.sshcommand",)
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -i other")
    assert "GIT_SSH_COMMAND" not in programs.transport_environment()
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "https:ext")
    assert programs.transport_environment()["GIT_ALLOW_PROTOCOL"] == "https"


def test_extension_that_git_does_not_know_is_refused_by_name(repo):
    repo.git("config", "core.repositoryFormatVersion", "1")
    repo.git("config", "extensions.evil", "true")
    with pytest.raises(GitError, match="evil"):
        Repository(repo.root)
    with pytest.raises(GitError, match="evil"):
        read_worktree(repo.root)


def test_checkout_of_another_owner_is_refused_with_what_to_type(repo, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    for ask in (Repository, read_worktree):
        with pytest.raises(GitError, match="dubious ownership") as caught:
            ask(repo.root)
        assert caught.value.hint == f"git config --global --add safe.directory {repo.root}"


def test_settings_per_worktree_are_the_repositorys_own(repo, traps):
    repo.git("config", "extensions.worktreeConfig", "true")
    repo.git("config", "--worktree", "filter.evil.clean", traps.program("clean"))
    repo.git("config", "--worktree", "core.sshCommand", traps.program("ssh"))
    make_stale(repo.root / "a.txt")
    assert not read_worktree(repo.root).is_dirty
    assert read_programs(repo.root).own == ("core.sshcommand",)
    assert traps.sprung() == set()

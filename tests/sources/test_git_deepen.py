"""Clones as a CI makes them: shallow, of one branch, partial, with remotes that refuse, beside other gits."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fastci_ml.sources.git.comparison import UnknownChangeError
from fastci_ml.sources.git.fetch import LOCK_NAME, FetchLimits
from fastci_ml.sources.git.repository import Repository

LIMITS = FetchLimits(timeout_s=60.0)


class Upstream:
    """A repository whose `main` is long, with a topic branch that left it some commits ago."""

    def __init__(self, repo, n_main: int = 30, n_topic: int = 5, n_since: int = 5) -> None:
        self.repo = repo
        lines = ["commit refs/heads/main", *self._commit("trunk/0.txt", "first")]
        for i in range(1, n_main):
            lines += ["commit refs/heads/main", *self._commit(f"trunk/{i % 7}.txt", str(i))]
        lines += ["reset refs/heads/topic", "from refs/heads/main", ""]
        for i in range(n_topic):
            lines += ["commit refs/heads/topic", *self._commit(f"topics/{i}.py", str(i))]
        for i in range(n_since):
            lines += ["commit refs/heads/main", *self._commit(f"trunk/{i % 7}.txt", f"late {i}")]
        stream = "\n".join([*lines, ""]).encode()
        subprocess.run(["git", "fast-import", "--quiet"], cwd=repo.root, check=True, input=stream)
        repo.git("reset", "-q", "--hard", "main")
        self.main = repo.git("rev-list", "--reverse", "main").split()
        self.topic = repo.git("rev-list", "--reverse", "main..topic").split()
        self.fork = repo.git("merge-base", "main", "topic")

    def _commit(self, path: str, text: str) -> list[str]:
        self.repo.n_commits += 1
        date = f"{1_700_000_000 + 60 * self.repo.n_commits} +0000"
        return [
            f"committer A U Thor <author@example.org> {date}",
            "data 1",
            "c",
            f"M 644 inline {path}",
            f"data {len(text) + 1}",
            text,
            "",
        ]

    @property
    def url(self) -> str:
        return f"file://{self.repo.root}"

    def clone(self, *options: str, name: str = "clone") -> Path:
        root = self.repo.root.parent / name
        self.repo.git("clone", "-q", *options, self.url, str(root))
        return root


@pytest.fixture
def upstream(make_repo) -> Upstream:
    return Upstream(make_repo("upstream"))


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def paths(change) -> list[str]:
    return [file.path for file in change.files]


TOPIC = [f"topics/{i}.py" for i in range(5)]


# --- case 39: what CI checks out ----------------------------------------------------------------------------


def test_depth_one_learns_the_parent_it_is_compared_with(upstream):
    """case 39 as written: `clone --depth 1`, and the difference from the parent's sha."""
    root = upstream.clone("--depth=1")
    change = Repository(root).changes(upstream.main[-2], "HEAD", limits=LIMITS)
    assert (change.base, change.head) == (upstream.main[-2], upstream.main[-1])
    assert paths(change) == ["trunk/4.txt"]
    assert any("deepened by" in note for note in change.notes)


def test_single_branch_clone_learns_a_base_branch_that_it_never_heard_of(upstream):
    # case 39: another input of the kind, a base by name that only the remote knows.
    root = upstream.clone("--depth=1", "--single-branch", "--branch=topic")
    change = Repository(root).changes("origin/main", "HEAD", limits=LIMITS)
    assert change.base == upstream.fork
    assert paths(change) == TOPIC
    assert any("the base origin/main" in note and "fetched from origin" in note for note in change.notes)
    assert git(root, "for-each-ref", "--format=%(refname)") == "refs/heads/topic\nrefs/remotes/origin/topic"


def test_base_of_a_plain_name_a_tag_and_an_abbreviation_are_found(upstream):
    # case 39: further spellings of a base that a shallow clone lacks.
    upstream.repo.git("tag", "-a", "-m", "release", "v1.0", upstream.fork)
    for i, base in enumerate(("main", "v1.0", upstream.fork[:12], "HEAD~5")):
        root = upstream.clone("--depth=1", "--single-branch", "--branch=topic", "--no-tags", name=f"clone{i}")
        change = Repository(root).changes(base, "HEAD", limits=LIMITS)
        assert (change.base, paths(change)) == (upstream.fork, TOPIC), base
        assert git(root, "tag") == ""


def test_merge_commit_of_a_pull_request_at_depth_one_is_compared_with_its_base(upstream, tmp_path):
    """case 39: actions/checkout fetches the merge commit alone, detached, under no branch."""
    repo = upstream.repo
    repo.git("checkout", "-q", "-b", "merged", "main")
    merge = repo.merge("topic")
    repo.git("update-ref", "refs/pull/7/merge", merge)
    repo.git("checkout", "-q", "main")
    repo.git("branch", "-qD", "merged")
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "-q")
    git(root, "remote", "add", "origin", upstream.url)
    git(
        root,
        "fetch",
        "-q",
        "--no-tags",
        "--depth=1",
        "origin",
        "+refs/pull/7/merge:refs/remotes/pull/7/merge",
    )
    git(root, "checkout", "-q", "refs/remotes/pull/7/merge")
    for base in (upstream.main[-1], "origin/main"):
        change = Repository(root).changes(base, "HEAD", limits=LIMITS)
        assert (change.base, change.head) == (upstream.main[-1], merge)
        assert paths(change) == TOPIC


def test_a_base_that_a_whole_clone_lacks_is_fetched_and_the_clone_stays_whole(upstream):
    """A commit that a force push took away from every branch, as `github.event.before` names it."""
    repo = upstream.repo
    root = upstream.clone()
    repo.git("checkout", "-q", "-b", "gone", "main")
    repo.write("gone.txt", "x\n")
    gone = repo.commit()
    repo.git("checkout", "-q", "main")
    repo.git("branch", "-qD", "gone")
    change = Repository(root).changes(gone, "origin/topic", limits=LIMITS)
    assert change.base == upstream.fork
    assert git(root, "rev-parse", "--is-shallow-repository") == "false"


def test_history_that_was_not_pushed_is_deepened_from_its_edge(upstream):
    root = upstream.clone("--depth=2", "--single-branch", "--branch=topic")
    (root / "local.py").write_text("x\n")
    git(root, "add", "local.py")
    git(root, "commit", "-qm", "not pushed")
    change = Repository(root).changes(upstream.fork, "HEAD", limits=LIMITS)
    assert change.base == upstream.fork
    assert paths(change) == ["local.py", *TOPIC]


@pytest.mark.parametrize("what", ["blob:none", "tree:0"])
def test_partial_clone_fetches_the_contents_it_lacks(upstream, what):
    """case 39: blobless and treeless clones, whose objects come when they are asked for."""
    upstream.repo.git("config", "uploadpack.allowFilter", "true")
    root = upstream.clone(f"--filter={what}", "--no-checkout", "--branch=topic")
    change = Repository(root).changes("origin/main", "HEAD", limits=LIMITS)
    assert change.base == upstream.fork
    assert [(file.path, file.n_added) for file in change.files] == [(path, 1.0) for path in TOPIC]
    assert change.notes == ()


def test_partial_and_shallow_clone_is_deepened_without_its_contents(upstream):
    upstream.repo.git("config", "uploadpack.allowFilter", "true")
    root = upstream.clone("--filter=blob:none", "--depth=1", "--branch=topic")
    change = Repository(root).changes(upstream.main[-1], "HEAD", limits=LIMITS)
    assert (change.base, paths(change)) == (upstream.fork, TOPIC)
    missing = git(root, "rev-list", "--objects", "--missing=print", "--all")
    assert "?" in missing, "the filter of the clone was kept"


def test_blobless_clone_that_may_not_fetch_still_names_the_files(upstream):
    upstream.repo.git("config", "uploadpack.allowFilter", "true")
    root = upstream.clone("--filter=blob:none", "--no-checkout", "--branch=topic")
    change = Repository(root).changes("origin/main", "HEAD")
    assert paths(change) == TOPIC
    assert all(math.isnan(file.n_added) and not file.is_binary for file in change.files)
    assert "contents are missing" in change.notes[0]


def test_treeless_clone_that_may_not_fetch_is_unknown(upstream):
    upstream.repo.git("config", "uploadpack.allowFilter", "true")
    root = upstream.clone("--filter=tree:0", "--no-checkout", "--branch=topic")
    with pytest.raises(UnknownChangeError) as caught:
        Repository(root).changes("origin/main", "HEAD")
    assert caught.value.code == "missing_objects"


def test_server_that_gives_the_ends_of_branches_only_is_deepened_until_the_base_shows(upstream, monkeypatch):
    """Servers of the first protocol refuse the id of a commit that is no end of a branch."""
    root = upstream.clone("--depth=1")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "protocol.version")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "0")
    base = upstream.main[-4]
    refused = subprocess.run(["git", "fetch", "origin", base], cwd=root, check=False, capture_output=True)
    assert b"unadvertised object" in refused.stderr
    change = Repository(root).changes(base, "HEAD", limits=LIMITS)
    assert change.base == base
    assert change.notes == ("the shallow clone was deepened by 50 commits from origin",)


# --- bounds, and what stays as it was -----------------------------------------------------------------------


def test_steps_are_bounded_and_then_it_is_unknown_with_the_reason(make_repo):
    upstream = Upstream(make_repo("upstream"), n_main=1, n_topic=12, n_since=12)
    root = upstream.clone("--depth=1", "--branch=topic")
    with pytest.raises(UnknownChangeError, match=r"shallow.*deepened by 7 commits from origin") as caught:
        Repository(root).changes("origin/main", "HEAD", limits=FetchLimits(n_commits=7))
    assert caught.value.code == "shallow"
    assert "git fetch --unshallow origin" in caught.value.hint
    assert git(root, "rev-list", "--count", "HEAD") == "8"
    found = Repository(root).changes("origin/main", "HEAD", limits=LIMITS)
    assert found.base == upstream.fork, "the next attempt goes on where this one stopped"


def test_no_ref_no_fetch_head_and_no_tag_is_written(upstream):
    upstream.repo.git("tag", "v1", upstream.main[3])
    root = upstream.clone("--depth=1", "--branch=topic", "--no-tags", "--no-single-branch")
    git(root, "config", "remote.origin.tagOpt", "--tags")
    git(root, "config", "fetch.prune", "true")
    upstream.repo.git("branch", "-qD", "topic")
    upstream.repo.git("update-ref", "refs/keep/topic", upstream.topic[-1])
    before = git(root, "for-each-ref"), sorted(p.name for p in (root / ".git").iterdir())
    Repository(root).changes("origin/main", "HEAD", limits=LIMITS)
    after = git(root, "for-each-ref"), sorted(p.name for p in (root / ".git").iterdir())
    assert after[0] == before[0]
    # The shallow list goes when the whole history has come; otherwise the only new file is our lock.
    assert set(after[1]) ^ set(before[1]) <= {LOCK_NAME, "shallow"}


def test_without_limits_or_with_zero_nothing_is_fetched(upstream):
    root = upstream.clone("--depth=1")
    for limits in (None, FetchLimits(n_commits=0)):
        with pytest.raises(UnknownChangeError) as caught:
            Repository(root).changes(upstream.main[-2], "HEAD", limits=limits)
        assert caught.value.code == "unknown_base"
    assert git(root, "rev-list", "--count", "HEAD") == "1"
    assert not (root / ".git" / LOCK_NAME).exists()


def test_whole_history_needs_no_fetch_and_takes_no_lock(upstream):
    root = upstream.clone()
    git(root, "remote", "set-url", "origin", "file:///nowhere")
    assert Repository(root).changes("origin/main", "origin/topic", limits=LIMITS).notes == ()
    assert not (root / ".git" / LOCK_NAME).exists()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("no remote", "has no remote"),
        ("gone", "fetch: "),
        ("several", "several remotes"),
        ("empty", "not our ref"),
        ("ext", "not allowed"),
    ],
)
def test_remote_that_cannot_help_is_a_reason(upstream, make_repo, how, said):
    root = upstream.clone("--depth=1")
    match how:
        case "no remote":
            git(root, "remote", "remove", "origin")
        case "gone":
            git(root, "remote", "set-url", "origin", f"file://{root}/nowhere")
        case "several":
            git(root, "remote", "rename", "origin", "one")
            git(root, "remote", "add", "two", upstream.url)
            git(root, "config", "--unset", "branch.main.remote")
        case "empty":
            git(root, "remote", "set-url", "origin", f"file://{make_repo('void').root}")
        case "ext":
            git(root, "remote", "set-url", "origin", "ext::sh -c 'touch sprung'")
            git(root, "config", "protocol.ext.allow", "always")
    with pytest.raises(UnknownChangeError, match=said) as caught:
        Repository(root).changes(upstream.main[-2], "HEAD", limits=LIMITS)
    assert caught.value.code == "unknown_base"
    assert caught.value.hint
    assert not (root / "sprung").exists()


def test_remote_that_is_shallow_itself_ends_the_search(upstream):
    middle = upstream.clone("--depth=3", "--no-single-branch", name="middle")
    git(middle, "branch", "topic", "origin/topic")
    root = middle.parent / "clone"
    git(middle, "clone", "-q", "--depth=1", "--branch=topic", f"file://{middle}", str(root))
    with pytest.raises(UnknownChangeError) as caught:
        Repository(root).changes("origin/main", "HEAD", limits=LIMITS)
    assert caught.value.code == "shallow"


def test_unrelated_histories_stay_unrelated_once_all_of_them_is_here(upstream):
    repo = upstream.repo
    repo.git("checkout", "-q", "--orphan", "other")
    repo.commit("another root")
    repo.git("checkout", "-q", "main")
    root = upstream.clone("--depth=1", "--no-single-branch")
    with pytest.raises(UnknownChangeError) as caught:
        Repository(root).changes("origin/other", "HEAD", limits=LIMITS)
    assert caught.value.code == "no_merge_base"


# --- a merge base at the edge of a shallow history ----------------------------------------------------------


def test_an_older_ancestor_found_in_a_shallow_history_is_not_taken_for_the_merge_base(make_repo, tmp_path):
    r"""The topic was merged from `new`, and the shallow clone does not see it.

    old -- new -- undo -- main      `new` is the merge base. With the second parent of the merge cut off,
      \      \                      git finds `old`, from where the file that `new` brought and the topic
       side -- merge (topic)        dropped does not differ.
    """
    repo = make_repo("upstream")
    repo.write("a", "1\n")
    old = repo.commit("old")
    repo.write("brought.py", "x\n")
    new = repo.commit("new")
    repo.write("b", "1\n")
    main = repo.commit("main")
    repo.git("checkout", "-q", "-b", "inner", new)
    repo.git("rm", "-q", "brought.py")
    inner = repo.commit("drop it")
    repo.git("checkout", "-q", "-b", "topic", old)
    repo.write("c", "1\n")
    repo.commit("side")
    topic = repo.merge("inner")
    root = tmp_path / "clone"
    repo.git("clone", "-q", f"file://{repo.root}", str(root))
    # A shallow history as deepening one side only leaves it.
    (root / ".git" / "shallow").write_text(f"{inner}\n")
    assert git(root, "merge-base", main, topic) == old, "git itself is deceived"

    source = Repository(root)
    with pytest.raises(UnknownChangeError) as caught:
        source.changes(main, topic)
    assert caught.value.code == "shallow"
    change = source.changes(main, topic, limits=LIMITS)
    assert change.base == new
    assert [(file.status, file.path) for file in change.files] == [("D", "brought.py"), ("A", "c")]


def test_a_merge_base_that_is_the_edge_itself_is_trusted(upstream):
    root = upstream.clone("--depth=3")
    change = Repository(root).changes("HEAD~2", "HEAD")
    assert change.base == upstream.main[-3]
    assert change.notes == ()


# --- beside others ------------------------------------------------------------------------------------------

DEEPEN = """
import sys
from pathlib import Path
from fastci_ml.sources.git.fetch import FetchLimits
from fastci_ml.sources.git.repository import Repository
change = Repository(Path(sys.argv[1])).changes(sys.argv[2], "HEAD", limits=FetchLimits())
print(change.base, len([note for note in change.notes if "deepened" in note]))
"""


def test_parallel_jobs_fetch_once_and_all_know_the_change(upstream):
    """case 39: xdist workers that each deepened met `shallow.lock`."""
    root = upstream.clone("--depth=1", "--branch=topic", "--no-single-branch")
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", DEEPEN, str(root), "origin/main"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    said = [job.communicate(timeout=120) for job in jobs]
    assert [job.returncode for job in jobs] == [0] * 4, said
    answers = [out.split() for out, _ in said]
    assert {base for base, _ in answers} == {upstream.fork}
    assert sum(int(n) for _, n in answers) == 1, "one of them fetched, the others found it done"


def test_lock_of_a_killed_process_is_taken_over(upstream):
    # case 39: another input of the kind, whoever held the lock is dead.
    root = upstream.clone("--depth=1", "--branch=topic", "--no-single-branch")
    lock = root / ".git" / LOCK_NAME
    code = (
        "import fcntl, sys, time\nfile = open(sys.argv[1], 'ab')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\nprint('held', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UnknownChangeError, match=LOCK_NAME) as caught:
            Repository(root).changes("origin/main", "HEAD", limits=FetchLimits(timeout_s=0.3))
        assert caught.value.code == "shallow"
        os.kill(holder.pid, signal.SIGKILL)
    assert Repository(root).changes("origin/main", "HEAD", limits=LIMITS).base == upstream.fork


def test_shallow_lock_of_another_git_is_waited_for_and_never_removed(upstream):
    root = upstream.clone("--depth=1", "--branch=topic", "--no-single-branch")
    lock = root / ".git" / "shallow.lock"
    lock.touch()
    with pytest.raises(UnknownChangeError, match=r"shallow\.lock"):
        Repository(root).changes("origin/main", "HEAD", limits=FetchLimits(timeout_s=1.0))
    assert lock.exists()
    timer = threading.Timer(0.5, lock.unlink)
    timer.start()
    change = Repository(root).changes("origin/main", "HEAD", limits=LIMITS)
    timer.join()
    assert change.base == upstream.fork


def gone(status: Path, within_s: float) -> bool:
    """Whether a killed process ends: the kernel takes its time, and nobody may look at how it ended."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        try:
            if "State:\tZ" in status.read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def test_remote_that_never_answers_is_left_in_time(upstream, tmp_path, monkeypatch):
    root = upstream.clone("--depth=1")
    mute = tmp_path / "ssh"
    mute.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    mute.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(mute))
    git(root, "remote", "set-url", "origin", "ssh://example.invalid/x.git")
    started_s = time.monotonic()
    with pytest.raises(UnknownChangeError, match="no answer within"):
        Repository(root).changes(upstream.main[-2], "HEAD", limits=FetchLimits(timeout_s=1.0))
    assert time.monotonic() - started_s < 15
    pid = int((tmp_path / "pid").read_text())
    status = Path(f"/proc/{pid}/status")
    assert gone(status, within_s=10.0)


def test_repository_that_cannot_be_written_is_a_reason(upstream, monkeypatch):
    root = upstream.clone("--depth=1")
    (root / ".git" / LOCK_NAME).mkdir()
    with pytest.raises(UnknownChangeError, match=r"cannot be locked") as caught:
        Repository(root).changes(upstream.main[-2], "HEAD", limits=LIMITS)
    assert caught.value.code == "unknown_base"


def test_linked_worktree_of_a_shallow_clone_is_deepened_where_the_history_is(upstream, tmp_path):
    root = upstream.clone("--depth=1", "--branch=topic", "--no-single-branch")
    linked = tmp_path / "linked"
    git(root, "worktree", "add", "-q", "--detach", str(linked))
    change = Repository(linked).changes("origin/main", "HEAD", limits=LIMITS)
    assert change.base == upstream.fork
    assert (root / ".git" / LOCK_NAME).exists()

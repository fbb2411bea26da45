"""Logs of all ranks tell which process failed first; an exception of any of them makes it a test failure."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.errors import ReportError
from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.failures import rank_logs
from fastci_ml.sources.failures.classify import Classification, classify, root_cause
from fastci_ml.sources.failures.log_scanner import LogScanner
from fastci_ml.sources.failures.rank_logs import read_rank_logs
from fastci_ml.sources.failures.rule_files import load_rules, shipped_rules

RECORDINGS = Path(__file__).parent / "rank_recordings"
RULES = shipped_rules()
PEER_LOST = (
    "[rank{0}]: Traceback (most recent call last):\n"
    '[rank{0}]:   File "/job/train.py", line 9, in <module>\n[rank{0}]:     dist.all_reduce(t)\n'
    "[rank{0}]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited "
    "or there was a network error, NCCL version 2.21.5\n"
    "[rank{0}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely.\n"
)


def cause(*paths: Path) -> Classification | None:
    return root_cause(read_rank_logs(paths, RULES).ranks, RULES)


def error_file(folder: Path, rank: int, words: str, timestamp_s: object = None, attempt: int = 0) -> Path:
    path = folder / "run" / f"attempt_{attempt}" / str(rank) / "error.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    extra = {"py_callstack": f"Traceback (most recent call last):\n  File 'x'\n{words}\n"}
    if timestamp_s is not None:
        extra["timestamp"] = str(timestamp_s)
    path.write_text(json.dumps({"message": {"message": words, "extraInfo": extra}}))
    return path


def log(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("assert", ("test", "assertion", "rank 1: AssertionError: rank is not 0")),
        ("kill", ("crash", "killed", "rank 1: exit status -9")),
        ("disk", ("infrastructure", "disk-full", "rank 1: OSError: [Errno 28] No space left on device")),
        (
            "barrier",
            (
                "timeout",
                "collective-timeout",
                "rank 0: RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms",
            ),
        ),
    ],
)
def test_logs_of_real_runs_tell_the_class(name: str, expected: tuple[str, str, str]) -> None:
    found = cause(RECORDINGS / name)
    assert found is not None
    assert (found.failure_class, found.rule, found.cause) == expected


@pytest.mark.parametrize("name", ["kill", "disk", "barrier"])
def test_the_message_of_a_real_launcher_alone_tells_the_same(name: str) -> None:
    message = (RECORDINGS / name / "launcher.log").read_text()
    found, by_logs = classify(Outcome.FAILED, "call", message), cause(RECORDINGS / name)
    assert by_logs is not None
    assert (found.failure_class, found.rule) == (by_logs.failure_class, by_logs.rule)


@pytest.mark.parametrize("share", [0.4, 0.6, 0.8, 0.95])
def test_a_message_that_was_cut_off_stays_test(share: float) -> None:
    message = (RECORDINGS / "disk" / "launcher.log").read_text()
    start = message.index("torch.distributed.elastic.multiprocessing.errors.ChildFailedError")
    message = message[start:]
    found = classify(Outcome.FAILED, "call", message[: int(share * len(message))])
    assert found.failure_class is FailureClass.TEST


def test_a_list_of_ranks_that_was_cut_off_may_lack_the_assertion() -> None:
    text = (RECORDINGS / "disk" / "launcher.log").read_text()
    text = text[text.index("torch.distributed.elastic.multiprocessing.errors.ChildFailedError") :]
    text = text.replace("OSError: [Errno 28] No space left on device", "AssertionError: rank is not 0")
    text = text.replace("RuntimeError: [/pytorch/", "OSError: [Errno 28] No space left on device [/")
    assert classify(Outcome.FAILED, "call", text).rule == "assertion"
    found = classify(Outcome.FAILED, "call", text[: text.index("Root Cause")])
    assert (found.failure_class, found.rule) == ("test", "child-failed")


def test_an_exception_of_any_rank_is_test_whenever_and_wherever_it_came(tmp_path: Path) -> None:
    error_file(tmp_path, 0, "OSError: [Errno 28] No space left on device", 100)
    error_file(tmp_path, 5, "RuntimeError: shapes [2] and [3] do not match", 900)
    found = cause(tmp_path)
    assert found is not None
    assert (found.failure_class, found.rule) == ("test", "rank-failed")
    assert found.cause == "rank 5: RuntimeError: shapes [2] and [3] do not match"


@pytest.mark.parametrize("first", [0, 1])
def test_the_rank_that_failed_first_tells_the_class(tmp_path: Path, first: int) -> None:
    error_file(tmp_path, first, "OSError: [Errno 28] No space left on device", 100)
    error_file(tmp_path, 1 - first, "torch.distributed.DistStoreError: Timed out after 9 seconds", 101)
    found = cause(tmp_path)
    assert found is not None
    assert (found.rule, found.cause[:6]) == ("disk-full", f"rank {first}")
    error_file(tmp_path, 1 - first, "torch.distributed.DistStoreError: Timed out after 9 seconds", 99)
    found = cause(tmp_path)
    assert found is not None
    assert found.rule == "rendezvous-timeout"


def test_without_times_a_missed_deadline_follows_from_anything_else(tmp_path: Path) -> None:
    log(tmp_path / "rank_0.log", "[rank0]:[E] Watchdog caught collective operation timeout: WorkNCCL(1)\n")
    log(tmp_path / "rank_1.log", "NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.\n")
    found = cause(tmp_path)
    assert found is not None
    assert (found.rule, found.explanation[:6]) == ("gpu-broken", "rank 1")


def test_ranks_that_only_lost_one_another_explain_nothing(tmp_path: Path) -> None:
    for rank in range(4):
        log(tmp_path / f"rank_{rank}.log", PEER_LOST.format(rank))
    assert cause(tmp_path) is None


def test_peers_that_lost_a_rank_do_not_hide_its_assertion(tmp_path: Path) -> None:
    for rank in range(3):
        log(tmp_path / f"rank_{rank}.log", PEER_LOST.format(rank))
    log(
        tmp_path / "rank_3.log",
        '[rank3]: Traceback (most recent call last):\n[rank3]:   File "t.py", line 3\n[rank3]:     assert x\n'
        "[rank3]: AssertionError\n[rank3]:[W socket.cpp:460] Connection reset by peer\n",
    )
    found = cause(tmp_path)
    assert found is not None
    assert (found.failure_class, found.cause) == ("test", "rank 3: AssertionError")


def test_what_a_logger_writes_after_an_exception_is_not_its_message(tmp_path: Path) -> None:
    log(
        tmp_path / "rank_0.log",
        "Traceback (most recent call last):\n  File 'x'\nRuntimeError: wrong shape\n"
        "[W1130 socket.cpp:460] Connection reset by peer\n",
    )
    found = cause(tmp_path)
    assert found is not None
    assert found.failure_class == "test"


def test_a_chain_of_exceptions_is_one_failure(tmp_path: Path) -> None:
    log(
        tmp_path / "rank_0.log",
        "Traceback (most recent call last):\n  File 'x'\nOSError: [Errno 28] No space left on device\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n  File 'y'\n"
        "RuntimeError: [enforce fail at inline_container.cc:778] . unexpected pos 64 vs 0\n",
    )
    found = cause(tmp_path)
    assert found is not None
    assert found.rule == "disk-full"


def test_two_exceptions_that_are_no_chain_are_two(tmp_path: Path) -> None:
    log(
        tmp_path / "rank_0.log",
        "Traceback (most recent call last):\n  File 'x'\nOSError: [Errno 28] No space left on device\n"
        "trying again\n"
        "Traceback (most recent call last):\n  File 'y'\nRuntimeError: lost it\n",
    )
    found = cause(tmp_path)
    assert found is not None
    assert (found.failure_class, found.cause) == ("test", "rank 0: RuntimeError: lost it")


def test_an_abort_of_the_watchdog_is_a_timeout_and_that_of_a_peer_no_crash(tmp_path: Path) -> None:
    entry = "  rank      : {} (local_rank: {})\n  exitcode  : -6 (pid: 7) (SIGABRT)\n  error_file: <N/A>\n"
    traceback = "  traceback : Signal 6 (SIGABRT) received by PID 7\n"
    listed = f"Root Cause (first observed failure):\n[0]:\n{entry.format(0, 0)}{traceback}\n====\n"
    log(
        tmp_path / "launcher.log",
        f"Traceback (most recent call last):\n  File 'x'\nChildFailedError: \n{listed}",
    )
    log(
        tmp_path / "run" / "attempt_0" / "0" / "stderr.log",
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)\n",
    )
    found = cause(tmp_path / "run")
    assert found is not None
    assert found.failure_class == "timeout"


def test_a_scheduler_that_took_the_machine_away_is_told_from_the_jobs_log(tmp_path: Path) -> None:
    log(tmp_path / "rank_0.log", "step 1\nstep 2\n")
    notice = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-05T13:05:36 DUE TO PREEMPTION ***"
    log(tmp_path / "slurm-7.out", f"step 2\n{notice}\n")
    found = cause(tmp_path)
    assert found is not None
    assert (found.rule, found.cause) == ("preempted", f"slurm-7.out: {notice}"[:160])


def test_processes_are_named_by_torchruns_folders_or_by_their_files(tmp_path: Path) -> None:
    error_file(tmp_path / "a", 3, "OSError: x")
    error_file(tmp_path / "a", 3, "OSError: y", attempt=1)
    log(tmp_path / "b" / "rank-12.stderr.txt", "x")
    log(tmp_path / "b" / "rank-12.stdout.log", "x")
    log(tmp_path / "b" / "job.log", "x")
    log(tmp_path / "b" / "report.xml", "Traceback")
    names = [rank.name for rank in read_rank_logs([tmp_path], RULES).ranks]
    assert names == ["rank 3", "rank 3 (attempt 1)", "job.log", "rank 12"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no json",
        b"[1, 2]",
        b'{"message": null}',
        b'{"message": {"extraInfo": 3, "message": ["x"]}}',
        b'{"message": {"extraInfo": {"timestamp": "1e999", "py_callstack": {}}}}',
        b'{"message": {"message": "x", "extraInfo": {"timestamp": NaN}}}',
        b'{"message": "\xff\xfe"}',
        b"[" * 100_000,
    ],
)
def test_an_error_file_of_any_kind_gives_a_rank_or_a_note(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "attempt_0" / "0" / "error.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    found = read_rank_logs([tmp_path], RULES)
    assert found.notes or [rank.failed_at_s for rank in found.ranks] == [None]


@given(st.binary(max_size=400))
def test_any_bytes_are_a_log(content: bytes) -> None:
    scanner = LogScanner(RULES.log_patterns)
    scanner.feed(content)
    messages, lines = scanner.finish()
    assert sum(map(len, messages)) + len(lines) <= 60 * len(content) + 100


@given(st.lists(st.sampled_from([*PEER_LOST.splitlines(), "", "x", "  y", "AssertionError: z"]), max_size=30))
def test_a_log_in_several_blocks_is_the_same_log(lines: list[str]) -> None:
    raw = [f"{line}\n".encode() for line in lines]
    whole, parts = LogScanner(RULES.log_patterns), LogScanner(RULES.log_patterns)
    whole.feed(b"".join(raw))
    for line in raw:
        parts.feed(line)
    assert whole.finish() == parts.finish()


def test_a_huge_log_is_read_in_flat_memory_to_both_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_logs, "MOST_BYTES", 8 << 20)
    path = tmp_path / "rank_0.log"
    with path.open("wb") as file:
        file.write(b"Fatal Python error: Aborted\n")
        for _ in range(40):
            file.write(b"\xff" * (1 << 19) + b"step\n" * 100_000)
        file.write(b"Traceback (most recent call last):\n  File 'x'\nOSError: [Errno 28] No space left\n")
    assert path.stat().st_size > 3 * rank_logs.MOST_BYTES
    tracemalloc.start()
    found = read_rank_logs([path], RULES)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 16 << 20
    (rank,) = found.ranks
    assert rank.messages == ("OSError: [Errno 28] No space left",)
    assert rank.log.startswith("Fatal Python error: Aborted")
    assert "of which the first and the last" in found.notes[0]


def test_a_log_that_says_the_same_a_million_times_stays_small() -> None:
    scanner = LogScanner(RULES.log_patterns)
    for _ in range(50):
        scanner.feed(b"Connection reset by peer\n" * 20_000)
    _, lines = scanner.finish()
    assert lines.count("\n") == 3


def test_lines_that_a_progress_bar_wrote_over_one_another_are_lines() -> None:
    scanner = LogScanner(RULES.log_patterns)
    scanner.feed(
        b"10%\r20%\rBroken pipe\r\nTraceback (most recent call last):\r\n  File 'x'\r\nOSError: x\r\n"
    )
    assert scanner.finish() == (["OSError: x"], "Broken pipe")


def test_many_exceptions_keep_the_first_and_the_last() -> None:
    scanner = LogScanner(RULES.log_patterns)
    for number in range(1_000):
        scanner.feed(f"Traceback (most recent call last):\n  File 'x'\nE{number}: x\n".encode())
    messages, _ = scanner.finish()
    assert (messages[0], messages[-1], len(messages)) == ("E0: x", "E999: x", 16)


def test_links_and_pipes_are_passed_over(tmp_path: Path) -> None:
    outside = log(tmp_path / "outside" / "secret.txt", "AssertionError: x")
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "rank_0.log").symlink_to(outside)
    os.mkfifo(folder / "rank_1.log")
    assert read_rank_logs([folder], RULES).ranks == ()


def test_a_log_that_cannot_be_read_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tmp_path / "rank_0.log", "x")
    log(tmp_path / "rank_1.log", PEER_LOST.format(1))
    opened = Path.open

    def refuse(self: Path, *args: object, **kwargs: object) -> object:
        if self.name == "rank_0.log":
            raise PermissionError(13, "Permission denied")
        return opened(self, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    found = read_rank_logs([tmp_path], RULES)
    assert [rank.name for rank in found.ranks] == ["rank 1"]
    assert "rank_0.log: log cannot be read" in found.notes[0]


def test_more_logs_than_anyone_has_are_cut_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_logs, "MOST_FILES", 3)
    for number in range(5):
        log(tmp_path / f"rank_{number}.log", "x")
    found = read_rank_logs([tmp_path], RULES)
    assert (len(found.ranks), found.notes) == (3, ("5 logs, of which the first 3 were read",))


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no such file or folder of logs"):
        read_rank_logs([tmp_path / "nowhere"], RULES)


def test_a_rule_of_a_project_finds_its_line_in_a_log_even_without_fixed_text(tmp_path: Path) -> None:
    own = {"id": "own", "class": "infrastructure", "because": "b", "pattern": "[xX][yY]{2,9}[zZ]"}
    rules = load_rules([own])
    path = log(tmp_path / "rank_0.log", "step\n" * 1_000 + "it is xYYz\n" + "step\n" * 1_000)
    found = root_cause(read_rank_logs([path], rules).ranks, rules)
    assert found is not None
    assert (found.rule, found.cause) == ("own", "rank 0: it is xYYz")

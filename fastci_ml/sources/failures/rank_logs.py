"""Logs of all processes of a distributed run: torchrun's log folder, or any ``*.log`` files.

A log is read in blocks and in flat memory, whatever bytes it holds. What is kept of it is little: the
exceptions at which its process ended, and lines that a rule may know.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from fastci_ml.errors import ReportError
from fastci_ml.sources.failures.log_scanner import LogScanner
from fastci_ml.sources.failures.rules import FailureRules
from fastci_ml.sources.failures.texts import RankFailure, launcher_list, own_words

MOST_FILES = 4_096
# Of a longer file the first and the last half of this are read.
MOST_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20
_ERROR_FILE = "error.json"
_MOST_ERROR_BYTES = 4 << 20
_SUFFIXES = (".log", ".out", ".err", ".txt")
_ATTEMPT = re.compile(r"attempt_(\d{1,6})")
_RANK = re.compile(r"rank[_.-]?(\d{1,6})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLogs:
    """What the logs of one run say.

    Attributes
    ----------
    ranks : tuple of RankFailure
        Processes in the order of their files.
    notes : tuple of str
        What could not be read, or not as a whole.
    """

    ranks: tuple[RankFailure, ...] = ()
    notes: tuple[str, ...] = ()


def read_rank_logs(paths: Sequence[Path], rules: FailureRules) -> RankLogs:
    """Read the logs of one run.

    Parameters
    ----------
    paths : sequence of Path
        Files, and folders of them: ``<folder>/<run>/attempt_<n>/<rank>/{stdout,stderr}.log`` and
        ``error.json`` as torchrun writes them with ``--log-dir`` and ``--redirects``, or files that name a
        rank (``rank_3.log``) or nothing (``job.log``). Links are not followed.
    rules : FailureRules
        Those in force: they say which lines matter.

    Raises
    ------
    ReportError
        If a path is not there.
    """
    notes: list[str] = []
    files: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise ReportError(f"{path}: no such file or folder of logs")
        files.update(dict.fromkeys(_logs_in(path)))
    if len(files) > MOST_FILES:
        notes.append(f"{len(files):,} logs, of which the first {MOST_FILES:,} were read")
    processes: dict[tuple[Path, str], RankFailure] = {}
    listed: list[RankFailure] = []
    for file in list(files)[:MOST_FILES]:
        key = _process_of(file)
        known = processes.get(key, RankFailure(name=key[1]))
        try:
            if file.name == _ERROR_FILE:
                processes[key] = _with_error_file(known, file)
            else:
                processes[key], more = _with_log(known, file, rules, notes)
                listed += more
        except (OSError, ValueError, RecursionError) as error:
            notes.append(f"{file}: log cannot be read: {error}")
    return RankLogs(ranks=(*processes.values(), *listed), notes=tuple(notes))


def _logs_in(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            is_log = name == _ERROR_FILE or name.endswith(_SUFFIXES)
            if is_log and file.is_file() and not file.is_symlink():  # no pipe that would block
                yield file


def _process_of(file: Path) -> tuple[Path, str]:
    """Folder and name of the process that a log is of."""
    rank, attempt = file.parent.name, _ATTEMPT.fullmatch(file.parent.parent.name)
    if attempt and rank.isdecimal():
        again = f" (attempt {attempt[1]})" if int(attempt[1]) else ""
        return file.parent, f"rank {rank}{again}"
    named = _RANK.search(file.name)
    return file.parent, f"rank {named[1]}" if named else file.name


def _with_error_file(known: RankFailure, file: Path) -> RankFailure:
    """Add what torch's ``record`` wrote when the process failed."""
    with file.open("rb") as stream:
        document = json.loads(stream.read(_MOST_ERROR_BYTES).decode("utf-8", "replace"))
    message = document.get("message") if isinstance(document, dict) else None
    details = message.get("extraInfo") if isinstance(message, dict) else None
    details = details if isinstance(details, dict) else {}
    text = message.get("message") if isinstance(message, dict) else message
    stack = details.get("py_callstack")
    words = own_words(stack) if isinstance(stack, str) and stack.strip() else str(text or "")
    return replace(
        known,
        failed_at_s=_seconds(details.get("timestamp")) or known.failed_at_s,
        messages=_added(known.messages, [words] if words else []),
    )


def _seconds(value: object) -> float | None:
    try:
        seconds = float(value) if isinstance(value, str | int | float) else 0.0
    except (ValueError, OverflowError):
        return None
    return seconds if 0 < seconds < 1e11 else None


def _with_log(
    known: RankFailure, file: Path, rules: FailureRules, notes: list[str]
) -> tuple[RankFailure, list[RankFailure]]:
    """Add what a log says; and the ranks that it lists, if a launcher wrote it."""
    scanner = LogScanner(rules.log_patterns)
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        for block in _blocks(stream, MOST_BYTES if size <= MOST_BYTES else MOST_BYTES // 2):
            scanner.feed(block)
        if size > MOST_BYTES:
            notes.append(
                f"{file}: {size:,} bytes, of which the first and the last {MOST_BYTES // 2:,} were read"
            )
            scanner.interrupt()
            stream.seek(size - MOST_BYTES // 2)
            for block in _blocks(stream, MOST_BYTES // 2):
                scanner.feed(block)
    messages, lines = scanner.finish()
    listed = [entry for text in messages for entry in launcher_list(text).entries]
    # Of a list only its head is the launcher's own; the ranks in it speak for themselves.
    own = [text.partition("\n")[0] if launcher_list(text).entries else text for text in messages]
    log = f"{known.log}\n{lines}".strip("\n")
    return replace(known, messages=_added(known.messages, own), log=log), listed


def _added(messages: tuple[str, ...], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*messages, *more)))


def _blocks(stream: BinaryIO, n_bytes: int) -> Iterator[bytes]:
    """At most `n_bytes` in blocks that end with a line, except that a line longer than a block is cut."""
    rest = b""
    while n_bytes > 0 and (block := stream.read(min(_BLOCK_BYTES, n_bytes))):
        n_bytes -= len(block)
        block = rest + block
        end = block.rfind(b"\n") + 1
        if not end and len(block) >= _BLOCK_BYTES:
            end = len(block)
        if end:
            yield block[:end]
        rest = block[end:]
    if rest:
        yield rest

"""docs/failures.md shows the shipped rules as they are, and its own examples hold."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.failures.classify import classify
from fastci_ml.sources.failures.rule_files import BUILT_IN, load_rules, shipped_rules
from fastci_ml.sources.failures.rules import Rule

PAGE = (Path(__file__).parents[2] / "docs" / "failures.md").read_text(encoding="utf-8")
UNRULED = PAGE.partition("## What has no rule, and why")[2].partition("Two limits")[0]


def row(rule: Rule) -> str:
    kind = "test, asks the ranks" if rule.is_consequence else rule.failure_class.value
    text = (rule.examples[0].message or rule.examples[0].log).split("\n")[0]
    text = text if len(text) <= 110 else f"{text[:107]}..."
    text = text.replace("|", r"\|").replace("`", "'")
    return f"| `{rule.id}` | {kind} | {rule.because} | `{text}` |"


def test_the_table_of_rules_is_that_of_the_file() -> None:
    table = PAGE.partition("| rule | class | because | an example |\n|---|---|---|---|\n")[2].partition(
        "\n\n"
    )[0]
    assert table.split("\n") == [row(rule) for rule in shipped_rules().rules]


def test_every_class_and_every_built_in_decision_is_described() -> None:
    for failure_class in FailureClass:
        assert not failure_class or f"| {failure_class} | " in PAGE
    for name in BUILT_IN:
        assert f"`{name}`" in PAGE


def test_the_example_of_a_project_loads() -> None:
    text = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert text is not None
    rules = load_rules(tomllib.loads(text[1])["tool"]["fastci"]["failure_rules"])
    assert rules.rules[0].id == "artifact-server"
    assert rules.disabled == ("unreachable",)


@pytest.mark.parametrize(
    "message",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "MemoryError",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "OSError: [Errno 98] Address already in use",
        "ModuleNotFoundError: No module named 'flash_attn'",
        "ImportError: /app/_C.so: undefined symbol: _ZN3c10",
        "RuntimeError: No CUDA GPUs are available",
        "RuntimeError: Found no NVIDIA driver on your system.",
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: NCCL error in: x.cpp:1, invalid usage, NCCL version 2.17.1",
        "RuntimeError: NCCL error: unhandled cuda error, NCCL version 2.21.5",
        "socket.gaierror: [Errno -2] Name or service not known",
        "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://huggingface.co/a/b",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them "
        "in the cached files.",
        "requests.exceptions.HTTPError: 500 Server Error: Internal Server Error for url: http://localhost:1/x",
        "RuntimeError: manifest for a/b:c not found: manifest unknown",
        "RuntimeError: No matching distribution found for torch==9",
        "OSError: [Errno 30] Read-only file system: '/usr/x'",
        "PermissionError: [Errno 13] Permission denied: '/x'",
        "OSError: [Errno 5] Input/output error",
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
        "TimeoutError",
        "_queue.Empty",
        "asyncio.exceptions.TimeoutError",
        "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGTERM: 15>.",
        "slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-01-05T13:05:36 ***",
    ],
)
def test_what_may_be_the_changes_own_fault_stays_test(message: str) -> None:
    assert classify(Outcome.FAILED, "call", message).failure_class is FailureClass.TEST

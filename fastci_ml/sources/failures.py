"""Why an attempt failed, from what its report says: a table of rules, tried in order.

Only `FailureClass.TEST` trains the model and counts as a detected fault, so a rule must be sure: what no rule
knows is `TEST`, and an assertion is always `TEST`, whatever text it quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fastci_ml.records.outcomes import FailureClass, Outcome

_MESSAGE_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way to recognise a kind of failure.

    Attributes
    ----------
    id : str
        Stable name.
    failure_class : FailureClass
        What a match means.
    pattern : re.Pattern
        Searched in the message.
    explanation : str
        In words, for a person who asks why.
    """

    id: str
    failure_class: FailureClass
    pattern: re.Pattern[str]
    explanation: str


def _rule(name: str, failure_class: FailureClass, pattern: str, explanation: str) -> Rule:
    return Rule(id=name, failure_class=failure_class, pattern=re.compile(pattern), explanation=explanation)


RULES = (
    _rule(
        "process-died",
        FailureClass.CRASH,
        r"worker '?gw\d+'? crashed|Segmentation fault|Fatal Python error|died with <Signals\.|signal SIG\w+",
        "the process that ran the test died",
    ),
    _rule(
        "out-of-time",
        FailureClass.TIMEOUT,
        r"Timeout \(?>\s?[\d.]+\s?s?\)?|TimeoutExpired|Watchdog caught collective operation timeout",
        "the test or a process of it ran out of time",
    ),
    _rule(
        "disk-full",
        FailureClass.INFRASTRUCTURE,
        r"No space left on device|Errno 28\b|Errno 122\b|Disk quota exceeded",
        "the disk is full",
    ),
    _rule(
        "nccl",
        FailureClass.INFRASTRUCTURE,
        r"nccl(?:System|Internal|Remote)Error|ncclUnhandledCudaError|NCCL error.*unhandled system error",
        "NCCL could not reach its peers",
    ),
    _rule(
        "gpu",
        FailureClass.INFRASTRUCTURE,
        r"CUDA driver (?:version is insufficient|initialization failed)|no CUDA-capable device"
        r"|Driver/library version mismatch|uncorrectable ECC error|CUDA-capable device\(s\) is/are busy",
        "the GPU or its driver is not usable",
    ),
    _rule(
        "network",
        FailureClass.INFRASTRUCTURE,
        r"Temporary failure in name resolution|Name or service not known|Network is unreachable"
        r"|No route to host|Max retries exceeded with url|50[234] (?:Server Error|Bad Gateway|Service Unav)",
        "the network or a server on it is not reachable",
    ),
    _rule(
        "library",
        FailureClass.ENVIRONMENT,
        r"cannot open shared object file|version `GLIBC\w*_[\d.]+' not found|undefined symbol: ",
        "a library of the machine does not fit",
    ),
)
_ASSERTION = re.compile(r"\s*(?:AssertionError|assert\b|Failed: DID NOT)")
# What pytest writes around the reason in JUnit files.
_PHASE = re.compile(r'failed on (setup|teardown) with "(.*)', re.DOTALL)


def phase_of(message: str) -> tuple[str, str]:
    """Phase that pytest's JUnit message names, and the reason without the words around it.

    Examples
    --------
    >>> phase_of('failed on setup with "KeyError: 1"')
    ('setup', 'KeyError: 1')
    >>> phase_of("AssertionError: no")
    ('', 'AssertionError: no')
    """
    match = _PHASE.match(message)
    return (match[1], match[2].removesuffix('"')) if match else ("", message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """Class of one failure, the id of the rule that gave it, and the same in words."""

    failure_class: FailureClass
    rule: str = ""
    explanation: str = ""


def classify(outcome: Outcome, phase: str, message: str) -> Classification:
    """Class of one failure, and why.

    Parameters
    ----------
    outcome : Outcome
        How the attempt ended.
    phase : str
        ``setup``, ``call`` or ``teardown``; empty when the report does not say.
    message : str
        Message of the failure; more than its first line helps.

    Returns
    -------
    Classification
        `NONE`, without a rule, unless the outcome is a failure.

    Examples
    --------
    >>> classify(Outcome.FAILED, "call", "OSError: [Errno 28] No space left on device").failure_class.value
    'infrastructure'
    >>> classify(Outcome.FAILED, "call", "AssertionError: 'No space left on device'").failure_class.value
    'test'
    """
    if not outcome.is_failure:
        return Classification(failure_class=FailureClass.NONE)
    if not _ASSERTION.match(message):
        for rule in RULES:
            if rule.pattern.search(message):
                return Classification(
                    failure_class=rule.failure_class, rule=rule.id, explanation=rule.explanation
                )
    if phase == "setup":
        return Classification(
            failure_class=FailureClass.SETUP, rule="setup", explanation="set-up failed before the test began"
        )
    return Classification(
        failure_class=FailureClass.TEST,
        explanation="the test failed, and nothing says that something else is to blame",
    )


def first_line(message: str) -> str:
    r"""First line that is not blank, at most 200 characters.

    Examples
    --------
    >>> first_line("\n  assert 1 == 2\n  where ...")
    'assert 1 == 2'
    """
    for line in message[: 20 * _MESSAGE_LIMIT].splitlines():
        if line.strip():
            return line.strip()[:_MESSAGE_LIMIT]
    return ""

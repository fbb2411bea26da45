"""Why an attempt failed, from what its report and the logs of its processes say.

Only `FailureClass.TEST` trains the model and counts as a detected fault, so any other class must be sure:
what no rule knows is `TEST`, and an assertion is `TEST` whatever text it quotes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.failures.log_scanner import exceptions_in
from fastci_ml.sources.failures.rule_files import FLAKY_RULE, shipped_rules
from fastci_ml.sources.failures.rules import Evidence, FailureRules, Rule
from fastci_ml.sources.failures.texts import (
    TRACEBACK,
    RankFailure,
    assertion_in,
    exit_statuses,
    launcher_list,
    own_words,
    program_error_in,
    said,
)

_RANK_FAILED = "a process raised an exception of its own; what others say follows from it"
# What the code itself decides, by the id that stands in place of a rule's; empty where nothing decided.
EXPLANATIONS = {
    "": "the test failed, and nothing says that something else is to blame",
    "assertion": "an assertion of the test or the code does not hold",
    "program-error": "an error that only the program itself makes",
    "setup": "set-up failed before the test began",
    "rank-failed": _RANK_FAILED,
    FLAKY_RULE: "the test failed and passed in one run",
}
_MESSAGE_LIMIT = 200
_CAUSE_LIMIT = 160
# What pytest writes around the reason in JUnit files.
_PHASE = re.compile(r'failed on (setup|teardown) with "(.*)', re.DOTALL)
# Among processes that failed at one time: a deadline is missed because of anything else.
_PRECEDENCE = (
    FailureClass.INFRASTRUCTURE,
    FailureClass.ENVIRONMENT,
    FailureClass.CRASH,
    FailureClass.TIMEOUT,
)


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
    """Class of one failure, the id of the rule that gave it, and the same in words.

    Attributes
    ----------
    failure_class : FailureClass
        `NONE` for what did not fail.
    rule : str
        Empty where no rule knows the failure, which makes it `TEST`.
    explanation : str
        For a person.
    is_consequence : bool
        The failure only says that another process failed first.
    cause : str
        First line of the process that failed first, with its name; empty where only one is known.
    """

    failure_class: FailureClass
    rule: str = ""
    explanation: str = ""
    is_consequence: bool = False
    cause: str = ""


def classify(
    outcome: Outcome, phase: str, message: str, *, kind: str = "", rules: FailureRules | None = None
) -> Classification:
    """Class of one failure, and why.

    Parameters
    ----------
    outcome : Outcome
        How the attempt ended.
    phase : str
        ``setup``, ``call``, ``teardown`` or ``collect``; empty when the report does not say.
    message : str
        Message of the failure; more than its first line helps.
    kind : str
        Type of the exception, where the report gives it apart from the message.
    rules : FailureRules, optional
        Those in force; the shipped ones by default.

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
    rules = shipped_rules() if rules is None else rules
    if kind and kind not in message:
        message = f"{kind}: {message}"
    ranks = launcher_list(message)
    if ranks.entries:
        found = root_cause(ranks.entries, rules)
        # The end of a list that was cut off may hold an assertion.
        if found is not None and (ranks.is_whole or found.failure_class is FailureClass.TEST):
            return found
        return judge(Evidence(phase=phase, message=own_words(message.partition("\n")[0])), rules)
    for words in exceptions_in(said(message)) if TRACEBACK in message else ():
        # A test that hands on what its child wrote: an exception of the child's own outweighs the rest.
        found = judge(Evidence(phase=phase, message=words), rules)
        if rules.get(found.rule) is None:
            return found if found.rule else replace(found, rule="rank-failed", explanation=_RANK_FAILED)
    words = own_words(message)
    return judge(Evidence(phase=phase, message=words, statuses=exit_statuses(words)), rules)


def judge(evidence: Evidence, rules: FailureRules) -> Classification:
    """Class of one failure by its evidence, without asking other processes."""
    assertion = assertion_in(evidence.message)
    error = program_error_in(evidence.message)
    rule = None if assertion else rules.decide(evidence, is_program_error=bool(error))
    if rule is not None:
        found = _by_rule(rule)
        is_open = rule.is_consequence and evidence.phase == "setup"
        return replace(found, failure_class=FailureClass.SETUP) if is_open else found
    if evidence.phase == "setup":
        return Classification(
            failure_class=FailureClass.SETUP, rule="setup", explanation=EXPLANATIONS["setup"]
        )
    name = "assertion" if assertion else "program-error" if error else ""
    return Classification(failure_class=FailureClass.TEST, rule=name, explanation=EXPLANATIONS[name])


def root_cause(ranks: Sequence[RankFailure], rules: FailureRules) -> Classification | None:
    """Which of the processes of one run failed first, and the class of that failure.

    A process that raised an ordinary exception or an assertion makes it `TEST`, whenever that was: that its
    peers lost it, timed out or were ended follows from it, and of the opposite nobody can be sure.

    Parameters
    ----------
    ranks : sequence of RankFailure
        Processes in any order; those that did not fail may be among them.

    Returns
    -------
    Classification or None
        None where every process only says that another one failed, or nothing.
    """
    leaders: list[tuple[float, int, int, Classification]] = []
    for place, rank in enumerate(ranks):
        found = _judge_rank(rank, rules)
        if found is None or found.is_consequence:
            continue
        if found.failure_class is FailureClass.TEST:
            return found
        time_s = math.inf if rank.failed_at_s is None else rank.failed_at_s
        order = _PRECEDENCE.index(found.failure_class) if found.failure_class in _PRECEDENCE else 0
        leaders.append((time_s, order, place, found))
    return min(leaders, key=lambda leader: leader[:3])[3] if leaders else None


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


def _judge_rank(rank: RankFailure, rules: FailureRules) -> Classification | None:
    """What one process says; None when it says nothing of a failure."""
    for words in rank.messages:
        found = judge(Evidence(message=words, statuses=exit_statuses(words)), rules)
        if found.failure_class is FailureClass.TEST and not found.is_consequence:
            return Classification(
                failure_class=FailureClass.TEST,
                rule=found.rule or "rank-failed",
                explanation=f"{rank.name} raised an exception of its own; what others say follows from it",
                cause=_cause(rank, words),
            )
    statuses = frozenset() if rank.status is None else frozenset({rank.status})
    words = "\n".join(rank.messages)
    rule = rules.decide(Evidence(message=words, log=rank.log, statuses=statuses | exit_statuses(words)))
    if rule is None:
        return None
    cause = _cause(rank, words or (rule_line(rule, rank.log) or f"exit status {rank.status}"))
    return _by_rule(rule, f"{rank.name}: ", cause)


def rule_line(rule: Rule, log: str) -> str:
    """First line of a log that a rule looks for."""
    for pattern in (*rule.any, *rule.all):
        if hit := pattern.search(log):
            return first_line(log[log.rfind("\n", 0, hit.start()) + 1 :])
    return ""


def _by_rule(rule: Rule, prefix: str = "", cause: str = "") -> Classification:
    return Classification(
        failure_class=rule.failure_class,
        rule=rule.id,
        explanation=prefix + rule.because,
        is_consequence=rule.is_consequence,
        cause=cause,
    )


def _cause(rank: RankFailure, words: str) -> str:
    return f"{rank.name}: {first_line(words)}"[:_CAUSE_LIMIT]

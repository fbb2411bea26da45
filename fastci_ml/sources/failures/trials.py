"""What the rules make of one text, with every rule that matches or nearly does, for a person who asks why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastci_ml.records.outcomes import Outcome
from fastci_ml.sources.failures.classify import Classification, classify, root_cause
from fastci_ml.sources.failures.log_scanner import LogScanner
from fastci_ml.sources.failures.rules import Evidence, FailureRules, Trial
from fastci_ml.sources.failures.texts import (
    RankFailure,
    assertion_in,
    exit_statuses,
    launcher_list,
    own_words,
    program_error_in,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureTrial:
    """What the rules make of one text.

    Attributes
    ----------
    found : Classification
        With the text as the message of a failure, and the logs of its processes where there are some.
    as_log : Classification or None
        With the text as the log of one process; None where that says nothing of a failure.
    words : str
        What counts as the failure's own words.
    barred_by : str
        The line because of which no shipped rule is asked; empty without one.
    trials : tuple of Trial
        Rules that match or nearly do, in order, with the text as message and as log.
    """

    found: Classification
    as_log: Classification | None
    words: str
    barred_by: str
    trials: tuple[Trial, ...]


def try_text(
    text: str, rules: FailureRules, *, phase: str = "", ranks: Sequence[RankFailure] = ()
) -> FailureTrial:
    """Class of a text, and what every rule says to it.

    Parameters
    ----------
    text : str
        Message of a failure or a log.
    rules : FailureRules
        Those in force.
    phase : str
        Of the failure; empty when unknown.
    ranks : sequence of RankFailure
        Logs of its processes.

    Examples
    --------
    >>> from fastci_ml.sources.failures.rule_files import shipped_rules
    >>> trial = try_text("ValueError: No space left on device", shipped_rules())
    >>> trial.found.failure_class.value, trial.barred_by, trial.trials[0].rule.id
    ('test', 'ValueError: No space left on device', 'disk-full')
    """
    found = classify(Outcome.FAILED, phase, text, rules=rules)
    cause = root_cause(ranks, rules) if ranks else None
    if cause is not None and (found.is_consequence or cause.failure_class.value == "test"):
        found = cause
    words = own_words(text)
    scanner = LogScanner(rules.log_patterns)
    scanner.feed(text.encode("utf-8", "replace"))
    messages, log = scanner.finish()
    evidence = Evidence(phase=phase, message=words, log=log, statuses=exit_statuses(words))
    process = RankFailure(name="log", messages=tuple(messages), log=log)
    listed = [entry for message in messages for entry in launcher_list(message).entries]
    return FailureTrial(
        found=found,
        as_log=root_cause([*listed, process], rules),
        words=words,
        barred_by=assertion_in(words) or program_error_in(words),
        trials=tuple(trial for trial in rules.attempts(evidence) if trial.is_match or trial.is_near),
    )

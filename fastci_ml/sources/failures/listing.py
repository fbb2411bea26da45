"""Failures of a history by class and by the rule that gave it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from fastci_ml.records.frames import EXECUTIONS
from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.failures.classify import EXPLANATIONS
from fastci_ml.sources.failures.rules import FailureRules
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.history.tables import codes

_COLUMNS = ["run_id", "node_id", "outcome", "failure_class", "failure_rule", "message"]
_FAILING = frozenset(outcome.value for outcome in Outcome if outcome.is_failure)
_CLASS_ORDER = {failure_class.value: place for place, failure_class in enumerate(FailureClass)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureExample:
    """One failing execution: its test, its run and its message."""

    node_id: str
    run_id: str
    message: str


@dataclass(slots=True, kw_only=True)
class FailureGroup:
    """Failures of one class by one rule.

    Attributes
    ----------
    failure_class, rule : str
        The rule is empty where none gave the class.
    explanation : str
        Of the rule that is in force under that name now.
    n_executions : int
        Failing attempts.
    tests, runs : set of str
        Where.
    examples : list of FailureExample
        With different messages, in the order of the history's keys.
    """

    failure_class: str
    rule: str
    explanation: str
    n_executions: int = 0
    tests: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    examples: list[FailureExample] = field(default_factory=list)


def list_failures(
    store: HistoryStore,
    rules: FailureRules,
    *,
    classes: Iterable[str] = (),
    rule: str | None = None,
    test: str = "",
    n_examples: int = 3,
) -> list[FailureGroup]:
    """Group the failures of `store`.

    Parameters
    ----------
    store : HistoryStore
        May be empty.
    rules : FailureRules
        Those in force, for the explanations.
    classes : iterable of str
        Only these; all when empty.
    rule : str, optional
        Only this one; the empty text for failures that no rule knows.
    test : str
        Only tests whose id holds this text.
    n_examples : int
        Messages a group.

    Returns
    -------
    list of FailureGroup
        By class, then most executions first, then by rule.
    """
    wanted = set(classes)
    table = store.scan(EXECUTIONS, columns=_COLUMNS)
    outcome_codes, outcomes = codes(table.column("outcome"))
    failing_codes = [code for code, value in enumerate(outcomes.to_pylist()) if value in _FAILING]
    failing = table.take(np.flatnonzero(np.isin(outcome_codes, failing_codes))).to_pydict()
    groups: dict[tuple[str, str], FailureGroup] = {}
    seen: dict[tuple[str, str], set[str]] = {}
    for run_id, node_id, _, failure_class, name, message in zip(*failing.values(), strict=True):
        if (
            (wanted and failure_class not in wanted)
            or (rule is not None and name != rule)
            or test not in node_id
        ):
            continue
        key = failure_class, name
        group = groups.get(key)
        if group is None:
            group = groups[key] = FailureGroup(
                failure_class=failure_class, rule=name, explanation=explain_rule(name, rules)
            )
            seen[key] = set()
        group.n_executions += 1
        group.tests.add(node_id)
        group.runs.add(run_id)
        if len(group.examples) < n_examples and message not in seen[key]:
            seen[key].add(message)
            group.examples.append(FailureExample(node_id=node_id, run_id=run_id, message=message))
    return sorted(
        groups.values(), key=lambda g: (_CLASS_ORDER.get(g.failure_class, 99), -g.n_executions, g.rule)
    )


def explain_rule(name: str, rules: FailureRules) -> str:
    """What a rule means, in words.

    Examples
    --------
    >>> from fastci_ml.sources.failures.rule_files import shipped_rules
    >>> explain_rule("setup", shipped_rules()), explain_rule("no-such", shipped_rules())
    ('set-up failed before the test began', 'no rule of this name is in force now')
    """
    found = rules.get(name)
    return found.because if found else EXPLANATIONS.get(name, "no rule of this name is in force now")

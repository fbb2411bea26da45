"""What the logs of a test's processes say about its failure, put into the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastci_ml.errors import ReportError
from fastci_ml.records.outcomes import FailureClass
from fastci_ml.sources.failures.classify import Classification, root_cause
from fastci_ml.sources.failures.rank_logs import RankLogs, read_rank_logs
from fastci_ml.sources.failures.rule_files import shipped_rules
from fastci_ml.sources.failures.rules import FailureRules
from fastci_ml.sources.failures.run_logs import WHOLE_RUN
from fastci_ml.sources.reports import CLASS_CODE, CLASSES, Report

_MESSAGE_LIMIT = 200
# Whether an attempt failed, and whether another of its attempts passed, no log can change.
_CERTAIN = frozenset((FailureClass.NONE, FailureClass.FLAKY, FailureClass.TEST))


def with_rank_logs(
    report: Report, logs: Mapping[str, Sequence[Path]], rules: FailureRules | None = None
) -> Report:
    """Ask the logs of all ranks about failures that only say that another process failed first.

    Parameters
    ----------
    report : Report
        With rules, as the readers give them.
    logs : mapping of str to sequence of Path
        Node id -> files and folders of logs of that test; `WHOLE_RUN` -> those of the whole run, which are
        asked only where one test alone can be meant.
    rules : FailureRules, optional
        Those in force; the shipped ones by default.

    Returns
    -------
    Report
        Classes, rules and messages of the failures that the logs explain. An exception or an assertion of any
        process makes a failure `TEST` whatever the report says; the other classes fill in what is unknown.
        Logs that cannot be read are notes: the report is as good without them.
    """
    rules = shipped_rules() if rules is None else rules
    asked = _logs_by_row(report, logs, rules)
    notes = list(_unused(asked, logs))
    read: dict[str, RankLogs] = {}
    classes, messages, names = report.classes.copy(), dict(report.messages), dict(report.rules)
    for row, key in asked.items():
        if key is None:
            continue
        if key not in read:
            read[key] = _read(logs[key], rules)
            notes += read[key].notes
        found = root_cause(read[key].ranks, rules)
        if found is not None and _says_more(CLASSES[classes[row]], found):
            classes[row] = CLASS_CODE[found.failure_class]
            names[row] = found.rule
            messages[row] = _joined(messages.get(row, ""), found.cause)
    return replace(report, classes=classes, messages=messages, rules=names, notes=(*report.notes, *notes))


def _read(paths: Sequence[Path], rules: FailureRules) -> RankLogs:
    try:
        return read_rank_logs(paths, rules)
    except ReportError as error:
        return RankLogs(notes=(str(error),))


def _logs_by_row(
    report: Report, logs: Mapping[str, Sequence[Path]], rules: FailureRules
) -> dict[int, str | None]:
    """Which logs each row asks that another process may explain; None where they may be of another test."""
    consequences = {rule.id for rule in rules.rules if rule.is_consequence}
    open_rows = {row: _node_id(report, row) for row, rule in report.rules.items() if rule in consequences}
    unnamed = {node_id for node_id in open_rows.values() if node_id not in logs}
    keys: dict[int, str | None] = {}
    for row, node_id in sorted(open_rows.items()):
        whole = WHOLE_RUN if WHOLE_RUN in logs and len(unnamed) == 1 else None
        keys[row] = node_id if node_id in logs else whole
    others = [CLASS_CODE[c] for c in FailureClass if c not in _CERTAIN]
    for row in np.flatnonzero(np.isin(report.classes, others)).tolist() if logs else ():
        if row not in keys and (node_id := _node_id(report, row)) in logs:
            keys[row] = node_id
    return keys


def _node_id(report: Report, row: int) -> str:
    return str(report.node_ids[row].as_py())


def _unused(asked: Mapping[int, str | None], logs: Mapping[str, Sequence[Path]]) -> Iterator[str]:
    n_open = sum(key is None for key in asked.values())
    if WHOLE_RUN in logs and n_open:
        yield (
            f"{n_open} failures may be explained by logs that do not say which test they are of, so they are "
            'not: name them by test in run.json, "logs": {"<test id>": "<folder>"}'
        )


def _says_more(known: FailureClass, found: Classification) -> bool:
    return known in (FailureClass.TEST, FailureClass.SETUP) or found.failure_class is FailureClass.TEST


def _joined(message: str, cause: str) -> str:
    """The test's own line and the cause behind it, which is the part that is kept whole."""
    if not cause:
        return message
    room = _MESSAGE_LIMIT - len(cause) - 3
    return f"{message[:room]} ({cause})" if message and room > 0 else cause

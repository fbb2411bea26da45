"""Why tests failed: failures of the history by class, with the rule that gave it.

  fastci-ml failures                                  by class and rule, with examples
  fastci-ml failures --class crash --test test_ckpt   only some
  fastci-ml failures --rules                          every rule in force, and where it comes from
  fastci-ml failures --try job.log                    what the rules make of a text, and why
  fastci-ml failures --try - --logs torchrun-logs/    the same, asking the logs of all ranks

--try takes a file, - for stdin, or the text itself. Only failures of class `test` train the model and count
as found faults; what no rule is sure of is `test`. Your own rules stand in [[tool.fastci.failure_rules]].
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastci_ml.settings import Settings
    from fastci_ml.sources.failures.listing import FailureGroup
    from fastci_ml.sources.failures.rules import FailureRules, Rule
    from fastci_ml.sources.failures.trials import FailureTrial

_SCHEMA = "fastci.failures/1"
_MOST_BYTES = 64 << 20
_PHASES = ("setup", "call", "teardown", "collect")
_NO_RULE = "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--history", type=Path, metavar="DIR", help="folder of the history store")
    parser.add_argument(
        "--class", dest="classes", action="append", default=[], metavar="CLASS", help="only this class"
    )
    parser.add_argument("--rule", metavar="ID", help=f"only this rule; {_NO_RULE} for what no rule knows")
    parser.add_argument("--test", default="", metavar="TEXT", help="only tests whose id holds TEXT")
    parser.add_argument("--examples", type=int, default=3, metavar="N", help="messages a rule (default: 3)")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--rules", action="store_true", help="list the rules in force")
    other.add_argument("--try", dest="text", metavar="FILE|-|TEXT", help="try the rules on a text")
    parser.add_argument("--phase", choices=_PHASES, default="", help="of the failure, for --try")
    parser.add_argument(
        "--logs", type=Path, nargs="+", default=[], metavar="PATH", help="logs of all ranks, for --try"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """List failures or rules, or try a text."""
    from fastci_ml.cli import output
    from fastci_ml.sources.failures.rule_files import load_rules

    rules = load_rules(settings.failure_rules)
    if args.rules:
        document, text = _rules(rules)
    elif args.text is not None:
        document, text = _try(args, rules)
    else:
        document, text = _failures(args, settings, rules)
    if args.json:
        output.answer_json({"schema": _SCHEMA, **document})
    else:
        output.answer(text)
    return 0


def _failures(
    args: argparse.Namespace, settings: Settings, rules: FailureRules
) -> tuple[dict[str, Any], str]:
    from fastci_ml.errors import UsageError
    from fastci_ml.records.outcomes import FailureClass
    from fastci_ml.sources.failures.listing import list_failures
    from fastci_ml.sources.history.store import HistoryStore

    known = [failure_class.value for failure_class in FailureClass if failure_class.value]
    if unknown := [name for name in args.classes if name not in known]:
        raise UsageError(f"--class {unknown[0]!r}, expected one of {', '.join(known)}", hint="--class test")
    if args.examples < 0:
        raise UsageError(f"--examples {args.examples}, expected 0 or more", hint="--examples 3")
    store = HistoryStore(args.history or settings.history_dir)
    groups = list_failures(
        store,
        rules,
        classes=args.classes,
        rule="" if args.rule == _NO_RULE else args.rule,
        test=args.test,
        n_examples=args.examples,
    )
    document = {"history": str(store.directory), "failures": [_group(group) for group in groups]}
    text = "\n".join(_describe(group) for group in groups) or f"{store.directory}: no such failures"
    return document, text


def _group(group: FailureGroup) -> dict[str, Any]:
    return {
        "class": group.failure_class,
        "rule": group.rule,
        "explanation": group.explanation,
        "n_executions": group.n_executions,
        "n_tests": len(group.tests),
        "n_runs": len(group.runs),
        "examples": [
            {"test": example.node_id, "run_id": example.run_id, "message": example.message}
            for example in group.examples
        ],
    }


def _describe(group: FailureGroup) -> str:
    lines = [
        f"{group.failure_class or 'no class'}  {group.rule or '(no rule)'}: {group.explanation}",
        f"  {group.n_executions:,} executions, {len(group.tests):,} tests, {len(group.runs):,} runs",
    ]
    for example in group.examples:
        lines += [f"  {example.run_id}  {example.node_id}", f"      {example.message or '(no message)'}"]
    return "\n".join(lines)


def _rules(rules: FailureRules) -> tuple[dict[str, Any], str]:
    from fastci_ml.sources.failures.classify import EXPLANATIONS

    built_in = {name: text for name, text in EXPLANATIONS.items() if name}
    document = {
        "rules": [_rule(rule) for rule in rules.rules],
        "switched_off": list(rules.disabled),
        "built_in": built_in,
    }
    lines = [f"{rule.origin:<8} {_class_of(rule):<15} {rule.id}: {rule.because}" for rule in rules.rules]
    lines += [f"{'built in':<8} {'':<15} {name}: {text}" for name, text in built_in.items()]
    if rules.disabled:
        lines.append(f"shipped, but switched off or replaced: {', '.join(rules.disabled)}")
    return document, "\n".join(lines)


def _class_of(rule: Rule) -> str:
    return "asks the ranks" if rule.is_consequence else rule.failure_class.value


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "class": rule.failure_class.value,
        "because": rule.because,
        "origin": rule.origin.value,
        "consequence": rule.is_consequence,
        "look_in": [place.value for place in rule.places],
        "phases": list(rule.phases),
        "exit_statuses": sorted(rule.statuses),
        **{name: [pattern.source for pattern in getattr(rule, name)] for name in ("any", "all", "none")},
    }


def _try(args: argparse.Namespace, rules: FailureRules) -> tuple[dict[str, Any], str]:
    from fastci_ml.sources.failures.rank_logs import read_rank_logs
    from fastci_ml.sources.failures.trials import try_text

    logs = read_rank_logs(args.logs, rules)
    trial = try_text(_text(args.text), rules, phase=args.phase, ranks=logs.ranks)
    return {**_trial(trial), "notes": list(logs.notes)}, _describe_trial(trial, logs.notes)


def _text(word: str) -> str:
    """Text of a file, of stdin, or the word itself."""
    from fastci_ml.errors import UsageError

    if word == "-":
        return sys.stdin.buffer.read(_MOST_BYTES).decode("utf-8", "replace")
    try:
        if not Path(word).is_file():
            return word
        with Path(word).open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except ValueError:
        return word  # no file has such a name
    except OSError as error:
        raise UsageError(f"--try {word}: cannot be read: {error}", hint="--try - < FILE") from error


def _trial(trial: FailureTrial) -> dict[str, Any]:
    return {
        "class": trial.found.failure_class.value,
        "rule": trial.found.rule,
        "explanation": trial.found.explanation,
        "cause": trial.found.cause,
        "as_log": None
        if trial.as_log is None
        else {"class": trial.as_log.failure_class.value, "rule": trial.as_log.rule},
        "own_words": trial.words,
        "barred_by": trial.barred_by,
        "rules": [
            {
                "id": one.rule.id,
                "class": one.rule.failure_class.value,
                "matches": one.is_match,
                "why": one.why,
            }
            for one in trial.trials
        ],
    }


def _describe_trial(trial: FailureTrial, notes: tuple[str, ...]) -> str:
    found = trial.found
    lines = [f"class {found.failure_class.value}", f"  {found.rule or '(no rule)'}: {found.explanation}"]
    if found.cause:
        lines.append(f"  {found.cause}")
    if found.is_consequence:
        lines.append("  the logs of all ranks can say more: --logs PATH")
    if trial.as_log is not None and trial.as_log.rule != found.rule:
        lines.append(
            f"as the log of a process: class {trial.as_log.failure_class.value}, "
            f"{trial.as_log.rule or '(no rule)'}: {trial.as_log.explanation}"
        )
    if trial.barred_by:
        lines.append(f"shipped rules are not asked because of {trial.barred_by!r}")
    for one in trial.trials:
        word = "matches" if one.is_match else "nearly matches"
        lines.append(f"{word} {one.rule.id} ({one.rule.origin}, {one.rule.failure_class.value}): {one.why}")
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])

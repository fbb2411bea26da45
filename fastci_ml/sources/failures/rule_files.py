"""The rules in force, checked: those of the project's settings before the shipped ``failure_rules.toml``."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from fastci_ml.errors import SettingsError
from fastci_ml.records.outcomes import FailureClass
from fastci_ml.sources.failures.pattern_cost import MOST_STEPS, most_steps
from fastci_ml.sources.failures.rules import Evidence, Example, FailureRules, Origin, Pattern, Place, Rule
from fastci_ml.sources.failures.texts import assertion_in, exit_statuses, own_words

SCHEMA = "fastci.failure-rules/1"
# Stands in place of a rule where attempts decide: see `reports`.
FLAKY_RULE = "failed-and-passed"
# Given by the code, not by rules: `failures` says when.
BUILT_IN = ("assertion", "program-error", "setup", "rank-failed", FLAKY_RULE)
_PHASES = ("setup", "call", "teardown", "collect")
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# Flaky is what attempts show, and no failure is no class.
_CLASSES = tuple(c.value for c in FailureClass if c not in (FailureClass.NONE, FailureClass.FLAKY))
_KEYS: dict[str, type] = {
    "id": str,
    "class": str,
    "because": str,
    "look_in": list,
    "phases": list,
    "exit_statuses": list,
    "pattern": str,
    "any": list,
    "all": list,
    "none": list,
    "consequence": bool,
    "enabled": bool,
    "examples": list,
    "counter_examples": list,
}


@lru_cache(maxsize=1)
def shipped_rules() -> FailureRules:
    """Rules that come with the package."""
    text = files("fastci_ml.sources.failures").joinpath("failure_rules.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    assert document["schema"] == SCHEMA
    return FailureRules(
        tuple(_rule(f"failure_rules.toml [{i}]", e, Origin.SHIPPED) for i, e in enumerate(document["rules"]))
    )


def load_rules(entries: Sequence[Any] = (), name: str = "failure_rules") -> FailureRules:
    """Rules in force for a project.

    Parameters
    ----------
    entries : sequence
        Tables of the setting ``failure_rules``, not yet checked. One with the id of a shipped rule takes its
        place, or switches it off with ``enabled = false``; all stand before the shipped ones, in their order.
    name : str
        Of the setting, for messages.

    Raises
    ------
    SettingsError
        Names the rule, the key, what was found and what was expected.
    """
    shipped = shipped_rules()
    if not entries:
        return shipped
    own: dict[str, Rule | None] = {}
    for place, entry in enumerate(entries):
        where = f"{name}[{place}]"
        if isinstance(entry, Mapping) and entry.get("enabled") is False:
            rule_id, rule = _switched_off(where, entry, shipped), None
        else:
            rule = _rule(where, entry, Origin.PROJECT)
            rule_id = rule.id
            _check_examples(f"{where} ({rule_id})", rule)
        if rule_id in own:
            raise SettingsError(f"{where}: a second rule {rule_id!r}", hint="give each rule an id of its own")
        own[rule_id] = rule
    return FailureRules(
        tuple(rule for rule in own.values() if rule) + tuple(r for r in shipped.rules if r.id not in own),
        disabled=tuple(r.id for r in shipped.rules if r.id in own),
    )


def example_evidence(example: Example) -> Evidence:
    """Evidence of an example as the readers would gather it from a report."""
    message = own_words(example.message)
    return Evidence(phase=example.phase, message=message, log=example.log, statuses=exit_statuses(message))


def _switched_off(where: str, entry: Mapping[str, Any], shipped: FailureRules) -> str:
    rule_id = entry.get("id")
    extra = sorted(set(entry) - {"id", "enabled"})
    if extra:
        raise SettingsError(
            f"{where}: enabled = false stands with {', '.join(extra)}, expected an id alone",
            hint="to replace a shipped rule, leave `enabled` out",
        )
    if not isinstance(rule_id, str) or shipped.get(rule_id) is None:
        near = difflib.get_close_matches(str(rule_id), [rule.id for rule in shipped.rules], n=1)
        raise SettingsError(
            f"{where}: there is no shipped rule {rule_id!r} to switch off",
            hint=f"did you mean {near[0]!r}?" if near else "fastci-ml failures --rules",
        )
    return rule_id


def _rule(where: str, entry: Any, origin: Origin) -> Rule:
    if not isinstance(entry, Mapping):
        raise SettingsError(f"{where} is {type(entry).__name__}, expected a table")
    where = f"{where} ({entry['id']})" if isinstance(entry.get("id"), str) else where
    for key, value in entry.items():
        _check_key(where, key, value)
    if missing := [key for key in ("id", "class", "because") if not entry.get(key)]:
        raise SettingsError(f"{where}: {', '.join(missing)} missing", hint="id, class and because are needed")
    _check_id(where, entry["id"])
    rule = Rule(
        id=entry["id"],
        failure_class=FailureClass(_one_of(where, "class", entry["class"], _CLASSES)),
        because=entry["because"],
        places=tuple(
            Place(_one_of(where, "look_in", p, tuple(Place))) for p in entry.get("look_in", tuple(Place))
        ),
        phases=tuple(_one_of(where, "phases", phase, _PHASES) for phase in entry.get("phases", ())),
        statuses=frozenset(_each(where, "exit_statuses", entry.get("exit_statuses", ()), _status)),
        any=_patterns(where, entry, origin, "any", [entry["pattern"]] if "pattern" in entry else []),
        all=_patterns(where, entry, origin, "all"),
        none=_patterns(where, entry, origin, "none"),
        is_consequence=entry.get("consequence", False),
        examples=_each(where, "examples", entry.get("examples", ()), _example),
        counter_examples=_each(where, "counter_examples", entry.get("counter_examples", ()), _example),
        origin=origin,
    )
    if not (rule.any or rule.all or rule.statuses):
        raise SettingsError(
            f"{where}: nothing to look for, expected pattern, any, all or exit_statuses",
            hint="pattern = 'artifact server .{0,200} is down'",
        )
    if rule.is_consequence and rule.failure_class is not FailureClass.TEST:
        raise SettingsError(
            f"{where}: a consequence of class {rule.failure_class.value!r}, expected 'test': only what "
            "failed first can say more"
        )
    return rule


def _check_key(where: str, key: str, value: object) -> None:
    if key not in _KEYS:
        near = difflib.get_close_matches(key, _KEYS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(_KEYS)}"
        raise SettingsError(f"{where}: unknown key {key!r}", hint=hint)
    if not isinstance(value, _KEYS[key]):
        raise SettingsError(f"{where}: {key} is {type(value).__name__}, expected {_KEYS[key].__name__}")


def _check_id(where: str, rule_id: str) -> None:
    if not _ID.fullmatch(rule_id) or len(rule_id) > 60:
        raise SettingsError(
            f"{where}: id {rule_id!r}, expected lower-case words joined by '-', at most 60 letters"
        )
    if rule_id in BUILT_IN:
        raise SettingsError(f"{where}: id {rule_id!r} is taken; taken are {', '.join(BUILT_IN)}")


def _one_of(where: str, key: str, value: object, known: Sequence[str]) -> str:
    if value not in known:
        near = difflib.get_close_matches(str(value), known, n=1)
        raise SettingsError(
            f"{where}: {key} is {value!r}, expected one of {', '.join(known)}",
            hint=f"did you mean {near[0]!r}?" if near else None,
        )
    return str(value)


def _each(where: str, key: str, values: Sequence[Any], make: Callable[[Any], Any]) -> tuple[Any, ...]:
    try:
        return tuple(make(value) for value in values)
    except ValueError as error:
        raise SettingsError(f"{where}: {key}: {error}") from error


def _status(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -64 <= value <= 255 or value == 0:
        raise ValueError(f"{value!r}, expected an exit code from 1 to 255, or minus a signal")
    return value


def _example(value: object) -> Example:
    if isinstance(value, str):
        return Example(message=value)
    known = {"message", "log", "phase"}
    if isinstance(value, Mapping) and set(value) <= known and all(isinstance(v, str) for v in value.values()):
        return Example(**value)
    raise ValueError(f"{value!r}, expected text or a table of {', '.join(sorted(known))}")


def _patterns(
    where: str, entry: Mapping[str, Any], origin: Origin, key: str, more: Sequence[str] = ()
) -> tuple[Pattern, ...]:
    found = []
    for source in (*more, *entry.get(key, ())):
        if origin is Origin.SHIPPED:
            found.append(Pattern(source))  # a test checks these; here they are compiled when they are needed
            continue
        name = f"{where}: pattern {source!r}"
        if not isinstance(source, str) or not source:
            raise SettingsError(f"{name}, expected a regular expression")
        check_pattern(name, source)
        found.append(Pattern(source))
    return tuple(found)


def check_pattern(name: str, source: str) -> None:
    """Refuse what is no regular expression, matches everything, or may take long on some text.

    Raises
    ------
    SettingsError
        Begins with `name`.
    """
    try:
        compiled = re.compile(source, re.MULTILINE)
        steps = most_steps(source)
    except (re.error, RecursionError, OverflowError) as error:
        raise SettingsError(f"{name} is no regular expression: {error}") from error
    except ValueError as error:
        raise SettingsError(f"{name} has {error}") from error
    if steps > MOST_STEPS:
        raise SettingsError(
            f"{name} may take {steps:,} steps at one place of a text, at most {MOST_STEPS:,} are allowed",
            hint="bound its repetitions lower, make them possessive ({0,200}+), or split it into `all`",
        )
    if compiled.search(""):
        raise SettingsError(f"{name} matches the empty text, so every failure would match")


def _check_examples(where: str, rule: Rule) -> None:
    for example in rule.examples:
        evidence = example_evidence(example)
        if assertion_in(evidence.message):
            raise SettingsError(
                f"{where}: its example is an assertion, which is always class test: {example}"
            )
        if not rule.matches(evidence):
            raise SettingsError(f"{where}: does not match its own example: {example}")
    for example in rule.counter_examples:
        if rule.matches(example_evidence(example)):
            raise SettingsError(f"{where}: matches its own counter-example: {example}")

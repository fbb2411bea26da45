"""The shipped rules keep what their file promises; rules of a project are checked, and stand before them."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.errors import SettingsError
from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.failures.classify import EXPLANATIONS, classify, judge
from fastci_ml.sources.failures.rule_files import (
    BUILT_IN,
    check_pattern,
    example_evidence,
    load_rules,
    shipped_rules,
)
from fastci_ml.sources.failures.rules import Origin, Pattern, Rule

RULES = shipped_rules().rules
PATTERNS = [(rule.id, pattern) for rule in RULES for pattern in rule.patterns()]
_MB = 1 << 20


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_example_gets_its_rule_from_the_whole_table(rule: Rule) -> None:
    assert rule.examples
    for example in rule.examples:
        assert judge(example_evidence(example), shipped_rules()).rule == rule.id, example


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_no_counter_example_gets_its_rule(rule: Rule) -> None:
    assert rule.counter_examples
    for example in rule.counter_examples:
        assert judge(example_evidence(example), shipped_rules()).rule != rule.id, example


@pytest.mark.parametrize(("rule_id", "pattern"), PATTERNS, ids=lambda value: getattr(value, "source", value))
def test_every_shipped_pattern_is_bounded_and_tells_what_it_needs(rule_id: str, pattern: Pattern) -> None:
    check_pattern(rule_id, pattern.source)
    assert pattern.needs


def test_ids_are_distinct_and_none_is_taken() -> None:
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)
    assert not set(ids) & set(BUILT_IN)
    assert set(BUILT_IN) == set(EXPLANATIONS) - {""}


def test_only_consequences_are_of_class_test() -> None:
    assert [r.id for r in RULES if r.failure_class is FailureClass.TEST] == [
        r.id for r in RULES if r.is_consequence
    ]


def _adversary(pattern: Pattern) -> str:
    """A megabyte that begins a match again and again and never finishes it."""
    beginning = min(pattern.needs)[:-1]
    return (beginning * (_MB // len(beginning) + 1))[:_MB]


def test_a_megabyte_costs_every_pattern_about_what_a_simple_scan_costs() -> None:
    text = "a" * _MB
    started = time.process_time()
    for _ in range(5):
        re.search(r"[^\0]\0", text)
    scan_s = (time.process_time() - started) / 5
    for rule_id, pattern in PATTERNS:
        compiled = re.compile(pattern.source, re.MULTILINE)
        adversary = _adversary(pattern)
        started = time.process_time()
        compiled.search(adversary)
        # The loader allows 2,000 steps at a place; a pattern without a bound takes years.
        assert time.process_time() - started < 200 * max(scan_s, 0.005), (rule_id, pattern.source)


@given(st.sampled_from(list(Outcome)), st.sampled_from(["", "setup", "call"]), st.text())
def test_any_text_has_a_class(outcome: Outcome, phase: str, message: str) -> None:
    found = classify(outcome, phase, message)
    assert (found.failure_class is FailureClass.NONE) == (not outcome.is_failure)


_example_texts = st.sampled_from([e.message for rule in RULES for e in rule.examples if e.message])


@given(_example_texts, st.sampled_from(["AssertionError: {}", "assert '{}' in log", "Failed: {!r} is odd"]))
def test_an_assertion_is_test_whatever_it_quotes(quoted: str, form: str) -> None:
    if form.startswith("Failed") and quoted.startswith("Failed: Timeout"):
        return
    assert classify(Outcome.FAILED, "call", form.format(quoted)).failure_class is FailureClass.TEST


@given(_example_texts, st.sampled_from(["ValueError", "KeyError", "TypeError", "a.b.ModuleNotFoundError"]))
def test_an_error_of_the_program_is_test_whatever_it_quotes(quoted: str, kind: str) -> None:
    found = classify(Outcome.FAILED, "call", f"{kind}: {quoted!r}")
    assert (found.failure_class, found.rule) == (FailureClass.TEST, "program-error")


def rule(**keys: Any) -> dict[str, Any]:
    return {"id": "own", "class": "infrastructure", "because": "it is so", "pattern": "depot is down", **keys}


def test_rules_of_a_project_stand_before_the_shipped_ones() -> None:
    rules = load_rules([rule(pattern="No space left on device", **{"class": "environment"})])
    found = classify(Outcome.FAILED, "", "OSError: [Errno 28] No space left on device", rules=rules)
    assert (found.failure_class, found.rule, found.explanation) == ("environment", "own", "it is so")
    assert [r.origin for r in rules.rules[:2]] == [Origin.PROJECT, Origin.SHIPPED]


def test_a_project_may_replace_a_shipped_rule_or_switch_it_off() -> None:
    rules = load_rules([rule(id="disk-full", pattern="my disk"), {"id": "unreachable", "enabled": False}])
    assert rules.disabled == ("disk-full", "unreachable")
    for message in (
        "OSError: [Errno 28] No space left on device",
        "OSError: [Errno 101] Network is unreachable",
    ):
        assert classify(Outcome.FAILED, "", message, rules=rules).failure_class is FailureClass.TEST
    assert classify(Outcome.FAILED, "", "OSError: my disk", rules=rules).rule == "disk-full"


def test_a_rule_of_a_project_may_know_an_error_of_the_program_but_no_assertion() -> None:
    rules = load_rules([rule(pattern="licence server")])
    assert classify(Outcome.FAILED, "", "KeyError: 'licence server'", rules=rules).rule == "own"
    assert classify(Outcome.FAILED, "", "AssertionError: licence server", rules=rules).rule == "assertion"


def test_a_rule_may_ask_for_a_phase_all_of_several_patterns_and_none_of_others() -> None:
    rules = load_rules(
        [
            {
                "id": "depot",
                "class": "infrastructure",
                "because": "the depot is down",
                "phases": ["setup"],
                "all": ["depot", "timed out"],
                "none": ["localhost"],
                "examples": [{"message": "OSError: depot timed out", "phase": "setup"}],
                "counter_examples": ["OSError: depot timed out"],
            }
        ]
    )
    assert classify(Outcome.ERROR, "setup", "OSError: depot x timed out", rules=rules).rule == "depot"
    for phase, message in [
        ("call", "OSError: depot x timed out"),
        ("setup", "OSError: depot is empty"),
        ("setup", "OSError: depot timed out at localhost"),
    ]:
        assert classify(Outcome.ERROR, phase, message, rules=rules).rule != "depot"


def test_rules_do_not_depend_on_the_order_of_keys_and_are_the_same_each_time() -> None:
    one, other = rule(none=["x"]), dict(reversed(rule(none=["x"]).items()))
    first, second = load_rules([one]), load_rules([other])
    assert [r.id for r in first.rules] == [r.id for r in second.rules]
    assert load_rules() is shipped_rules()


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        (["text"], r"failure_rules\[0\] is str, expected a table"),
        ([rule(patern="x")], r"unknown key 'patern'"),
        ([rule(id="Own Rule")], r"id 'Own Rule', expected lower-case words"),
        ([rule(id="setup")], r"id 'setup' is taken"),
        ([rule(id=3)], r"id is int, expected str"),
        ([rule(**{"class": "infra"})], r"class is 'infra', expected one of test, setup"),
        ([rule(**{"class": "flaky"})], r"class is 'flaky', expected one of"),
        ([{"id": "own", "class": "test"}], r"\(own\): because missing"),
        ([{"id": "own", "class": "crash", "because": "b"}], r"nothing to look for"),
        ([rule(pattern="(a")], r"pattern '\(a' is no regular expression: missing \)"),
        ([rule(pattern="(a+)+$")], r"has a repetition without an upper limit"),
        ([rule(pattern="(?:a|b|ab){0,20}c")], r"may take [\d,]+ steps at one place of a text, at most 2,000"),
        ([rule(pattern="x?")], r"matches the empty text"),
        ([rule(any=[3])], r"pattern 3, expected a regular expression"),
        ([rule(look_in=["mesage"])], r"look_in is 'mesage', expected one of message, log"),
        ([rule(phases=["boot"])], r"phases is 'boot'"),
        ([rule(exit_statuses=[0])], r"exit_statuses: 0, expected an exit code"),
        ([rule(exit_statuses=["9"])], r"exit_statuses: '9', expected an exit code"),
        ([rule(consequence=True)], r"a consequence of class 'infrastructure', expected 'test'"),
        ([rule(examples=["something else"])], r"does not match its own example"),
        ([rule(examples=["AssertionError: depot is down"])], r"its example is an assertion"),
        ([rule(counter_examples=["depot is down"])], r"matches its own counter-example"),
        ([rule(examples=[{"mesage": "x"}])], r"examples: .* expected text or a table of log, message, phase"),
        ([rule(), rule()], r"failure_rules\[1\]: a second rule 'own'"),
        ([{"id": "disk-ful", "enabled": False}], r"there is no shipped rule 'disk-ful' to switch off"),
        ([rule(enabled=False)], r"enabled = false stands with because, class, pattern"),
    ],
)
def test_a_wrong_rule_is_named_with_what_was_expected(entries: list[Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says) as caught:
        load_rules(entries)
    assert str(caught.value).startswith("failure_rules[")


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        (rule(patern="x"), "did you mean 'pattern'?"),
        (rule(**{"class": "crsh"}), "did you mean 'crash'?"),
        ({"id": "disk-ful", "enabled": False}, "did you mean 'disk-full'?"),
    ],
)
def test_a_wrong_word_gets_the_nearest_right_one(entry: dict[str, Any], hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_rules([entry])
    assert caught.value.hint == hint

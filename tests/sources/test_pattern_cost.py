"""Patterns of rules take a bounded number of steps at a place of a text, and say what a match must hold."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.sources.failures.pattern_cost import MOST_STEPS, most_steps, required_texts


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|a)*b", "a.*b", "x+", r"\d{3,}", "(?:[ab]{1,3}){2,}", r"(a)\1", r"(a)?(?(1)b|c)"],
)
def test_what_has_no_bound_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"upper limit|reference back"):
        most_steps(pattern)


@pytest.mark.parametrize(
    "pattern", ["(?:a{0,9}){0,9}b", "(?:a|b|ab){0,20}c", ".{0,100}a.{0,100}b", "(?:x?){0,25}y"]
)
def test_bounded_nests_that_explode_are_over_the_limit(pattern: str) -> None:
    assert most_steps(pattern) > MOST_STEPS


@pytest.mark.parametrize(
    "pattern", ["No space left on device", "a.{0,200}b", "(?>ab|a)c", "[0-9]{1,9}+ ms", "(?<!x)y"]
)
def test_plain_patterns_are_within_the_limit(pattern: str) -> None:
    assert 0 < most_steps(pattern) <= MOST_STEPS


_atoms = st.sampled_from(
    ["a", "b", "abc", "[ab]", ".", "(?:ab|c)", "(?:abc|bca)", "(?:a{1,2}b)", "a?", "(?=a)"]
)
_patterns = st.lists(
    st.tuples(_atoms, st.sampled_from(["", "{0,2}", "{1,3}", "?", "{2}"])).map(
        lambda pair: pair[0] + pair[1] if pair[0] != "a?" and "=" not in pair[0] else pair[0]
    ),
    min_size=1,
    max_size=4,
).map("".join)


@given(_patterns, st.text("abc", max_size=12))
def test_every_match_holds_one_of_the_required_texts(pattern: str, text: str) -> None:
    match = re.search(pattern, text)
    needed = required_texts(pattern)
    if match and needed:
        assert any(one in text for one in needed)


@given(_patterns, st.text("abc", max_size=10))
def test_the_ways_of_a_slow_obvious_matcher_are_within_the_bound(pattern: str, text: str) -> None:
    # Each way to match at one place ends somewhere: there are never more ends than steps.
    ends = {end for end in range(len(text) + 1) if re.compile(f"(?:{pattern})").fullmatch(text, 0, end)}
    assert len(ends) <= most_steps(pattern)

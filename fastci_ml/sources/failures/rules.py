"""Rules that recognise a kind of failure: data, tried in order, the first match decides.

What they look at is `Evidence`: a failure's own words, lines of its processes' logs, exit statuses, phase.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from fastci_ml.records.outcomes import FailureClass
from fastci_ml.sources.failures.pattern_cost import required_texts
from fastci_ml.sources.failures.texts import bounded

LOG_LIMIT = 128_000
_QUOTE_LIMIT = 120


class Place(StrEnum):
    """Where the patterns of a rule are searched."""

    MESSAGE = "message"  # what the failure says itself
    LOG = "log"  # lines of the logs of all its processes


class Origin(StrEnum):
    """Who wrote a rule."""

    SHIPPED = "shipped"
    PROJECT = "project"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of one failure.

    Attributes
    ----------
    phase : str
        ``setup``, ``call``, ``teardown`` or ``collect``; empty when unknown.
    message : str
        Its own words, see `failure_texts.own_words`.
    log : str
        Lines of logs; at most `LOG_LIMIT` characters count.
    statuses : frozenset of int
        Exit codes; minus the signal where one ended a process.
    """

    phase: str = ""
    message: str = ""
    log: str = ""
    statuses: frozenset[int] = frozenset()

    def text(self, place: Place) -> str:
        """Text of one place."""
        return self.message if place is Place.MESSAGE else bounded(self.log, LOG_LIMIT)


class Pattern:
    """A regular expression that is compiled when a text might match it.

    Parameters
    ----------
    source : str
        Searched with ``^`` and ``$`` at every line.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.source, re.MULTILINE)

    @cached_property
    def needs(self) -> frozenset[str]:
        """Texts of which a match holds at least one; empty when that says nothing."""
        return required_texts(self.source)

    def search(self, text: str) -> re.Match[str] | None:
        """First match."""
        if self.needs and not any(needed in text for needed in self.needs):
            return None
        return self._compiled.search(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Evidence that a rule must match, or must not."""

    message: str = ""
    log: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """How one rule fared.

    Attributes
    ----------
    rule : Rule
        The rule.
    is_match : bool
        Whether everything that it asks for is there.
    is_near : bool
        Whether something that it looks for is there and yet it does not match.
    why : str
        In words; empty when nothing of it is there.
    """

    rule: Rule
    is_match: bool
    is_near: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way to recognise a kind of failure. Everything that it states must hold.

    Attributes
    ----------
    id : str
        Stable name; the history keeps it.
    failure_class : FailureClass
        What a match means.
    because : str
        The same in words, for a person.
    places : tuple of Place
        Where patterns are searched; those of `all` must be in one of them together.
    phases : tuple of str
        Phases in which it holds; every one when empty.
    statuses : frozenset of int
        One of these must be among the exit statuses, unless empty.
    any, all, none : tuple of Pattern
        At least one, every one, and not one of these must be found.
    is_consequence : bool
        The failure only says that another process failed first: the logs of the others are asked.
    examples, counter_examples : tuple of Example
        What it matches and what not; a test, and for rules of a project the loader, tries them.
    origin : Origin
        Who wrote it.
    """

    id: str
    failure_class: FailureClass
    because: str
    places: tuple[Place, ...] = tuple(Place)
    phases: tuple[str, ...] = ()
    statuses: frozenset[int] = frozenset()
    any: tuple[Pattern, ...] = ()
    all: tuple[Pattern, ...] = ()
    none: tuple[Pattern, ...] = ()
    is_consequence: bool = False
    examples: tuple[Example, ...] = ()
    counter_examples: tuple[Example, ...] = ()
    origin: Origin = Origin.SHIPPED

    def matches(self, evidence: Evidence) -> bool:
        """Whether everything that the rule states holds."""
        return self.attempt(evidence).is_match

    def attempt(self, evidence: Evidence) -> Trial:
        """Try the rule, and say why it matches or what is against it."""
        finds = [found for place in self.places if (found := self._found_in(evidence, place)) is not None]
        if not finds and (self.any or self.all):
            return Trial(self, is_match=False, is_near=False, why="")
        quotes = [quote for _, quote in finds]
        against = min((missing for missing, _ in finds), key=len, default=[])
        if self.phases and evidence.phase not in self.phases:
            against = [*against, f"phase {evidence.phase or 'unknown'}, expected {' or '.join(self.phases)}"]
        if self.statuses:
            stated = sorted(self.statuses & evidence.statuses)
            quotes += [f"exit status {status}" for status in stated]
            if not stated:
                against = [*against, f"no exit status of {', '.join(map(str, sorted(self.statuses)))}"]
        against = [*against, *dict.fromkeys(self._excluded(evidence))]
        if not against:
            return Trial(self, is_match=True, is_near=False, why=", ".join(quotes) or "its phase")
        why = f"{', '.join(quotes)}, but {', '.join(against)}" if quotes else ""
        return Trial(self, is_match=False, is_near=bool(quotes), why=why)

    def may_match(self, texts: Sequence[str]) -> bool:
        """Whether any of `texts` holds what the rule cannot do without: a cheap answer, never a wrong no."""
        wanted = self.any or self.all[:1]
        for pattern in wanted:
            if not pattern.needs:
                return True
            for needed in pattern.needs:
                for text in texts:
                    if needed in text:
                        return True
        return not wanted

    def patterns(self) -> tuple[Pattern, ...]:
        """All patterns of the rule."""
        return (*self.any, *self.all, *self.none)

    def _found_in(self, evidence: Evidence, place: Place) -> tuple[list[str], str] | None:
        """What is missing there, and what is found; None when nothing is."""
        text = evidence.text(place)
        if not text:
            return None
        one = next((hit for pattern in self.any if (hit := pattern.search(text))), None)
        hits = [(pattern, pattern.search(text)) for pattern in self.all]
        found = [hit for hit in (one, *(hit for _, hit in hits)) if hit is not None]
        if not found:
            return None
        missing = [f"without {pattern.source!r}" for pattern, hit in hits if hit is None]
        if self.any and one is None:
            missing.append(f"without {' or '.join(repr(pattern.source) for pattern in self.any)}")
        return missing, f"{place} says {', '.join(repr(hit[0][:_QUOTE_LIMIT]) for hit in found)}"

    def _excluded(self, evidence: Evidence) -> Iterator[str]:
        # Wherever it stands: an exclusion that is seen in the message speaks against a find in the log too.
        for place in self.places if self.none else ():
            text = evidence.text(place)
            for pattern in self.none:
                if hit := pattern.search(text):
                    yield f"excluded by {hit[0][:_QUOTE_LIMIT]!r}"


@dataclass(frozen=True)
class FailureRules:
    """Rules in the order in which they are tried: those of the project, then the shipped ones.

    Attributes
    ----------
    rules : tuple of Rule
        With distinct ids.
    disabled : tuple of str
        Ids of shipped rules that the project switched off or replaced.
    """

    rules: tuple[Rule, ...]
    disabled: tuple[str, ...] = field(default=())

    def decide(self, evidence: Evidence, *, is_program_error: bool = False) -> Rule | None:
        """First rule that matches.

        Parameters
        ----------
        evidence : Evidence
            What is known.
        is_program_error : bool
            Then only a rule of the project may match: the shipped ones would match what the error quotes.
        """
        texts = [text for place in Place if (text := evidence.text(place))]
        for rule in self.rules:
            if is_program_error and rule.origin is Origin.SHIPPED:
                continue
            if rule.may_match(texts) and rule.matches(evidence):
                return rule
        return None

    def attempts(self, evidence: Evidence) -> list[Trial]:
        """Every rule's trial, in order."""
        return [rule.attempt(evidence) for rule in self.rules]

    def get(self, rule_id: str) -> Rule | None:
        """Rule of that id."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)

    @cached_property
    def log_patterns(self) -> tuple[Pattern, ...]:
        """Patterns that are searched in logs: a line that none of them may match matters to no rule."""
        return tuple(
            pattern for rule in self.rules if Place.LOG in rule.places for pattern in rule.patterns()
        )

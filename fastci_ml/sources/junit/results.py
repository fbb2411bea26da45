"""What the child elements of one JUnit case say: one attempt, or several where a tool lists its reruns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.failures.classify import classify, first_line, phase_of
from fastci_ml.sources.failures.rules import FailureRules
from fastci_ml.sources.junit.durations import duration_of

# Worst first: a case may hold several results, and a failed call says more than a failed teardown.
_RESULTS = ("failure", "error", "skipped")
# Surefire: tries before the one that passed, and tries after the one that failed.
_EARLIER, _LATER = ("flakyFailure", "flakyError"), ("rerunFailure", "rerunError")
RESULT_TAGS = frozenset((*_RESULTS, *_EARLIER, *_LATER))
# pytest wrote no more than this into the message before release 6, and still does for what is no test; the
# reason stands in the text.
_OLD_PHASES = {"test setup failure": "setup", "test teardown failure": "teardown"}
_HEADINGS = frozenset((*_OLD_PHASES, "collection failure", "internal error"))
_DIED = re.compile(r"worker '\w+' crashed while running ")
# Attributes of cases by which some tools tell how they ended, without a child. Other words mean other things.
_STATUSES = {
    **dict.fromkeys(("notrun", "not_run", "skipped", "disabled", "ignored", "suppressed"), "skipped"),
    **dict.fromkeys(("failed", "fail", "failure"), "failure"),
    **dict.fromkeys(("error", "errored"), "error"),
}


@dataclass(frozen=True, slots=True)
class Try:
    """How one attempt ended, for the cases that say more than nothing.

    Attributes
    ----------
    outcome, failure_class, message, rule
        As in `Execution`.
    phase : str
        ``setup``, ``teardown`` or empty.
    takes_time_of_case : bool
        Whether the time of the case is that of this attempt; else it is `duration_s`.
    """

    outcome: Outcome
    failure_class: FailureClass = FailureClass.NONE
    phase: str = ""
    message: str = ""
    rule: str = ""
    takes_time_of_case: bool = True
    duration_s: float = float("nan")


@dataclass(frozen=True, slots=True)
class CaseEvent:
    """A child element of a case that tells how it ended; the text of a failure where it has no message."""

    tag: str
    type: str
    message: str
    time: str = ""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What the children of one case say.

    Attributes
    ----------
    tries : tuple of Try
        The attempts that the case stands for, in order; one in nearly every case.
    n_failures, n_errors, n_skipped : int
        Elements of each kind, the tries that Surefire adds left out.
    is_teardown : bool
        Whether an error is one of the teardown.
    is_late : bool
        Whether an error may have come after the call: of the teardown, or a crash.
    """

    tries: tuple[Try, ...]
    n_failures: int
    n_errors: int
    n_skipped: int
    is_teardown: bool
    is_late: bool


def result_of_case(events: Sequence[CaseEvent], rules: FailureRules | None = None) -> CaseResult:
    """What the children of one case say.

    Parameters
    ----------
    events : sequence of CaseEvent
        In the order of the file, not empty.
    rules : FailureRules, optional
        Those in force; the shipped ones by default.
    """
    plain = [(event.tag, _try(event, rules)) for event in events if event.tag in _RESULTS]
    # Of several failures (subtests) the one that is a failure of the test, whatever befell the others.
    ranked = sorted(
        plain,
        key=lambda one: (
            _RESULTS.index(one[0]),
            one[0] == "failure" and one[1].failure_class is not FailureClass.TEST,
        ),
    )
    result = ranked[0][1] if ranked else Try(Outcome.PASSED)
    earlier = [_try(event, rules) for event in events if event.tag in _EARLIER]
    later = [_try(event, rules) for event in events if event.tag in _LATER]
    if earlier or later:
        # Without times of their own the tries share that of the case, and nobody knows how.
        is_split = any(one.duration_s == one.duration_s for one in (*earlier, *later))
        result = replace(result, takes_time_of_case=is_split)
    tags = [tag for tag, _ in plain]
    is_teardown = any(one.phase == "teardown" for _, one in plain)
    return CaseResult(
        tries=(*earlier, result, *later),
        n_failures=tags.count("failure"),
        n_errors=tags.count("error"),
        n_skipped=tags.count("skipped"),
        is_teardown=is_teardown,
        is_late=is_teardown or any(one.failure_class is FailureClass.CRASH for _, one in plain),
    )


def result_of_status(word: str) -> CaseResult | None:
    """What a ``status`` or ``result`` attribute says of a case without a child that tells a result.

    Examples
    --------
    >>> result_of_status("notrun").tries[0].outcome.value
    'skipped'
    >>> result_of_status("completed") is None
    True
    """
    tag = _STATUSES.get(word.strip().lower())
    if tag is None:
        return None
    # No element: the counts of a header of pytest are about elements.
    return replace(result_of_case([CaseEvent(tag, "", "")]), n_failures=0, n_errors=0, n_skipped=0)


def needs_text(event: CaseEvent) -> bool:
    """Whether only the text of an element tells why the test failed."""
    return event.tag != "skipped" and (not event.message or event.message in _HEADINGS)


def _try(event: CaseEvent, rules: FailureRules | None) -> Try:
    if event.tag == "skipped":
        if event.type == "pytest.xfail":
            return Try(Outcome.XFAILED)
        is_xpass = event.message == "xfail-marked test passes unexpectedly"
        return Try(Outcome.XPASSED if is_xpass else Outcome.SKIPPED)
    outcome = Outcome.FAILED if event.tag.lower().endswith("failure") else Outcome.ERROR
    phase, message = phase_of(event.message)
    heading, _, text = event.message.partition("\n")
    if not phase and heading in _OLD_PHASES:
        phase, message = _OLD_PHASES[heading], text or heading
    # Java writes the kind of an exception apart from its message.
    is_named = not event.type or event.type in message
    words = message if is_named else f"{event.type}: {message}"
    found = classify(outcome, phase, words, rules=rules)
    is_own = event.tag not in _RESULTS
    # A worker that died could not tell how long that took: xdist says 0.
    has_died = event.tag == "error" and _DIED.search(message) is not None
    return Try(
        outcome,
        found.failure_class,
        phase,
        first_line(message or event.type),
        found.rule,
        takes_time_of_case=not (is_own or has_died),
        duration_s=duration_of(event.time) if is_own and event.time else float("nan"),
    )

"""Is everything in place, from the interpreter to the evidence, and what to type where it is not.

Exit code 0 if nothing is wrong, 1 if there is a problem; a warning is none. Nothing is written, and nothing
beside pytest has to be installed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fastci_ml.cli.health.finding import Finding
    from fastci_ml.settings import Settings

_MARKS = {"ok": "ok", "warning": "!", "problem": "PROBLEM"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Look at everything, and print what was found."""
    from dataclasses import asdict

    from fastci_ml.cli import output
    from fastci_ml.cli.health.finding import Level

    findings = list(_look(settings))
    problems = [finding for finding in findings if finding.level is Level.PROBLEM]
    if args.json:
        output.answer_json(
            {
                "schema": "fastci.doctor/1",
                "is_sound": not problems,
                "findings": [asdict(finding) for finding in findings],
            }
        )
    else:
        for line in _for_person(findings):
            output.answer(line)
    return 1 if problems else 0


def _look(settings: Settings) -> Iterable[Finding]:
    from fastci_ml.cli.health.evidence import look_at_evidence
    from fastci_ml.cli.health.history import look_at_history
    from fastci_ml.cli.health.interpreter import look_at_interpreter
    from fastci_ml.cli.health.packages import look_at_packages
    from fastci_ml.cli.health.repository import look_at_repository

    yield from look_at_interpreter()
    yield from look_at_packages()
    yield from look_at_repository(settings)
    yield from look_at_evidence(settings)
    yield from look_at_history(settings)


def _for_person(findings: Iterable[Finding]) -> Iterable[str]:
    listed = list(findings)
    width = max(len(finding.name) for finding in listed)
    topic = ""
    for finding in listed:
        if finding.topic != topic:
            yield finding.topic if not topic else f"\n{finding.topic}"
            topic = finding.topic
        yield f"  {_MARKS[finding.level]:<7}  {finding.name:<{width}}  {finding.text}"
        if finding.hint:
            yield f"  {'':<7}  {'':<{width}}  hint: {finding.hint}"
    counts = {level: sum(finding.level == level for finding in listed) for level in ("problem", "warning")}
    yield ""
    yield f"{counts['problem']} problems, {counts['warning']} warnings"

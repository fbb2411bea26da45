"""docs/evidence.md says of reasons, commands and schemas what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from fastci_ml.cli import app
from fastci_ml.records.evidence_kinds import IMPORTED_SCOPES, UNTRUSTED_SCOPE, Gap

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")


def test_table_of_reasons_is_that_of_the_code():
    table = PAGE.partition("| reason | what happened |\n|---|---|\n")[2].partition("\n\n")[0]
    assert table.split("\n") == [f"| `{gap.value}` | {gap.meaning} |" for gap in Gap]


def test_commands_and_options_that_it_names_are_there():
    for name in re.findall(r"`?fastci-ml ([a-z]+)", PAGE):
        assert name in app.COMMANDS, name
    sources = "".join(path.read_text() for path in (ROOT / "fastci_ml").rglob("*.py"))
    for option in set(re.findall(r"`(?:merge|record|fastci-ml [a-z]+|pytest)? ?(--(?!cov)[a-z-]+)", PAGE)):
        assert f'"{option}"' in sources, option
    for schema in re.findall(r"`(fastci\.[a-z]+/1)`", PAGE):
        assert f'"{schema}"' in sources, schema


def test_benchmarks_that_it_names_are_there():
    names = re.findall(r"`benchmarks/(bench_[a-z]+)\.py`", PAGE)
    assert names
    for name in names:
        assert (ROOT / "benchmarks" / f"{name}.py").exists(), name


def test_scopes_of_imported_evidence_are_named():
    for scope in (*IMPORTED_SCOPES, UNTRUSTED_SCOPE):
        assert f"`{scope}`" in PAGE

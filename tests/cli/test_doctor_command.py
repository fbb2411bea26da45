"""`fastci-ml doctor`: what is there, what is not, and what to type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from bundle_makers import provenance, write_small_bundle
from store_records import record, unit, write

from fastci_ml.cli import app
from fastci_ml.cli.health.interpreter import look_at_interpreter
from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence_kinds import Gap

NOW_US = time.time_ns() // 1000


@pytest.fixture
def repo(make_repo, monkeypatch):
    for name in ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "FASTCI_SCOPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FASTCI_SCOPE", "trunk")
    repo = make_repo()
    repo.write("fastci.toml", 'lane = "cpu"\n')
    repo.write(".gitignore", ".fastci\n")
    repo.commit()
    monkeypatch.chdir(repo.root)
    return repo


def doctor(capsys, *, code: int = 0) -> dict[str, dict[str, str]]:
    assert app.main(["doctor", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "fastci.doctor/1"
    assert document["is_sound"] is (code == 0)
    # Each thing that is not well says what to type.
    assert all(bool(found["hint"]) == (found["level"] != "ok") for found in document["findings"])
    return {found["name"]: found for found in document["findings"]}


def bundles_of(repo) -> Path:
    return repo.root / ".fastci" / "bundles"


def store_at(repo) -> EvidenceStore:
    return EvidenceStore.open(repo.root / ".fastci" / "evidence.sqlite", create=True)


def test_fresh_repository_has_warnings_and_no_problem(repo, capsys):
    found = doctor(capsys)
    assert found["settings"]["text"] == str(repo.root / "fastci.toml")
    assert found["lane"]["text"] == "cpu"
    assert found["git"]["level"] == "ok"
    assert found["store"]["level"] == "warning"
    assert found["store"]["hint"] == "fastci-ml record --merge -- pytest"
    assert found["bundles"]["text"] == "none"
    assert "none yet" in found["history"]["text"]


def test_nothing_is_written(repo, capsys):
    doctor(capsys)
    assert not (repo.root / ".fastci").exists()


def test_person_gets_a_line_for_each_and_a_count(repo, capsys):
    assert app.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("interpreter\n  ok       python")
    assert "hint: fastci-ml record --merge -- pytest" in shown
    assert "0 problems, " in shown.splitlines()[-1]


def test_recorder_is_tried_and_its_reason_given(repo, capsys):
    found = doctor(capsys)["recorder"]
    name = "monitoring" if sys.version_info >= (3, 12) else "profile"
    assert found["level"] == "ok"
    assert found["text"].startswith(f"{name}: ")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there the hook is not needed")
def test_held_profile_hook_is_a_problem_that_names_its_holder():
    def profiler(*arguments: object) -> None:
        """Somebody else's."""

    sys.setprofile(profiler)
    threading.setprofile(profiler)
    try:
        found = {finding.name: finding for finding in look_at_interpreter()}
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert found["recorder"].level == "problem"
    assert "profiler" in found["recorder"].text
    assert "profiler" in found["profile hook"].text
    assert found["profile hook of threads"].level == "warning"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring")
def test_holders_of_monitoring_ids_are_named():
    code = (
        "import sys\n"
        "for number in range(6): sys.monitoring.use_tool_id(number, f'tool{number}')\n"
        "from fastci_ml.cli.health.interpreter import look_at_interpreter\n"
        "for finding in look_at_interpreter(): print(finding.name, '|', finding.text)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sys.monitoring id 1 | held by tool1, meant for coverage" in done.stdout
    assert "recorder | profile: every id of sys.monitoring is taken" in done.stdout


def test_switched_off_plugins_are_a_warning(repo, monkeypatch, capsys):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert doctor(capsys)["pytest plugin"]["level"] == "warning"


def test_changed_files_say_where_evidence_goes(repo, monkeypatch, capsys):
    monkeypatch.delenv("FASTCI_SCOPE")
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "CI_", "BUILDKITE"))]:
        monkeypatch.delenv(name)
    repo.write("fastci.toml", 'lane = "other"\n')
    found = doctor(capsys)["git"]
    assert found["level"] == "warning"
    assert "evidence goes to scope dirty" in found["text"]


def test_folder_without_git_is_a_warning(tmp_path, monkeypatch, capsys):
    (tmp_path / "fastci.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert doctor(capsys)["git"]["level"] == "warning"


def test_bundles_that_wait_are_counted(repo, capsys):
    write_small_bundle(bundles_of(repo))
    found = doctor(capsys)["bundles"]
    assert (found["level"], found["text"]) == ("warning", "1 of 1 are not merged")
    assert found["hint"] == "fastci-ml merge"
    assert app.main(["merge"]) == 0
    capsys.readouterr()
    assert doctor(capsys)["bundles"]["text"] == "1, all merged"


def test_bundle_without_an_end_mark_is_torn_when_nobody_can_be_writing_it(repo, capsys):
    writer = BundleWriter(bundles_of(repo), provenance("0a"))
    writer.flush()
    assert "torn bundles" not in doctor(capsys)
    then = time.time() - 7200
    os.utime(writer.path, (then, then))
    found = doctor(capsys)["torn bundles"]
    assert found["level"] == "warning"
    assert writer.path.name in found["text"]


def test_bundle_that_cannot_be_read_is_a_problem(repo, capsys):
    bundles_of(repo).mkdir(parents=True)
    (bundles_of(repo) / "x.fastci-bundle").write_text("rubbish")
    found = doctor(capsys, code=1)["unreadable bundles"]
    assert "x.fastci-bundle" in found["text"]


def test_folder_that_is_a_file_is_a_problem(repo, capsys):
    (repo.root / ".fastci").write_text("")
    assert doctor(capsys, code=1)["bundles folder"]["level"] == "problem"


def test_health_of_the_store(repo, capsys):
    with store_at(repo) as store:
        write(
            store,
            record("test_a.py::test_1", [unit("f")], at=NOW_US),
            record("test_a.py::test_2", [unit("f")], at=NOW_US, gaps=((Gap.DID_NOT_PASS, ""),)),
        )
    found = doctor(capsys)
    assert "sound, schema 1" in found["store"]["text"]
    assert found["tests"]["text"].startswith(
        "2 recorded, 50.0% of them complete; 1: it was skipped or failed"
    )
    assert found["trunk"]["level"] == "ok"


def test_old_evidence_of_trunk_is_a_warning(repo, capsys):
    with store_at(repo) as store:
        write(store, record("test_a.py::test_1", [unit("f")], at=NOW_US - 40 * 86_400_000_000))
    assert doctor(capsys)["trunk"]["level"] == "warning"


def test_evidence_of_no_trunk_is_a_warning(repo, capsys):
    with store_at(repo) as store:
        write(store, record("test_a.py::test_1", [unit("f")], at=NOW_US, scope="pr:7"))
    assert "plans leave no test out" in doctor(capsys)["trunk"]["text"]


def test_evidence_that_was_not_believed_is_a_warning(repo, capsys):
    with store_at(repo) as store:
        write(store, record("test_a.py::test_1", [unit("f")], at=NOW_US))
    assert "untrusted" not in doctor(capsys)
    with store_at(repo) as store:
        write(store, record("test_a.py::test_1", [unit("f")], at=NOW_US, scope="untrusted"))
    found = doctor(capsys)["untrusted"]
    assert found["text"].startswith("1 tests have evidence of bundles without a seal")
    assert found["hint"].startswith("FASTCI_EVIDENCE_KEY=")


@pytest.mark.parametrize("content", [b"rubbish", b"SQLite format 3\0" + b"\0" * 4080])
def test_damaged_store_is_a_problem(repo, capsys, content):
    (repo.root / ".fastci").mkdir()
    (repo.root / ".fastci" / "evidence.sqlite").write_bytes(content)
    assert doctor(capsys, code=1)["store"]["level"] == "problem"


def test_settings_that_cannot_be_read_are_said_as_everywhere(repo, capsys):
    repo.write("fastci.toml", "lnae = 1\n")
    assert app.main(["doctor"]) == 2
    assert "did you mean 'lane'?" in capsys.readouterr().err

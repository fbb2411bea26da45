from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from fastci_ml.cli import app
from fastci_ml.errors import FastCIError, HistoryError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Install a command `status` whose body the test gives; the frame around it is the real one."""
    monkeypatch.chdir(tmp_path)

    def install(run) -> None:
        module = ModuleType("fastci_ml.cli.status", "What the command is for.")
        module.add_arguments = lambda parser: parser.add_argument("--limit", type=int, default=0)
        module.run = run
        monkeypatch.setitem(sys.modules, "fastci_ml.cli.status", module)

    return install


def start(*words: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastci_ml", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def test_help_lists_every_command(capsys):
    assert app.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in app.COMMANDS)


def test_no_command_shows_help(capsys):
    assert app.main([]) == 0
    assert "usage: fastci-ml" in capsys.readouterr().out


def test_version_is_the_installed_one(capsys):
    assert app.main(["--version"]) == 0
    assert capsys.readouterr().out == f"fastci-ml {version('fastci-ml')}\n"


@pytest.mark.parametrize(
    ("typed", "hint"), [("ingset", "did you mean `fastci-ml ingest`?"), ("xyzzy", "fastci-ml --help")]
)
def test_unknown_command_is_a_usage_error_with_the_nearest_name(capsys, typed, hint):
    assert app.main([typed]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"unknown command '{typed}'" in shown.err
    assert hint in shown.err


def test_unknown_option_is_a_usage_error(command):
    command(lambda args, settings: 0)
    with pytest.raises(SystemExit) as caught:
        app.main(["status", "--nope"])
    assert caught.value.code == 2


def test_command_gets_its_arguments_and_the_settings_of_the_root(command, tmp_path):
    seen = []
    command(lambda args, settings: seen.append((args.limit, settings)) or 1)
    (tmp_path / "fastci.toml").write_text('lane = "l"\n')
    assert app.main(["status", "--limit", "3", "--root", str(tmp_path)]) == 1
    ((limit, settings),) = seen
    assert (limit, settings.lane, settings.root) == (3, "l", tmp_path)


def test_module_docstring_is_the_help_of_a_command(command, capsys):
    command(lambda args, settings: 0)
    with pytest.raises(SystemExit) as caught:
        app.main(["status", "--help"])
    assert caught.value.code == 0
    assert "What the command is for." in capsys.readouterr().out


def test_wrong_settings_exit_with_2(command, tmp_path, capsys):
    command(lambda args, settings: 0)
    (tmp_path / "fastci.toml").write_text("lnae = 1\n")
    assert app.main(["status"]) == 2
    assert "did you mean 'lane'?" in capsys.readouterr().err


def test_error_of_ours_is_one_line_a_hint_and_its_exit_code(command, capsys):
    def fail(args, settings):
        raise HistoryError("store: torn", hint="fastci-ml history compact")

    command(fail)
    assert app.main(["status"]) == 3
    shown = capsys.readouterr()
    assert shown.err == "fastci-ml: store: torn\n  hint: fastci-ml history compact\n"
    assert shown.out == ""


def test_error_of_ours_without_hint_is_one_line(command, capsys):
    def fail(args, settings):
        raise FastCIError("odd")

    command(fail)
    assert app.main(["status"]) == 70
    assert capsys.readouterr().err == "fastci-ml: odd\n"


def test_bug_is_told_apart_and_shows_its_traceback_only_when_asked(command, capsys):
    def fail(args, settings):
        raise KeyError("lost")

    command(fail)
    assert app.main(["status"]) == 70
    shown = capsys.readouterr().err
    assert shown.startswith("fastci-ml: bug: KeyError: 'lost'\n")
    assert "Traceback" not in shown
    assert app.main(["status", "-v"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_interrupt_exits_as_shells_expect(command, capsys):
    def fail(args, settings):
        raise KeyboardInterrupt

    command(fail)
    assert app.main(["status"]) == 130
    assert capsys.readouterr().err == "fastci-ml: interrupted\n"


ENDLESS = """
import sys
from types import ModuleType
from fastci_ml.cli import app, output

def run(args, settings):
    for _ in range(int(sys.argv[1])):
        output.answer("a line")
    return 0

module = ModuleType("fastci_ml.cli.status", "x")
module.add_arguments = lambda parser: None
module.run = run
sys.modules["fastci_ml.cli.status"] = module
sys.stdin.readline()
sys.exit(app.main(["status"]))
"""


@pytest.mark.parametrize("n_lines", [1, 100_000])
def test_reader_that_goes_away_is_no_error(n_lines):
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(n_lines)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=writer,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(writer)
        os.close(reader)
        _, said = process.communicate(b"go\n", timeout=60)
    assert said == b""
    assert process.returncode == 0


def test_every_command_has_a_line_of_help_and_a_module():
    for name, line in app.COMMANDS.items():
        assert line
        assert (ROOT / "fastci_ml" / "cli" / f"{name}.py").is_file(), name


def test_installed_program_and_module_answer_alike():
    assert start("--version").stdout == f"fastci-ml {version('fastci-ml')}\n"
    program = Path(sys.executable).parent / "fastci-ml"
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"fastci-ml {version('fastci-ml')}\n"


def test_only_the_output_module_prints():
    for path in sorted((ROOT / "fastci_ml").rglob("*.py")):
        if path.name != "output.py":
            code = [line for line in path.read_text().splitlines() if ">>>" not in line]
            assert not any(re.match(r"\s*print\(", line) for line in code), path

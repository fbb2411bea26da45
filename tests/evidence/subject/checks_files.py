import os
import subprocess
import sys

import pytest
from lib import core, files


@pytest.fixture(scope="module")
def numbers():
    return files.load("numbers.json")


@pytest.fixture(autouse=True)
def _back(monkeypatch):
    monkeypatch.chdir(os.getcwd())  # noqa: PTH109


def check_reads():
    assert files.load("numbers.json")["value"] == 1


def check_reads_by_fixture(numbers):
    assert numbers["value"] == 1


def check_read_by_fixture_before(numbers):
    assert numbers["value"] == 1


def check_lists():
    assert files.names() == ["a.json", "b.json"]


def check_reads_from_another_folder():
    assert files.relative("numbers.json")


def check_reads_nothing():
    assert core.add(1, 1) == 2


def check_starts_python():
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def check_starts_git():
    subprocess.run(["git", "--version"], check=True, stdout=subprocess.DEVNULL)


def check_forks():
    pid = os.fork()
    if pid == 0:
        core.never()
        os._exit(0)
    os.waitpid(pid, 0)


def check_after_the_fork():
    assert core.add(1, 2) == 3

"""What the watch of variables books, on each interpreter at hand, and which libraries read past us."""

from __future__ import annotations

import subprocess
import sys

import pytest
from interpreters import VERSIONS, python_or_skip
from watched_programs import watch_program

PROGRAM = """
import copy, os, subprocess, threading

os.environ["TRAIN_SET"] = "1"
ENCODE = os.environ.encodekey


def check_get():
    assert os.environ.get("TRAIN_A") is None
    assert os.environ.get("OTHER") is None


def check_item():
    assert os.environ["TRAIN_SET"] == "1"
    try:
        os.environ["TRAIN_B"]
    except KeyError as error:
        assert error.args == ("TRAIN_B",) and error.__suppress_context__
    else:
        raise AssertionError


def check_in():
    assert "TRAIN_C" not in os.environ


def check_getenv():
    os.getenv("TRAIN_D")
    os.getenv("MODEL_D")


def check_bytes():
    os.environb.get(b"TRAIN_E")
    os.getenvb(b"TRAIN_F")


def check_pop_and_default():
    os.environ.pop("TRAIN_G", None)
    os.environ.setdefault("TRAIN_H", "1")
    del os.environ["TRAIN_H"]


def check_copy():
    assert dict(os.environ)["TRAIN_SET"] == "1"


def check_copied_later():
    copied = copy.deepcopy(os.environ)
    assert copied.get("TRAIN_I") is None


def check_thread():
    thread = threading.Thread(target=os.getenv, args=("TRAIN_J",))
    thread.start()
    thread.join()


def check_wrong_names():
    for name in (1, None, b"TRAIN_K"):
        try:
            os.environ.get(name)
        except TypeError as error:
            assert "str expected" in str(error)
        else:
            raise AssertionError


def check_names_of_others():
    os.getenv("PATH")
    os.getenv("TRAI")
    os.getenv("train_x")


def after_recording():
    os.getenv("TRAIN_Z")
    assert os.environ.encodekey is not ENCODE
    assert os.environ.encodekey.__code__.co_filename == os.environ.decodekey.__code__.co_filename
    assert not hasattr(os.environ.encodekey, "__wrapped__")
"""

READ = {
    "check_get": {"TRAIN_A"},
    "check_item": {"TRAIN_SET", "TRAIN_B"},
    "check_in": {"TRAIN_C"},
    "check_getenv": {"TRAIN_D", "MODEL_D"},
    "check_bytes": {"TRAIN_E", "TRAIN_F"},
    "check_pop_and_default": {"TRAIN_G", "TRAIN_H"},
    "check_copy": {"TRAIN_SET"},
    "check_thread": {"TRAIN_J"},
    "check_wrong_names": set(),
    "check_names_of_others": set(),
}


@pytest.fixture(scope="module", params=VERSIONS)
def watched(request, tmp_path_factory):
    python = python_or_skip(request.param)
    root = tmp_path_factory.mktemp("environ") / "repo"
    return watch_program(root, PROGRAM, "TRAIN_", "MODEL_", python=python)


def test_variables_are_booked_where_they_were_read(watched):
    found = {name: set(watched.capture(name).environ) for name in READ}
    assert found == READ


def test_copy_of_the_environment_goes_on_telling(watched):
    assert "TRAIN_I" in watched.capture("check_copied_later").environ


def test_nothing_failed_while_variables_were_watched(watched):
    assert not [one.label for one in watched.bundle.captures.values() if one.gaps]


def test_without_prefixes_nothing_is_touched(tmp_path):
    program = """
import os

def check_untouched():
    assert os.environ.encodekey.__code__.co_filename == os.environ.decodekey.__code__.co_filename
    os.getenv("TRAIN_A")
"""
    watched = watch_program(tmp_path / "repo", program)
    assert watched.capture("check_untouched").environ == frozenset()


def test_native_readers_are_those_that_are_loaded():
    code = """
import sys, types
from fastci_ml.evidence.recorder.native import native_readers
assert native_readers() == (), native_readers()
for name in ("safetensors", "h5py", "json", "_io", "safetensors.torch"):
    sys.modules[name] = types.ModuleType(name)
assert native_readers() == ("h5py", "safetensors"), native_readers()
"""
    subprocess.run([sys.executable, "-c", code], check=True)

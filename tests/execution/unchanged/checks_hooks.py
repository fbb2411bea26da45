"""Tests that use the hooks of the interpreter that a recorder needs too."""

import bdb
import cProfile
import pstats
import sys
import threading

import lib
import pytest


def check_cprofile():
    profiler = cProfile.Profile()
    profiler.enable()
    lib.down(5)
    profiler.disable()
    names = {key[2]: value[0] for key, value in pstats.Stats(profiler).stats.items()}
    assert names["down"] == 1
    assert (
        pstats.Stats(profiler).stats[next(k for k in pstats.Stats(profiler).stats if k[2] == "down")][1] == 6
    )


def check_cprofile_as_context():
    with cProfile.Profile() as profiler:
        lib.down(3)
    assert "down" in {key[2] for key in pstats.Stats(profiler).stats}


def check_setprofile():
    seen = []

    def hook(frame, event, argument):
        seen.append((event, frame.f_code.co_name))

    sys.setprofile(hook)
    try:
        lib.down(1)
    finally:
        sys.setprofile(None)
    assert [entry for entry in seen if entry[1] == "down"] == [("call", "down")] * 2 + [
        ("return", "down")
    ] * 2


def check_setprofile_is_put_back_as_found():
    found = sys.getprofile()
    sys.setprofile(lambda *_: None)
    lib.down(1)
    sys.setprofile(found)
    assert lib.down(3) == 3
    assert list(lib.numbers(3)) == [0, 1, 4]
    assert sys.getprofile() is found


def check_profile_of_threads():
    found = threading.getprofile()
    seen = set()

    def hook(frame, event, argument):
        seen.add(frame.f_code.co_name)

    threading.setprofile(hook)
    try:
        thread = threading.Thread(target=lib.down, args=(3,))
        thread.start()
        thread.join()
    finally:
        threading.setprofile(found)
    assert "down" in seen
    thread = threading.Thread(target=lib.down, args=(3,))
    thread.start()
    thread.join()


def check_settrace():
    seen = []

    def trace(frame, event, argument):
        if frame.f_code.co_name == "down":
            seen.append(event)
        return trace

    found = sys.gettrace()
    sys.settrace(trace)
    try:
        lib.down(0)
    finally:
        sys.settrace(found)
    assert seen == ["call", "line", "return"]


def check_debugger_steps():
    class Steps(bdb.Bdb):
        def __init__(self):
            super().__init__()
            self.lines = []

        def user_line(self, frame):
            if frame.f_code.co_name == "down":
                self.lines.append(frame.f_lineno)
            self.set_step()

    found = sys.gettrace()
    steps = Steps()
    steps.runcall(lib.down, 2)
    sys.settrace(found)
    assert len(steps.lines) == 3


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="before 3.12")
@pytest.mark.parametrize("name", ["DEBUGGER_ID", "PROFILER_ID", "COVERAGE_ID", "OPTIMIZER_ID"])
def check_monitoring(name):
    monitoring = sys.monitoring
    tool = getattr(monitoring, name)
    seen = []
    monitoring.use_tool_id(tool, "check")
    try:
        monitoring.register_callback(
            tool, monitoring.events.PY_START, lambda code, _: seen.append(code.co_name)
        )
        monitoring.set_events(tool, monitoring.events.PY_START)
        lib.down(2)
        monitoring.set_events(tool, 0)
        monitoring.restart_events()
    finally:
        monitoring.free_tool_id(tool)
    assert seen.count("down") == 3


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="before 3.12")
def check_monitoring_of_lines_of_one_function():
    monitoring = sys.monitoring
    tool = monitoring.DEBUGGER_ID
    seen = []

    def line(code, number):
        seen.append(number)
        return monitoring.DISABLE

    monitoring.use_tool_id(tool, "check")
    try:
        monitoring.register_callback(tool, monitoring.events.LINE, line)
        monitoring.set_local_events(tool, lib.down.__code__, monitoring.events.LINE)
        lib.down(2)
        monitoring.set_local_events(tool, lib.down.__code__, 0)
        monitoring.register_callback(tool, monitoring.events.LINE, None)
    finally:
        monitoring.free_tool_id(tool)
    assert len(seen) == 1


def check_after_all_of_these():
    assert lib.down(4) == 4

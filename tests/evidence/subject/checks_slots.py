import sys

from lib import core


def check_before():
    assert core.scale(1) == 2


def check_takes_our_place():
    for number in range(6):
        if sys.monitoring.get_tool(number) == "fastci-ml":
            sys.monitoring.free_tool_id(number)
            sys.monitoring.use_tool_id(number, "thief")


def check_after_the_theft():
    assert core.scale(1) == 2

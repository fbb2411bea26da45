import atexit

from lib import core


def check_leaves_work_for_the_end():
    atexit.register(core.at_exit)


class Late:
    # Bound early: globals are gone when the interpreter ends.
    def __del__(self, scale=core.scale):
        scale(2)


KEPT = Late()

import atexit

from lib import core


def check_leaves_work_for_the_end():
    atexit.register(core.at_exit)


class Late:
    def __del__(self):
        core.scale(2)


KEPT = Late()

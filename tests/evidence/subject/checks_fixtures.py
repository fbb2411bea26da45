import pytest
from lib import fixtures


@pytest.fixture(scope="module")
def of_module(of_session):
    yield fixtures.module_part()
    fixtures.torn_down()


@pytest.fixture(scope="class")
def of_class():
    return fixtures.class_part()


@pytest.fixture(scope="module", params=[1, 2])
def with_params(request):
    return request.param if request.param == 1 else fixtures.asked_for()


def check_first_user(of_module):
    assert of_module == "module"


def check_second_user(of_module):
    assert of_module == "module"


def check_no_user():
    assert True


def check_asks_while_running(request):
    assert request.getfixturevalue("asked") == "asked for"


def check_asks_again(request):
    assert request.getfixturevalue("asked") == "asked for"


def check_own_fixture(plain):
    assert plain


class CheckClass:
    @classmethod
    def setup_class(cls):
        cls.value = fixtures.class_part()

    def check_one(self):
        assert self.value

    def check_two(self, of_class):
        assert of_class

    def check_three(self, of_class):
        assert of_class


def check_params(with_params):
    assert with_params


def check_last_of_module(of_module):
    assert of_module

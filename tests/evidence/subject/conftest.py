import pytest
from lib import fixtures


def configure():
    return fixtures.torn_down


def pytest_configure():
    configure()


@pytest.fixture(scope="session")
def of_session():
    return fixtures.session_part()


@pytest.fixture(scope="session")
def asked():
    return fixtures.asked_for()


@pytest.fixture
def plain():
    return fixtures.asked_for()

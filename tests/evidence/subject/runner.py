"""Calls pytest, as launchers do: this function runs for as long as the tests do."""

import sys

import pytest


def main():
    return pytest.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())

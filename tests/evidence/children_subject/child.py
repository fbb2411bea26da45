"""A program that calls one function of `work`, by name."""

import sys

import work

NAME = sys.argv[1]
getattr(work, NAME)(*sys.argv[2:])

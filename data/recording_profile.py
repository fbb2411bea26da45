"""Pytest plugin of the recording: fewer Hypothesis examples, the same ones every time.

A plugin and not a profile in the tests' conftest.py, because old commits are recorded too.
"""

from hypothesis import settings

settings.register_profile("recording", max_examples=15, derandomize=True, deadline=None, database=None)

"""Pytest plugin of the recording: fewer Hypothesis examples, the same ones every time.

A plugin and not a profile in the tests' conftest.py, because old commits are recorded too.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "recording",
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    # A busy machine is no fault of the code.
    suppress_health_check=[HealthCheck.too_slow],
)

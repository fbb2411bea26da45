"""The subject is a project of its own, which test_holes.py records."""

collect_ignore = ["subject"]

"""Python files in blocks: functions, class heads and statements, each with a fingerprint."""

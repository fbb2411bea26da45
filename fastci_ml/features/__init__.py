"""Numbers that describe one test before one run, read from the past only."""

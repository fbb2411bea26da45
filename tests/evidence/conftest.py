"""The subjects are projects of their own, which tests record."""

collect_ignore = ["subject", "children_subject"]

"""From folders of reports to rows of the history."""

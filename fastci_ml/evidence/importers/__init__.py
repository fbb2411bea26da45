"""Evidence of other tools, read from their own files: weaker, and never in the place of what was recorded."""

"""The nouns: what the rest of the package talks about. No I/O, standard library only."""

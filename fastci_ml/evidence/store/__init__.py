"""The evidence store: one SQLite file with an inverted index, from a unit to the records that executed it."""

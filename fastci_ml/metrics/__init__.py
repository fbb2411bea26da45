"""Pure functions that score an order or a probability. Formula, source and edge cases stand in each."""

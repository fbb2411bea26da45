import warnings

warnings.warn("late", stacklevel=2)

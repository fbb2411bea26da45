"""MLflow stands behind this package and nowhere else: `Registry` is its door."""

from fastci_ml.learn.registry.store import Registry as Registry

"""Labels, rankers, calibration, the model bundle and the registry."""

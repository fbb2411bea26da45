"""Bundles: what one process saw, in one append-only file, and the sources that it ran."""

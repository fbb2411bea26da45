"""Runtime evidence: recorder, bundles, merge, the SQLite store, completeness."""

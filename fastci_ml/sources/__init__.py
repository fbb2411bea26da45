"""Readers of what exists outside: git, test reports, tables, the environment, the history store."""

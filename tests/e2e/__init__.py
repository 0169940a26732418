"""Whole runs on a real cluster: `make e2e`."""

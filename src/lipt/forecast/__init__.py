"""Predict time, traffic and memory of a run before it starts: `lipt plan`."""

"""The checks before a run: `validation` calls all of them, and each finds its errors before anything is computed."""

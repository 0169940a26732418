"""A whole run: the order of its stages, the checks before it, its baseline and its report."""

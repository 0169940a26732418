"""A whole run: which stage feeds which, the checks before it, its baseline beside it, its report after it."""

"""Networks: build, train, prune and merge them, run them forward, and write their weights."""

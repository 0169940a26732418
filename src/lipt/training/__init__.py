"""Networks and what is done with their weights: train, prune, merge, score, write."""

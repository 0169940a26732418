"""The arithmetic of the algorithms: norms, distances, maxima, greedy steps. It knows no candidates."""

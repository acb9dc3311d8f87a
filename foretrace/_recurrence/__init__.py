"""One layer through time: the linear scan, a chunk under a rule, and the sensitivity."""

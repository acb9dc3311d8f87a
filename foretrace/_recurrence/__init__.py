"""One layer through time: linear scan, chunk under a rule, sensitivity."""

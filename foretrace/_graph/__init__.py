"""One step of a network or a learner as a plain graph of named real arrays, for every export."""

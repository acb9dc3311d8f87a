"""One step of a network or a learner as a graph of named real arrays, for all exports."""

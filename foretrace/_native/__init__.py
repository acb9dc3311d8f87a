"""One step of a network or a learner as C99, without memory allocation or a runtime."""

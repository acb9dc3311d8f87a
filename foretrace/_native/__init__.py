"""One step of a network or a learner as C99, without allocation or a runtime."""

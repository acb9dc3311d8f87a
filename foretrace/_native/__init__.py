"""The step of a network or a learner as C99: arithmetic on arrays of known size, without allocation or a runtime."""

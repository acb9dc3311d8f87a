"""A network, or its learning step, as a graph that runs without Python, JAX or foretrace."""

"""Export of a network or its learning step as a graph that needs no Python, JAX or foretrace."""

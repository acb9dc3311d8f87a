"""Time and memory of a step, beside others; rounded products; the step in C."""

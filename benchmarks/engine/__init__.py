"""Time and memory of a step, beside others; rounded products; exported graphs."""

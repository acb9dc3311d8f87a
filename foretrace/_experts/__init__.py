"""Cheap experts that each predict every row, and the mixture of them."""

"""Experts that each predict every row, without knowledge of the mixture."""

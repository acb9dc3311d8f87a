"""Experts: simple learners that each predict every row, without knowledge of the mixture."""

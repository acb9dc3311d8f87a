"""Experts that each predict every row; they know no mixture."""

"""Recurrent cells: each is its one-step recurrence, and nothing else."""

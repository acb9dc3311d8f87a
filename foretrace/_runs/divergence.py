"""When a run has diverged, and how far it looks behind."""

REFUSED_IN_A_ROW = 20
"""Steps with a loss or gradient that is NaN or infinite after which a run has diverged."""

IN_FLIGHT = 2
"""Steps that are handed to the device ahead of the one that is looked at: enough to keep it busy."""


class DivergenceError(RuntimeError):
    """Training produces nothing but NaN or infinity."""

"""Figures without a display."""

import io
from collections.abc import Sequence
from typing import Any

_WIDE = 20
"""Largest over smallest number from which on an axis shows orders of magnitude."""


def new_page(width: float, height: float) -> Any:
    """Return an empty figure of Matplotlib, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    page = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(page)
    return page


def page_as_png(page: Any) -> bytes:
    """Return a figure as a PNG file."""
    file = io.BytesIO()
    page.savefig(file, dpi=110, format="png")
    return file.getvalue()


def over_magnitudes(numbers: Sequence[float]) -> bool:
    """Return whether an axis of these numbers should be logarithmic."""
    return len(numbers) > 0 and 0 < _WIDE * min(numbers) <= max(numbers)

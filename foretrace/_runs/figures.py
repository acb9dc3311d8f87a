"""Figures without a display."""

import io
from typing import Any


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

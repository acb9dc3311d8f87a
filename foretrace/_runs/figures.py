"""Figures without a display."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretrace._runs.directory import Run
from foretrace._runs.files import write_atomically

_WIDE = 20
"""Largest over smallest number from which on an axis shows orders of magnitude."""


def new_page(width: float, height: float) -> Any:
    """Return an empty figure of Matplotlib, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def page_as_png(page: Any) -> bytes:
    """Return a figure as a PNG file."""
    file = io.BytesIO()
    page.savefig(file, dpi=110, format="png")
    return file.getvalue()


def draw(page: Any, run_dir: str | os.PathLike[str]) -> str:
    """Write a figure into a run directory; return its path.

    Raises:
        OSError: the file cannot be written.
    """
    path = Run(Path(run_dir)).figure
    write_atomically(path, page_as_png(page))
    return str(path)


def over_magnitudes(numbers: Sequence[float]) -> bool:
    """Return whether an axis of these numbers should be logarithmic."""
    return len(numbers) > 0 and 0 < _WIDE * min(numbers) <= max(numbers)

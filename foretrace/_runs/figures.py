"""The figure of a run, with a panel for each metric, drawn without a display."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foretrace._runs.directory import Run
from foretrace._runs.escape import for_plot
from foretrace._runs.files import write_atomically

_WIDE = 20
"""Ratio of the largest to the smallest number above which an axis is logarithmic."""

_COLUMNS = 4


class Panel(NamedTuple):
    """Curves of one metric.

    Args:
        title: title of the panel.
        curves: points (place, number) of each curve, by the name of the curve.
        levels: numbers that are drawn as horizontal lines, by their names.
    """

    title: str
    curves: Mapping[str, Sequence[tuple[Any, float]]]
    levels: Mapping[str, float] = {}


def draw_metrics(
    run_dir: str | os.PathLike[str], title: str, panels: Sequence[Panel], what: str = "step"
) -> str:
    """Draw the metrics of a run into its directory, and return the path of the file.

    Args:
        run_dir: directory of the run.
        title: title of the figure.
        panels: panels of the figure. Panels without a point are left out.
        what: label of the horizontal axis.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib import rc_context

    panels = [panel for panel in panels if any(panel.curves.values())]
    columns = min(max(len(panels), 1), _COLUMNS)
    rows = max(-(-len(panels) // columns), 1)
    page = new_page(4.2 * columns, 3.4 * rows)
    with rc_context({"date.converter": "concise"}):  # whole dates would overlap
        places = page.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(places, panels, strict=False):
            _draw(axes, panel)
    for axes in places[len(panels) :]:
        axes.remove()
    page.supxlabel(what)
    page.suptitle(for_plot(title))
    path = Run(Path(run_dir)).figure
    write_atomically(path, page_as_png(page))
    return str(path)


def _draw(axes: Any, panel: Panel) -> None:
    curves = {name: points for name, points in panel.curves.items() if points}
    for below, (name, points) in enumerate(curves.items()):  # the first curve is drawn last, on top
        marker = "o" if len(points) == 1 else None
        places, numbers = zip(*points, strict=True)
        axes.plot(places, numbers, marker=marker, label=for_plot(name), zorder=9 - below)
    for name, level in panel.levels.items():
        axes.axhline(level, color="0.5", linestyle=":", label=for_plot(name))
    found = [number for points in curves.values() for _, number in points]
    is_wide = 0 < _WIDE * min(found) <= max(found)
    axes.set(title=for_plot(panel.title), yscale="log" if is_wide else "linear")
    if len(curves) + len(panel.levels) > 1:
        axes.legend()
    axes.margins(x=0.01)
    axes.grid(alpha=0.3)


def new_page(width: float, height: float) -> Any:
    """Return an empty Matplotlib figure with a size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def page_as_png(page: Any) -> bytes:
    """Return a figure as a PNG file."""
    file = io.BytesIO()
    page.savefig(file, dpi=110, format="png")
    return file.getvalue()

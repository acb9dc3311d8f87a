"""Figures of the paper's experiments from records alone."""

import io
import math
from typing import Any

import numpy as np

from foretrace._paper_tables import Cell, Found


def png(found: Found) -> bytes:
    """Return a figure of an experiment: curves over training for a figure, ours beside the paper's for a table."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    page = Figure(figsize=(10, 3.9), layout="constrained")
    FigureCanvasAgg(page)
    if found.experiment.name.startswith("figure"):
        _curves(page, found)
    else:
        _comparison(page, found)
    page.suptitle(f"{found.experiment.title}, scale {found.experiment.scale}")
    file = io.BytesIO()
    page.savefig(file, dpi=110, format="png")
    return file.getvalue()


def _curves(page: Any, found: Found) -> None:
    cosine, loss = page.subplots(1, 2)
    for number, cell in enumerate(cell for cell in found.cells if cell.records):
        color = f"C{number}"
        for record in cell.records:
            first = record is cell.records[0]
            label = cell.entry.row if first else None
            steps = [point["step"] for point in record["curve"]]
            aligned = [_mean_over_layers(point) for point in record["curve"]]
            cosine.plot(steps, aligned, color=color, label=label)
            loss.plot(steps, [point["training_loss"] for point in record["curve"]], color=color, label=label)
    cosine.set(title="cosine with BPTT, mean over layers", xlabel="step", ylim=(min(0.0, *cosine.get_ylim()), 1.03))
    loss.set(title="training loss", xlabel="step", yscale="log")
    for axes in (cosine, loss):
        axes.grid(alpha=0.3)
    loss.legend()


def _mean_over_layers(point: dict[str, Any]) -> float:
    layers = [value for value in point.get("alignment", {}).get("layers", []) if value is not None]
    return float(np.mean(layers)) if layers else math.nan


def _comparison(page: Any, found: Found) -> None:
    columns = list(dict.fromkeys(cell.entry.column for cell in found.cells))
    axes = page.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for place, column in zip(axes, columns, strict=True):
        cells = [cell for cell in found.cells if cell.entry.column == column]
        rows = range(len(cells))
        for row, cell in zip(rows, cells, strict=True):
            if cell.values:
                place.plot([row] * len(cell.values), cell.values, "o", color="C0", label=_once(cell, cells, "ours"))
        paper = [math.nan if cell.entry.published is None else cell.entry.published for cell in cells]
        place.plot(rows, paper, "_", color="C3", markersize=18, label="the paper")
        place.set(title=column, yscale="log" if found.experiment.metric != "accuracy" else "linear")
        place.set_xticks(list(rows), [cell.entry.row for cell in cells], rotation=30, ha="right")
        place.grid(alpha=0.3)
    axes[0].set_ylabel(found.experiment.metric.replace("_", " "))
    axes[0].legend()


def _once(cell: Cell, cells: list[Cell], label: str) -> str | None:
    return label if cell is next(c for c in cells if c.values) else None

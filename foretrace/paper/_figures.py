"""Figures of the paper's experiments, made only from the records."""

import math
from typing import Any

import numpy as np

from foretrace._runs.figures import new_page, page_as_png
from foretrace.paper._tables import ExperimentResults


def png(found: ExperimentResults) -> bytes:
    """Return a figure as PNG: the cosine with BPTT, and the loss, over the course of training."""
    page = new_page(11, 3.9)
    cosine, loss = page.subplots(1, 2)
    ends: dict[str, tuple[float, str]] = {}
    for number, cell in enumerate(cell for cell in found.cells if cell.records):
        for record in cell.records:
            steps = [point["step"] for point in record["curve"]]
            cosine.plot(steps, [*map(_mean_over_layers, record["curve"])], color=f"C{number}")
            losses = [point["training_loss"] for point in record["curve"]]
            loss.plot(steps, losses, color=f"C{number}")
            ends[cell.entry.row.replace("lam", "λ")] = (losses[-1], f"C{number}")
    cosine.set(title="gradient: cosine with BPTT, mean over layers", xlabel="step")
    cosine.set(ylabel="cosine", ylim=(min(0.0, *cosine.get_ylim()), 1.03))
    loss.set(title="training loss", xlabel="step", ylabel="loss", yscale="log")
    for axes in (cosine, loss):
        axes.grid(alpha=0.3)
    height = -math.inf
    for name, (end, colour) in sorted(ends.items(), key=lambda one: one[1]):
        place = loss.transAxes.inverted().transform(loss.transData.transform((0, end)))[1]
        height = max(place, height + 0.07)
        loss.text(1.02, height, name, color=colour, va="center", transform=loss.transAxes)
    page.suptitle(f"{found.experiment.title}, scale {found.experiment.scale}")
    return page_as_png(page)


def _mean_over_layers(point: dict[str, Any]) -> float:
    layers = [value for value in point.get("alignment", {}).get("layers", []) if value is not None]
    return float(np.nanmean(layers)) if np.isfinite(layers).any() else math.nan

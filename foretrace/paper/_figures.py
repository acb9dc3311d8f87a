"""Figures of the paper's experiments from records alone."""

import math
from typing import Any

import numpy as np

from foretrace._runs.figures import new_page, page_as_png
from foretrace.paper._tables import ExperimentResults


def png(found: ExperimentResults) -> bytes:
    """Return a figure of the paper: the cosine with BPTT and the loss over training."""
    page = new_page(10, 3.9)
    cosine, loss = page.subplots(1, 2)
    for number, cell in enumerate(cell for cell in found.cells if cell.records):
        for record in cell.records:
            label = cell.entry.row if record is cell.records[0] else None
            steps = [point["step"] for point in record["curve"]]
            aligned = list(map(_mean_over_layers, record["curve"]))
            cosine.plot(steps, aligned, color=f"C{number}", label=label)
            losses = [point["training_loss"] for point in record["curve"]]
            loss.plot(steps, losses, color=f"C{number}", label=label)
    cosine.set(title="cosine with BPTT, mean over layers", xlabel="step")
    cosine.set_ylim(min(0.0, *cosine.get_ylim()), 1.03)
    loss.set(title="training loss", xlabel="step", yscale="log")
    for axes in (cosine, loss):
        axes.grid(alpha=0.3)
    loss.legend(loc="upper right")
    page.suptitle(f"{found.experiment.title}, scale {found.experiment.scale}")
    return page_as_png(page)


def _mean_over_layers(point: dict[str, Any]) -> float:
    layers = [value for value in point.get("alignment", {}).get("layers", []) if value is not None]
    return float(np.nanmean(layers)) if np.isfinite(layers).any() else math.nan

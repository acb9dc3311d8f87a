"""Figures of the paper's experiments from records alone."""

import math
from typing import Any

import numpy as np

from foretrace._runs.figures import new_page, page_as_png
from foretrace.paper._tables import ExperimentResults


def png(found: ExperimentResults) -> bytes:
    """Return an experiment's figure: curves over training, or ours beside the paper's numbers."""
    page = new_page(10, 3.9)
    if found.experiment.name.startswith("figure"):
        _curves(page, found)
    else:
        _comparison(page, found)
    page.suptitle(f"{found.experiment.title}, scale {found.experiment.scale}")
    return page_as_png(page)


def _curves(page: Any, found: ExperimentResults) -> None:
    cosine, loss = page.subplots(1, 2)
    for number, cell in enumerate(cell for cell in found.cells if cell.records):
        for record in cell.records:
            label = cell.entry.row if record is cell.records[0] else None
            points = record["curve"]
            for axes, values in ((cosine, _mean_over_layers), (loss, _training_loss)):
                steps = [point["step"] for point in points]
                axes.plot(steps, list(map(values, points)), color=f"C{number}", label=label)
    cosine.set(
        title="cosine with BPTT, mean over layers",
        xlabel="step",
        ylim=(min(0.0, *cosine.get_ylim()), 1.03),
    )
    loss.set(title="training loss", xlabel="step", yscale="log")
    for axes in (cosine, loss):
        axes.grid(alpha=0.3)
    loss.legend(loc="upper right")


def _training_loss(point: dict[str, Any]) -> float:
    return point["training_loss"]


def _mean_over_layers(point: dict[str, Any]) -> float:
    layers = [value for value in point.get("alignment", {}).get("layers", []) if value is not None]
    return float(np.nanmean(layers)) if np.isfinite(layers).any() else math.nan


def _comparison(page: Any, found: ExperimentResults) -> None:
    columns = list(dict.fromkeys(cell.entry.column for cell in found.cells))
    # Rules that neither we nor the paper ran would be empty lines.
    known = [cell for cell in found.cells if cell.values or cell.entry.published is not None]
    rows = {
        row: number for number, row in enumerate(dict.fromkeys(cell.entry.row for cell in known))
    }
    page.set_size_inches(12, 1.6 + 0.26 * len(rows))
    losses = found.experiment.metric != "accuracy"
    panels = page.subplots(1, len(columns), sharex=losses, sharey=True, squeeze=False)[0]
    for place, column in zip(panels, columns, strict=True):
        for cell in (cell for cell in known if cell.entry.column == column):
            at, paper = rows[cell.entry.row], cell.entry.published
            place.plot(cell.values, [at] * len(cell.values), "o", color="C0", label="ours")
            place.plot(
                [] if paper is None else [paper], [] if paper is None else [at], "|", **_PAPER
            )
        place.set(title=column, xscale="log" if losses else "linear")
        place.set_xlabel(found.experiment.metric.replace("_", " "))
        place.grid(alpha=0.3)
    panels[0].set_yticks(list(rows.values()), list(rows))
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    page.legend(once.values(), once.keys(), loc="outside right upper")


_PAPER: dict[str, Any] = {
    "color": "C3",
    "markersize": 14,
    "markeredgewidth": 2,
    "label": "the paper",
}

"""Figures of `docs/` and `results/`, from the records: `python -m benchmarks.streams.figures`.

Memory against the length is that of `benchmarks/engine/bench.json`, as XLA states it for the
compiled step (`python -m benchmarks.engine.steps --parts memory`). A learned memory, the same one
untrained, and the default mixture with and without the experts that remember are run here, on a
made stream.
"""

import json

import jax
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import ledger
from benchmarks.pages.template import records
from benchmarks.streams import guarded, memory
from benchmarks.streams.held import SPACING

README_WAYS = {
    "BPTT, whole sequences": ("backpropagation through time", "tab:gray"),
    "BPTT, chunks of 64": ("the same, over the last 64 steps", "tab:brown"),
    "online, chunks of 64": ("online rule, 64 steps at a time", "tab:blue"),
    "online, row by row": ("online rule, one step at a time", "tab:cyan"),
}
"""Label and colour of each line of the README's figure."""
LEARNERS = {
    "rule": "ONLINE, encoder trained",
    "default": "ONLINE, the default",
    "front held": "ONLINE, the default",
    "full credit": "ONLINE, full credit depth",
    "hybrid": "HYBRID",
}
THICK = ("online", "exact (credit depth 2)", "mixture of experts (default)")
DASHES = ("-", "--", ":")
"""Dashes of a learner, the same on every panel, which change after ten colours."""


def save(page, path, dpi=80):
    """Write a figure."""
    FigureCanvasAgg(page)
    page.savefig(ledger.ROOT / path, dpi=dpi)


def records_of(name, key, **where):
    """Return cells and results with the largest number of a key, of cells with some settings."""
    found = [
        (line["cell"], line["found"])
        for line in records(name)
        if key in line["cell"] and line["cell"] | where == line["cell"]
    ]
    most = max(cell[key] for cell, _ in found)
    return [one for one in found if one[0][key] == most]


def reach():
    """Draw accuracy over tenths of the labels, at the longest delay."""
    lines = records_of("reach", "delay")
    tasks = list(dict.fromkeys(cell["task"] for cell, _ in lines))
    page = Figure(figsize=(4 * len(tasks) + 2, 3.4), layout="constrained")
    shown = {}
    for axes, task in zip(page.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        for cell, found in lines:
            if cell["task"] == task and cell["seed"] == 0 and "lags" not in cell:
                _line(axes, cell["way"], found["parts"], shown)
        title = f"{task}, {lines[0][0]['delay']:,} rows back"
        axes.set(title=title, xlabel="tenth of the labels", ylim=(0.3, 1.03))
        axes.grid(alpha=0.3)
    page.legend(shown.values(), shown, loc="outside right upper", fontsize="small")
    save(page, "docs/streams_compared/reach.png")


def _line(axes, way, parts, shown):
    """Draw the scores of a learner in its own style, and keep its first line for the legend."""
    number = list(shown).index(way) if way in shown else len(shown)
    style = {"color": f"C{number % 10}", "linestyle": DASHES[number // 10]}
    (line,) = axes.plot(range(1, len(parts) + 1), parts, lw=2 if way in THICK else 1, **style)
    shown.setdefault(way, line)


def forgetting():
    """Draw accuracy over the longest runs' rows: learners in Python, and the command."""
    page = Figure(figsize=(11, 3.4), layout="constrained")
    first, second = page.subplots(1, 2, sharey=True)
    for cell, found in records_of("forgetting", "rows", layers=1, rate=1e-3):
        _over_rows(first, cell, found["parts"][0], LEARNERS.get(cell["way"]))
    for cell, found in records_of("forgetting", "rows"):
        _over_rows(second, cell, found["parts"], cell.get("command"))
    for axes, title in ((first, "one layer, row by row"), (second, "the command")):
        axes.set(xlabel="row", ylim=(0.45, 1.02), title=title)
        axes.grid(alpha=0.3)
        axes.legend(loc="lower left", fontsize="small")
    save(page, "docs/streaming/forgetting.png")


def _over_rows(axes, cell, parts, label):
    if label:
        places = [cell["rows"] * (i + 1) / len(parts) for i in range(len(parts))]
        axes.plot(places, parts, label=label)


def tradeoff():
    """Draw the loss at the end over what each step of a stream costs, one point for a method."""
    costs = {
        "carry": "numbers carried for a stream",
        "operations_per_step": "operations for a step, chunks of 8",
        "seconds_per_streamed_step": "seconds for a step, chunks of 8",
    }
    page = Figure(figsize=(15, 5), layout="constrained")
    panels = page.subplots(1, len(costs), sharey=True)
    for number, (cell, found) in enumerate(records_of("credit", "steps")):
        name, losses = cell["rule"], np.array(found["losses"])
        middle = np.exp(np.log(losses).mean())
        spread = [[middle - losses.min()], [losses.max() - middle]]
        style = {"color": f"C{number % 10}", "marker": "os^vDP"[number // 10 % 6], "capsize": 3}
        for axes, key in zip(panels, costs, strict=True):
            if name == "BPTT":
                axes.axhline(middle, color="0.5", linestyle=":", label="BPTT, whole sequences")
            else:
                axes.errorbar(found[key], middle, spread, label=name, linestyle="none", **style)
    for axes, label in zip(panels, costs.values(), strict=True):
        axes.set(xscale="log", yscale="log", xlabel=label)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("final training loss, geometric mean and range of the seeds")
    page.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    save(page, "results/credit/tradeoff.png")


def readme():
    """Draw the memory of a training step against the length of the sequence."""
    page, axes = _for_a_phone()
    found = json.loads((ledger.ROOT / "benchmarks/engine/bench.json").read_text())["parts"]
    rows = {row["way"]: row for row in found["memory"]}
    for way, (label, colour) in README_WAYS.items():
        sizes = {int(key[2:-4]): value for key, value in rows[way].items() if key.startswith("T=")}
        axes.loglog(sizes.keys(), sizes.values(), "o-", color=colour, label=label, base=2)
    axes.set_yscale("log", base=10)
    axes.set(xlabel="steps of the sequence", ylabel="memory of a training step, MiB")
    axes.set_xticks(list(sizes), [f"{size:,}" for size in sizes])
    axes.set_ylim(1, 1e5)
    axes.legend(loc="upper left", fontsize=12)
    save(page, "docs/first_picture.png", dpi=130)


def _for_a_phone():
    """Return a figure whose text can be read at 390 pixels, and its axes."""
    page = Figure(figsize=(6, 4), layout="constrained")
    axes = page.subplots()
    axes.tick_params(labelsize=12)
    axes.xaxis.label.set_size(13)
    axes.yaxis.label.set_size(13)
    axes.grid(alpha=0.3)
    return page, axes


def learned_memory():
    """Draw the accuracy of learned memory, frozen memory, and the default with and without it."""
    cell = {"stream": "alarm", "rows": 20_000, "seed": 2}
    given = memory.rows_of(cell["stream"], cell["seed"], cell["rows"])
    lines = {
        f"24 modules, {how}": memory.network(cell | {"method": how}, *given)[0]
        for how in ("learned", "frozen")
    }
    with jax.enable_x64(False):
        _, mixture = guarded.errors(cell)
    lines["the command, defaults"] = mixture["with"]
    lines["without experts that remember"] = mixture["without"]
    page, axes = _for_a_phone()
    for (label, right), dash in zip(lines.items(), ("-", "--", "-", "--"), strict=True):
        blocks = right[: len(right) // 200 * 200].reshape(-1, 200).mean(axis=1) / 100
        rows = SPACING[cell["stream"]] * 200 * (1 + np.arange(len(blocks)))
        colour = "tab:blue" if "modules" in label else "tab:orange"
        axes.plot(rows, blocks, dash, color=colour, label=label, lw=2)
    axes.set(xlabel="row", ylabel="accuracy of 200 labels", ylim=(0.2, 1.02))
    axes.set_xticks(range(0, 20_001, 5_000), [f"{row:,}" for row in range(0, 20_001, 5_000)])
    axes.legend(loc="lower right", fontsize=12)
    save(page, "docs/second_order_1.png", dpi=130)


if __name__ == "__main__":
    for figure in (reach, forgetting, tradeoff, readme, learned_memory):
        figure()

"""Figures of `docs/streams_compared.md`, `docs/streaming.md` and README from the records.

    python -m benchmarks.streams.figures

draws the latter: memory of `benchmarks/engine/bench.json`, as XLA states it for the compiled step
(`python -m benchmarks.engine.steps --parts memory`); and a learned memory, the same one untrained,
and the default mixture with and without the experts that remember, on a made stream, run here.
"""

import json

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import ledger

README_WAYS = {
    "BPTT, whole sequences": ("backpropagation through time", "tab:gray"),
    "BPTT, chunks of 64": ("the same, over the last 64 steps", "tab:brown"),
    "online, chunks of 64": ("online rule, 64 steps at a time", "tab:blue"),
    "online, row by row": ("online rule, one step at a time", "tab:cyan"),
}
"""Label and colour of each line of the README's figure."""
THICK = ("online", "exact (credit depth 2)", "mixture of experts (default)")
COLOURS = [f"C{number}" for number in range(10)]
DASHES = ("-", "--", ":")
"""Dashes of a learner, the same on every panel, which change after ten colours."""


def save(page, path, dpi=80):
    """Write a figure."""
    FigureCanvasAgg(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.savefig(path, dpi=dpi)


def reach(records):
    """Draw accuracy over tenths of the labels, at the longest delay."""
    records = [r for r in records if r["cell"]["delay"] == max(r["cell"]["delay"] for r in records)]
    tasks = list(dict.fromkeys(r["cell"]["task"] for r in records))
    page = Figure(figsize=(4 * len(tasks) + 2, 3.4), layout="constrained")
    shown = {}
    for axes, task in zip(page.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        for record in records:
            cell, parts = record["cell"], record["found"]["parts"]
            if cell["task"] == task and cell["seed"] == 0 and "lags" not in cell:
                _line(axes, cell["way"], parts, shown)
        axes.set(
            title=f"{task}, {records[0]['cell']['delay']:,} rows back",
            xlabel="tenth of the labels",
            ylim=(0.3, 1.03),
        )
        axes.grid(alpha=0.3)
    page.legend(shown.values(), shown, loc="outside right upper", fontsize="small")
    return page


def _line(axes, way, parts, shown):
    """Draw the scores of a learner in its own style, and keep its first line for the legend."""
    number = list(shown).index(way) if way in shown else len(shown)
    style = {
        "color": COLOURS[number % 10],
        "linestyle": DASHES[number // 10],
        "lw": 2 if way in THICK else 1,
    }
    (line,) = axes.plot(range(1, len(parts) + 1), parts, **style)
    shown.setdefault(way, line)


def forgetting(records):
    """Draw accuracy over the longest runs' rows: learners in Python, and the command."""
    page = Figure(figsize=(11, 3.4), layout="constrained")
    shown = {
        "rule": "ONLINE, encoder trained",
        "default": "ONLINE, the default",
        "front held": "ONLINE, the default",
    }
    shown |= {"full credit": "ONLINE, full credit depth", "hybrid": "HYBRID"}
    learners = [r for r in records if r["cell"].get("way") in shown and r["cell"]["rate"] == 1e-3]
    learners = [r for r in learners if r["cell"]["layers"] == 1]
    commands = [r for r in records if "command" in r["cell"]]
    for axes, chosen in zip(page.subplots(1, 2, sharey=True), (learners, commands), strict=True):
        most = max((r["cell"]["rows"] for r in chosen), default=0)
        for record in (r for r in chosen if r["cell"]["rows"] == most):
            cell, parts = record["cell"], record["found"]["parts"]
            parts = parts if chosen is commands else parts[0]
            places = [most * (i + 1) / len(parts) for i in range(len(parts))]
            axes.plot(
                places, parts, label=cell["command"] if chosen is commands else shown[cell["way"]]
            )
        axes.set(
            xlabel="row",
            ylim=(0.45, 1.02),
            title="the command" if chosen is commands else "one layer, row by row",
        )
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(loc="lower left", fontsize="small")
    return page


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
    save(page, ledger.ROOT / "docs" / "first_picture.png", dpi=130)


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
    import jax

    from benchmarks.streams import guarded, memory

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
        rows = memory.EACH[cell["stream"]] * 200 * (1 + np.arange(len(blocks)))
        colour = "tab:blue" if "modules" in label else "tab:orange"
        axes.plot(rows, blocks, dash, color=colour, label=label, lw=2)
    axes.set(xlabel="row", ylabel="accuracy of 200 labels", ylim=(0.2, 1.02))
    axes.set_xticks(range(0, 20_001, 5_000), [f"{row:,}" for row in range(0, 20_001, 5_000)])
    axes.legend(loc="lower right", fontsize=12)
    save(page, ledger.ROOT / "docs" / "second_order_1.png", dpi=130)


if __name__ == "__main__":
    readme()
    learned_memory()

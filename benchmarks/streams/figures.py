"""Figures of `docs/` and `results/`, from the records: `python -m benchmarks.streams.figures`.

Memory against the length is that of `benchmarks/records/steps.jsonl`, as XLA states it for the
compiled step (`python -m benchmarks.engine.steps --parts memory`). Returns of agents are those of
`python -m benchmarks.agents.run`. A learned memory, the same one untrained, and the default mixture
with and without the experts that remember are run here, on a made stream.
"""

import jax
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import ledger
from benchmarks.pages.template import found_rows, results
from benchmarks.streams import memory, remembering
from benchmarks.streams.held import SPACING

README_WAYS = {
    "BPTT, whole sequences": ("BPTT", "tab:gray", (1500, 230)),
    "BPTT, in segments of 512": ("BPTT, segment=512", "0.25", (9000, 16)),
    "online, chunks of 64": ("online rule, chunks of 64", "tab:blue", (1000, 6.3)),
    "BPTT, chunks of 64": ("BPTT in chunks of 64", "tab:orange", (1000, 2.7)),
}
"""Label and colour of each line of the README's first panel, and the place of the label."""
WINDOW = {"part": "windows", "environment": "chain", "length": 64}
AGENTS = {
    "online rule": (
        "rl",
        {"task": "chain", "length": 64, "rule": "online"},
        "tab:blue",
        (108, 1.13),
    ),
    "BPTT, 65 steps:\n14 × the operations": (
        "rl_baselines",
        WINDOW | {"reach": 65},
        "0.25",
        (12, 1.13),
    ),
    "BPTT, 32 steps: equal memory": (
        "rl_baselines",
        WINDOW | {"reach": 32},
        "tab:orange",
        (52, 0.06),
    ),
}
"""Record, cell and colour of each line of its second panel, and the place of its label."""
REACH = {
    "mixture of experts (default)": ("foretrace stream", "tab:orange"),
    "online": ("online rule", "tab:blue"),
    "online, input gain x 10": ("online rule, input gain × 10", "tab:cyan"),
    "rolling BPTT, the whole reach": ("BPTT, last 1,000 rows", "black"),
    "rolling BPTT, equal memory": ("BPTT, equal memory", "tab:gray"),
}
"""Label and colour of the learners of a dependency many rows back that are drawn."""
MEMORY = {
    "24 modules alone, learned": (10_500, 0.975),
    "24 modules alone, untrained": (8_300, 0.612),
    "foretrace stream": (8_200, 0.845),
    "the same without its memory": (10_300, 0.765),
}
"""Place of the label of each line on the made stream."""
POINTS = {
    "BPTT": "BPTT, whole sequences",
    "BPTT, chunks of 8": "BPTT, chunks of 8",
    "BPTT, window of 16": "BPTT, window of 16",
    "BPTT, window of 24": "BPTT, window of 24: holds the gap",
    "ONLINE": "online rule",
    "ONLINE(depth=2, groups=1)": "credit depth 2 for the first group",
    "ONLINE(depth=1)": "credit depth 1",
    "ONLINE(depth=4, groups=2)": "credit depth 4\nfor two groups",
}
"""Name of each rule that is drawn by loss and memory."""
LEARNERS = {
    "rule": ("encoder trained: forgets", "tab:orange", (105, 0.82)),
    "default": ("encoder frozen: the default", "tab:blue", (80, 0.965)),
    "front held": ("encoder frozen: the default", "tab:blue", (80, 0.965)),
    "full credit": ("encoder trained, full credit depth", "tab:green", (60, 1.025)),
}
"""Label and colour of each learner of a long run, and the place of its label."""


def save(page, path, dpi=80):
    """Write a figure."""
    FigureCanvasAgg(page)
    page.savefig(ledger.ROOT / path, dpi=dpi)


def records_of(name, key, **where):
    """Return cells and results with the largest number of a key, of cells with some settings."""
    found = [one for one in results(name, **where) if key in one[0]]
    most = max(cell[key] for cell, _ in found)
    return [one for one in found if one[0][key] == most]


def reach():
    """Draw accuracy over tenths of the labels, at the longest delay."""
    lines = records_of("reach", "delay", seed=0)
    delay = f"{lines[0][0]['delay']:,}"
    page = Figure(figsize=(11, 4), layout="constrained")
    panels = page.subplots(1, 3, sharey=True)
    for axes, task in zip(panels, ("copy", "xor", "select"), strict=True):
        found = {cell["way"]: found for cell, found in lines if cell["task"] == task}
        for way, (label, colour) in REACH.items():
            wide = 2.5 if "default" in way else 1.5
            parts = found[way]["parts"]
            axes.plot(range(10, 101, 10), parts, color=colour, lw=wide, label=label)
        axes.axhline(0.5, color="0.4", linestyle=":")
        axes.text(100, 0.49, "chance", color="0.4", ha="right", va="top")
        axes.set(title=task, xlabel="labels seen, per cent", ylim=(0.35, 1.03))
        axes.set_xticks(range(20, 101, 20))
        axes.grid(alpha=0.3)
    page.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    panels[0].set_ylabel("accuracy of a tenth of the labels")
    page.suptitle(
        f"foretrace stream solves all three tasks whose cue is {delay} rows back (one seed)"
    )
    save(page, "docs/streams_compared/reach.png", dpi=100)


def forgetting():
    """Draw accuracy over the rows of the longest run of a learner, by what it trains."""
    page = Figure(figsize=(7.5, 3.4), layout="constrained")
    axes = page.subplots()
    for cell, found in records_of("forgetting", "rows", layers=1, rate=1e-3):
        if cell["way"] in LEARNERS:
            label, colour, place = LEARNERS[cell["way"]]
            parts = found["parts"][0]
            places = [cell["rows"] / 1000 * (i + 1) / len(parts) for i in range(len(parts))]
            axes.plot(places, parts, color=colour)
            _label(axes, label, place, (0, 0), colour)
    axes.set(xlabel="rows, thousands", ylabel="accuracy of 5,000 rows", ylim=(0.75, 1.05))
    axes.set(xlim=(0, 202), title="The online rule forgets if the encoder is trained")
    axes.set_xticks(range(0, 201, 50))
    axes.text(2, 0.762, "sign of the input three rows before, one seed; guessing has 0.5")
    axes.grid(alpha=0.3)
    save(page, "docs/streaming/forgetting.png", dpi=100)


def tradeoff():
    """Draw the loss at the end over the memory of a stream, one point for a method."""
    page = Figure(figsize=(9, 5), layout="constrained")
    axes = page.subplots()
    for cell, found in records_of("credit", "steps"):
        name, losses = cell["rule"], np.array(found["losses"])
        if name not in POINTS:  # results/credit.md has them all
            continue
        middle = np.exp(np.log(losses).mean())
        spread = [[middle - losses.min()], [losses.max() - middle]]
        colour = "tab:orange" if name.startswith("BPTT") else "tab:blue"
        if name == "BPTT":
            axes.axhline(middle, color=colour, linestyle=":")
            place = axes.get_yaxis_transform()
            axes.text(0.01, middle, POINTS[name], transform=place, va="bottom", color=colour)
            continue
        axes.errorbar(found["carry"], middle, spread, fmt="o", color=colour, capsize=3)
        _label(
            axes, POINTS[name], (found["carry"], middle), (8, -9 * ("\n" in POINTS[name])), colour
        )
    axes.set(xscale="log", yscale="log", xlabel="numbers carried for a stream", xlim=(150, 3e7))
    axes.set_ylabel("final training loss (mean and range of the seeds)")
    axes.set_title("Copy: credit through layers closes the gap to BPTT, at a price in memory")
    axes.grid(alpha=0.3)
    save(page, "results/credit/tradeoff.png", dpi=100)


def readme():
    """Draw memory against the length of a sequence, and returns of agents with a window."""
    page = Figure(figsize=(8.6, 3.9), layout="constrained")
    memory_axes, returns = page.subplots(1, 2)
    rows = {row["way"]: row for row in found_rows("steps", part="memory")}
    for way, (label, colour, place) in README_WAYS.items():
        sizes = {int(key[2:-4]): value for key, value in rows[way].items() if key.startswith("T=")}
        memory_axes.loglog(sizes.keys(), sizes.values(), "o-", color=colour, base=2)
        _label(memory_axes, label, place, (0, 0), colour)
    memory_axes.set_yscale("log", base=10)
    memory_axes.set(xlabel="steps of the sequence", ylabel="memory of a training step, MiB")
    memory_axes.set_xticks(list(sizes), [f"{size // 1024} k" for size in sizes])
    memory_axes.set(
        ylim=(1.5, 3e3), title="The online rule needs constant memory,\nas BPTT in chunks does"
    )
    for label, (record, cell, colour, place) in AGENTS.items():
        (each,) = [found["curves"] for _, found in results(record, **cell)]
        each = np.array(each[:3]).reshape(3, -1, 5).mean(axis=2)
        steps = 15 * (1 + np.arange(each.shape[1]))
        returns.plot(steps, each.mean(axis=0), color=colour)
        returns.fill_between(steps, each.min(axis=0), each.max(axis=0), color=colour, alpha=0.12)
        _label(returns, label, place, (0, 0), colour)
    returns.set(xlabel="steps of experience, thousands", ylabel="return; 1 is the best")
    returns.set(ylim=(-0.1, 1.3), xlim=(10, 155))
    returns.set_title(
        "The online rule learns a cue of 64 steps ago\n(means and ranges of three seeds)"
    )
    returns.set_yticks([0, 0.5, 1])
    returns.set_xticks([50, 100, 150])
    for axes in (memory_axes, returns):
        _readable(axes)
    save(page, "docs/first_picture.png", dpi=130)


def _label(axes, text, at, by, colour):
    """Write the name of a line beside it, in its colour."""
    axes.annotate(text, at, by, textcoords="offset points", color=colour, fontsize=11, va="center")


def _readable(axes):
    """Make the text of a panel so large that it can be read at 390 pixels."""
    axes.tick_params(labelsize=12)
    axes.xaxis.label.set_size(12)
    axes.yaxis.label.set_size(12)
    axes.title.set_size(12)
    axes.grid(alpha=0.3)


def learned_memory():
    """Draw the accuracy of learned memory, frozen memory, and the default with and without it."""
    cell = {"stream": "alarm", "rows": 20_000, "seed": 2}
    given = memory.rows_of(cell["stream"], cell["seed"], cell["rows"])
    lines = {
        f"24 modules alone, {name}": memory.network(cell | {"method": how}, *given)[0]
        for name, how in (("learned", "learned"), ("untrained", "frozen"))
    }
    with jax.enable_x64(False):
        _, mixture = remembering.errors(cell)
    lines["foretrace stream"] = mixture["with"]
    lines["the same without its memory"] = mixture["without"]
    page = Figure(figsize=(7, 4), layout="constrained")
    axes = page.subplots()
    for (label, right), dash in zip(lines.items(), ("-", "--", "-", "--"), strict=True):
        blocks = right[len(right) % 400 :].reshape(-1, 400).mean(axis=1) / 100
        step = SPACING[cell["stream"]] * 400  # the last block ends at the last row
        rows = cell["rows"] - step * np.arange(len(blocks))[::-1]
        colour = "tab:blue" if "modules" in label else "tab:orange"
        axes.plot(rows, blocks, dash, color=colour, lw=2)
        _label(axes, label, MEMORY[label], (0, 0), colour)
    labels = given[1][~np.isnan(given[1])].astype(int)
    chance = np.bincount(labels).max() / len(labels)
    axes.axhline(chance, color="0.4", linestyle=":")
    axes.text(20_000, chance - 0.01, "the most frequent label", color="0.4", ha="right", va="top")
    axes.set(xlabel="row", ylabel="accuracy of 400 labels", ylim=(chance - 0.06, 1.02))
    axes.set_title("Trained modules learn the alarm, untrained ones do not")
    axes.set_xticks(range(0, 20_001, 5_000), [f"{row:,}" for row in range(0, 20_001, 5_000)])
    axes.set_yticks([0.6, 0.7, 0.8, 0.9, 1])
    _readable(axes)
    save(page, "docs/second_order_1.png", dpi=130)


if __name__ == "__main__":
    for figure in (reach, forgetting, tradeoff, readme, learned_memory):
        figure()

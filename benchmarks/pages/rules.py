"""`docs/rules_compared.md`: the rules on streamed tasks and on the paper's, and their cost."""

from statistics import mean

import foretrace as ft
from benchmarks.networks import lru_network
from benchmarks.pages import paper
from benchmarks.pages.suite import ONLINE, ORDER, by_rule, mean_of
from benchmarks.pages.template import by_columns, found_rows, percent, results, table

TASKS = {
    "copy": ("copy, bits recalled", "accuracy", max, percent),
    "digits": ("spoken digits, accuracy", "accuracy", max, percent),
    "text": ("text, bits per byte", "bits_per_byte", min, "{:.3f}".format),
    "randman": ("spikes, loss", "loss", min, "{:.3f}".format),
    "heart": ("heart beat, nRMSE", "nrmse", min, "{:.3f}".format),
}
SAMPLED = "online, credit depth 2, encoder, 8 modules by memory"
DEPTHS = ("bptt", "online", "hybrid, chunk 16", "hybrid, chunk 24")
DEPTHS += tuple(f"online, credit depth {depth}" for depth in (1, 2, 3))
DEPTHS += ("online, credit depth 2, encoder", SAMPLED)
"""Entries of Table 1 that the page shows."""


def scores():
    """Return the mean score of each rule on each task."""
    found = {task: by_rule(task) for task in TASKS}
    rows = {
        rule: [
            mean_of(found[task][rule], key) if rule in found[task] else None
            for task, (_, key, *_) in TASKS.items()
        ]
        for rule in ORDER
    }
    columns = [(shown, best) for _, _, best, shown in TASKS.values()]
    return table(["rule", *(title for title, *_ in TASKS.values())], by_columns(rows, columns))


def costs():
    """Return the cost of a step of the copy task under each rule."""
    found, rows = by_rule("copy"), []
    base = mean_of(found[ONLINE], "cpu_us_per_step")
    for rule, runs in found.items():
        memory, count = f"{runs[0]['memory_kib']:,.0f}", f"{runs[0]['operations'] / 1e3:,.0f}"
        rows.append([rule, memory, count, f"{mean_of(runs, 'cpu_us_per_step') / base:.1f}"])
    return table(["rule", "memory, KiB", "10³ operations", "CPU time, ratio"], rows)


def whole():
    """Return time and memory of a step on whole sequences, relative to BPTT."""
    rows = [
        [row["rule"], f"{row['time_over_bptt']:.2f}", f"{row['memory_over_bptt']:.2f}"]
        for row in found_rows("steps", part="whole")
        if row["shape"] == "copy"
    ]
    return table(["rule, whole sequences", "time / BPTT", "memory / BPTT"], rows)


def memory():
    """Return the memory of a step for sequences of several lengths."""
    ways = {row["way"]: row for row in found_rows("steps", part="memory")}
    shown = ("BPTT, whole sequences", "online, chunks of 64", "online, row by row")
    lengths = [key for key in ways[shown[0]] if key.startswith("T=")]
    head = ["MiB", *(f"{int(key[2:-4]):,} steps" for key in lengths)]
    return table(head, [[way, *(f"{ways[way][key]:,.0f}" for key in lengths)] for way in shown])


def depth():
    """Return the final training loss of the paper's copy task, and the carry of a stream."""
    network, rows = lru_network(8, 14, 128, 4, modules=64), []
    for name in DEPTHS:
        cell = paper.cells("table1", "paper")[name, "LRU x 4"]
        carried = ft.carry_size(network, cell.entry.config.rule)
        rows.append([name, paper.loss(cell.mean), f"{carried:,}"])
    return table(["rule", "final training loss", "elements carried"], rows)


def stale():
    """Return the table of `docs/streaming.md`: how stale sensitivities are at two rates."""
    layers = {"tiny": "one layer of 16 modules", "small": "two layers of 32 modules"}
    found = {}
    for cell, one in results("stale", policy="keep"):
        runs = [[cosine for cosine, _ in run] for run in one["cosine_and_error"]]
        # Every seed has as many values, so that the mean of all is that of the means.
        late = [cosine for run in runs for cosine in run[len(run) // 2 :]]
        found[cell["size"], cell["rate"]] = mean(late), min(map(min, runs))
    head = ["network", "rate", "mean of the second half", "lowest of all"]
    lines = [
        [layers[size], f"{rate:g}", *(f"{value:.2f}" for value in found[size, rate])]
        for size in layers
        for rate in (1e-4, 1e-3)
    ]
    return table(head, lines)

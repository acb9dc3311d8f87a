"""`docs/rules_compared.md`: the rules on streamed tasks and on the paper's, and their cost."""

import json
from functools import cache
from statistics import mean

import jax

import foretrace as ft
from benchmarks import ledger
from benchmarks.pages import paper
from benchmarks.pages.suite import ONLINE, ORDER
from benchmarks.pages.template import bold_best, filled, percent, table

PAGE = ledger.ROOT / "docs" / "rules_compared.md"
TASKS = {
    "copy": ("copy, bits recalled", "accuracy", max, percent),
    "digits": ("spoken digits, accuracy", "accuracy", max, percent),
    "text": ("text, bits per byte", "bits_per_byte", min, "{:.3f}".format),
    "randman": ("spikes, loss", "loss", min, "{:.3f}".format),
    "heart": ("heart beat, nRMSE", "nrmse", min, "{:.3f}".format),
}
DEPTHS = {
    "bptt": ft.BPTT,
    "online": ft.ONLINE,
    "hybrid, chunk 16": ft.HYBRID,
    "hybrid, chunk 24": ft.HYBRID,
    "online, credit depth 1": ft.ONLINE.with_depth(1),
    "online, credit depth 2": ft.ONLINE.with_depth(2),
    "online, credit depth 3": ft.ONLINE.with_depth(3),
    "online, credit depth 2, encoder": ft.rule("online(depth=2, groups=1)"),
    "online, credit depth 2, encoder, 8 modules by memory": ft.rule(
        "online(depth=2, groups=1, modules=8, by_memory=True)"
    ),
}
"""Entries of Table 1 that the page shows, and the rule of each."""


def text():
    """Return the page."""
    return filled(
        "rules",
        {"scores": scores, "costs": costs, "depth": depth, "whole": whole, "memory": memory},
    )


@cache
def records():
    """Return the results for each task and rule, of the runs with most batches."""
    every = ledger.read(ledger.RECORDS / "suite.jsonl")
    most = {
        task: max(r["cell"]["batches"] for r in every if r["cell"]["task"] == task)
        for task in TASKS
    }
    found = {}
    for record in every:
        cell = record["cell"]
        if cell["batches"] == most[cell["task"]]:
            found.setdefault((cell["task"], cell["rule"]), []).append(record["found"])
    return found


def scores():
    """Return the mean score of each rule on each task."""
    columns = []
    for task, (_, key, best, shown) in TASKS.items():
        found = [records().get((task, rule)) for rule in ORDER]
        means = [mean(one[key] for one in runs) if runs else None for runs in found]
        columns.append(bold_best(means, shown, best))
    rows = [[rule, *values] for rule, values in zip(ORDER, zip(*columns, strict=True), strict=True)]
    return table(["rule", *(title for title, *_ in TASKS.values())], rows)


def costs():
    """Return the cost of a step of the copy task under each rule."""
    base = mean(one["cpu_us_per_step"] for one in records()["copy", ONLINE])
    rows = []
    for rule in ORDER:
        if runs := records().get(("copy", rule)):
            time = mean(one["cpu_us_per_step"] for one in runs) / base
            rows.append(
                [
                    rule,
                    f"{runs[0]['memory_kib']:,.0f}",
                    f"{runs[0]['operations'] / 1e3:,.0f}",
                    f"{time:.1f}",
                ]
            )
    return table(["rule", "memory, KiB", "10³ operations", "CPU time, ratio"], rows)


@cache
def bench():
    """Return the record of `benchmarks/engine/steps.py`."""
    return json.loads((ledger.ROOT / "benchmarks" / "engine" / "bench.json").read_text())["parts"]


def whole():
    """Return time and memory of a step on whole sequences, relative to BPTT."""
    rows = [
        [row["rule"], f"{row['time_over_bptt']:.2f}", f"{row['memory_over_bptt']:.2f}"]
        for row in bench()["whole"]
        if row["shape"] == "copy"
    ]
    return table(["rule, whole sequences", "time / BPTT", "memory / BPTT"], rows)


def memory():
    """Return the memory of a step for sequences of several lengths."""
    ways = {row["way"]: row for row in bench()["memory"]}
    shown = ("BPTT, whole sequences", "online, chunks of 64", "online, row by row")
    lengths = [key for key in ways[shown[0]] if key.startswith("T=")]
    head = ["MiB", *(f"{int(key[2:-4]):,} steps" for key in lengths)]
    return table(head, [[way, *(f"{ways[way][key]:,.0f}" for key in lengths)] for way in shown])


def depth():
    """Return the final training loss of the paper's copy task, and the carry of a stream."""
    cell = ft.LRU.factory(state_size=64)
    network = ft.Network(8, 14, model_size=128, depth=4, cell=cell, key=jax.random.key(0))
    found = paper.cells("table1", "paper")
    rows = [
        [name, paper.loss(found[name, "LRU x 4"].mean), f"{ft.carry_size(network, rule):,}"]
        for name, rule in DEPTHS.items()
    ]
    return table(["rule", "final training loss", "elements carried"], rows)


def stale():
    """Return the table of `docs/streaming.md`: how stale sensitivities are at two rates."""
    layers = {"tiny": "one layer of 16 modules", "small": "two layers of 32 modules"}
    found = {}
    for record in ledger.read(ledger.RECORDS / "stale.jsonl"):
        cell = record["cell"]
        if cell["policy"] == "keep":
            runs = [[cosine for cosine, _ in run] for run in record["found"]["cosine_and_error"]]
            # Every seed has as many values, so that the mean of all is that of the means.
            late = [cosine for run in runs for cosine in run[len(run) // 2 :]]
            found[cell["size"], cell["rate"]] = mean(late), min(map(min, runs))
    return table(
        ["network", "rate", "mean of the second half", "lowest of all"],
        [
            [layers[size], f"{rate:g}", *(f"{value:.2f}" for value in found[size, rate])]
            for size in layers
            for rate in (1e-4, 1e-3)
        ],
    )

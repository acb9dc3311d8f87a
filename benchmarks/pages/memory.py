"""`results/memory.md`: a learned memory beside untrained ones and other models."""

import tomllib
from pathlib import Path
from statistics import mean

from benchmarks.pages.template import bold_best, grouped, results, table
from benchmarks.streams import rows

LABELS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
LABELS["unseen"] = {name: one.what for name, one in rows.UNSEEN.items()}
RATED = ("adam", "rmsprop", "GRU 32", "rolling 16")


def alone():
    """Return the scores of the last 30 %: a row a stream, a column a method."""
    lines = []
    for stream, name in (LABELS["made"] | LABELS["once"] | LABELS["held"]).items():
        better, runs = _runs(stream)
        values = [mean(runs[method]) if runs[method] else None for method in LABELS["methods"]]
        shown = bold_best(values, lambda value, better=better: _shown(value, better), better)
        shown = [
            f"{score} ({len(found)})" if len(found) > 1 else score
            for score, found in zip(shown, runs.values(), strict=True)
        ]
        lines.append([_named(name, better is min), *shown])
    return table(["stream", *LABELS["methods"].values()], lines)


def held():
    """Return the table of `docs/second_order.md`: the same of the real streams, a few methods."""
    lines = []
    for stream, name in LABELS["held"].items():
        better, runs = _runs(stream)
        scores = [_shown(mean(runs[method]), better) for method in LABELS["short"]]
        lines.append([_named(name, better is min), *scores])
    return table(["stream", *LABELS["short"].values()], lines)


def _runs(stream):
    """Return which of two scores of a stream is better, and the runs of each method."""
    mine = results("memory", stream=stream)
    better = min if mine[0][1]["score"] == "error" else max
    rates = {method: {} for method in LABELS["methods"]}
    for cell, one in mine:
        said = cell["method"]
        method = said.rpartition(" ")[0] if said.rpartition(" ")[0] in RATED else said
        if method in rates:
            rates[method].setdefault(said, []).append(one["last 30 %"])
    return better, {
        method: better(found.values(), key=mean, default=[]) for method, found in rates.items()
    }


def mixture(group):
    """Return the scores of the default mixture without and with the experts that remember."""
    streams = LABELS[group]
    found = grouped((one for one in results("remembering") if "whole" in one[1]), "stream")
    columns = [(part, who) for part in ("whole", "last 30 %") for who in ("without", "with")]
    alone = [("last 30 %", who) for who in ("memory", "distant")]
    lines = []
    for stream, name in streams.items():
        if runs := found.get(stream):
            better = min if runs[0]["score"] == "error" else max
            scores = [
                mean(one[part][who] for one in runs) if who in runs[0][part] else None
                for part, who in (*columns, *alone)
            ]
            shown = ["" if score is None else _shown(score, better) for score in scores]
            lines.append([_named(name, better is min), *shown])
    head = ["without", "with", "without, last 30 %", "with, last 30 %"]
    return table(["stream", *head, *(f"{who} alone" for _, who in alone)], lines)


def _named(name, down):
    return f"{name} ↓" if down else name


def _shown(value, better):
    return f"{value:.1f}" if better is max else f"{value:.3g}"

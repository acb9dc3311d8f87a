"""Report of a measurement: Markdown tables and a figure, made from its record alone."""

import math
from typing import Any

from foretrace._runs.escape import for_markdown
from foretrace._runs.figures import new_page, page_as_png

Record = dict[str, Any]

TITLES = {
    "whole": "Training step on whole sequences",
    "cells": "SnAp-1 beside BPTT, other cells",
    "streaming": "A stream, chunk by chunk: microseconds for each time step",
    "memory": "Temporary memory of a step against the length of the sequence",
    "rounding": "Sensitivities in 16 bits",
    "first": "First call, in fresh processes",
}


def markdown(record: Record) -> str:
    """Return the tables of a record."""
    about = record["surroundings"]
    lines = [
        f"{for_markdown(about['devices'])}, {about['cores']} cores, JAX "
        f"{about['packages']['jax']}, Python {about['python']}; {about['started'][:10]}, load "
        f"before {record['load']}, medians of {record['rounds']} rounds in turn"
        + (f"; matrix products in {asked}." if (asked := record.get("matmul_precision")) else "."),
    ]
    for part, rows in record["parts"].items():
        lines += ["", f"## {TITLES[part]}", "", record["about"][part], "", *_table(rows)]
    return "\n".join(lines) + "\n"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    names = list(rows[0])
    head = "| " + " | ".join(name.replace("_", " ") for name in names) + " |"
    body = ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows]
    return [head, "|" + "---|" * len(names), *body]


def png(record: Record) -> bytes | None:
    """Return a figure: share of the floor, time of a stream's step, memory against length."""
    draw = {"whole": _draw_whole, "streaming": _draw_streaming, "memory": _draw_memory}
    there = [part for part in draw if record["parts"].get(part)]
    if not there:
        return None
    page = new_page(4.6 * len(there), 3.9)
    for axes, part in zip(page.subplots(1, len(there), squeeze=False)[0], there, strict=True):
        draw[part](axes, record["parts"][part])
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    return page_as_png(page)


def _draw_whole(axes: Any, rows: list[dict[str, Any]]) -> None:
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    for place, rule in enumerate(rules):
        shares = [
            next(r["share_of_floor"] for r in rows if (r["shape"], r["rule"]) == (s, rule))
            for s in shapes
        ]
        axes.bar(
            [i + 0.8 * place / len(rules) for i in range(len(shapes))],
            shares,
            0.8 / len(rules),
            label=rule,
        )
    axes.set_xticks([i + 0.3 for i in range(len(shapes))], shapes)
    axes.set(title="products alone / step", ylim=(0, max(1, *shares)))


def _draw_streaming(axes: Any, rows: list[dict[str, Any]]) -> None:
    for number, streams in enumerate(dict.fromkeys(row["streams"] for row in rows)):
        own = [row for row in rows if row["streams"] == streams]
        for name, style in {"learn_us": "-o", "infer_us": "--s", "floor_us": ":"}.items():
            label = f"{name.removesuffix('_us')}, {streams} stream{'s' * (streams > 1)}"
            axes.plot(
                [r["chunk"] for r in own],
                [r[name] for r in own],
                style,
                color=f"C{number}",
                label=label,
            )
    axes.set(title="µs for each time step", xlabel="chunk", xscale="log", yscale="log")


def _draw_memory(axes: Any, rows: list[dict[str, Any]]) -> None:
    # Those of the other rules would hide them; the table has all.
    for row in [row for row in rows if row["way"].startswith(("BPTT", "online"))]:
        points = [(int(key[2:-4]), value) for key, value in row.items() if key.startswith("T=")]
        points = [(length, value if value > 0 else math.nan) for length, value in points]
        axes.plot(*zip(*points, strict=True), "o-", label=row["way"])
    axes.set(
        title="temporary memory, MiB", xlabel="length of the sequence", xscale="log", yscale="log"
    )

"""What a measurement says: Markdown tables, made from its record alone."""

from typing import Any

from foretrace._runs.escape import for_markdown

Record = dict[str, Any]

TITLES = {
    "whole": "Training step on whole sequences",
    "cells": "SnAp-1 beside BPTT, other cells",
    "streaming": "A stream, chunk by chunk: microseconds for each time step",
    "memory": "Temporary memory of a step against the length of the sequence",
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

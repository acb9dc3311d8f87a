"""`docs/forecasting.md`: our records on two public boards beside the published rows.

The published scores are those of `published_forecasting.jsonl`; the page names their sources.
"""

from benchmarks.pages.template import by_columns, records, table

HORIZONS = (1, 24, 48)


def scores(board, name, lines=None):
    """Return the table of a data set: ours first, the best of each column in bold.

    Args:
        board: name of the board.
        name: name of the data set.
        lines: lines of the record; the committed ones if not given.
    """
    lines = records("forecasting") if lines is None else lines
    found = {}
    for line in (*lines, *records("published_forecasting")):
        cell, way = line["cell"], line["cell"]["way"]
        if (cell["board"], cell["data"]) == (board, name):
            way = f"*{way}*" if "source" in line else way
            found.setdefault(way, {})[cell["horizon"]] = line["found"]
    rows = {
        way: [found[way].get(h, {}).get("mse") for h in HORIZONS]
        for way in sorted(found, key=lambda way: way != "foretrace")
    }
    shown = by_columns(rows, [("{:g}".format,)] * len(HORIZONS))
    times = [str(found[way].get(HORIZONS[-1], {}).get("us a value", "")) for way in rows]
    lines = [[*row, time] for row, time in zip(shown, times, strict=True)]
    return table(["model", "1 step", "24", "48", "µs a value at 48"], lines)

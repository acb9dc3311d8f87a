"""Rows until a new level, the end of a constant stretch, or new noise is followed.

    python -m benchmarks.streams.recovery [--rows 1000 100000 1000000]
        [--mixture 1000 10000 100000] [--page]

`level`: rows until a running mean accepts numbers 1,000 standard deviations away. `constant`: the
same for noise after equal numbers. `coverage`: rows until 30 of 40 labels lie in their intervals,
after exact predictions. These three are classes on the host. `mixture` is the default mixture:
excess of its error in the 500 rows after a shift by 1,000 over the error of the last value, in
shifts (a row at the old level is one). `--page` prints the records.
"""

import argparse

import numpy as np

from benchmarks import ledger

FILE = ledger.RECORDS / "recovery.jsonl"
NOISE = np.random.default_rng(0).normal(size=400_000)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[10**3, 10**5, 10**6])
    parser.add_argument("--mixture", type=int, nargs="*", default=[10**3, 10**4, 10**5])
    parser.add_argument(
        "--page", action="store_true", help="print the table of the records, measure nothing"
    )
    asked = parser.parse_args()
    if asked.page:
        return ledger.print_table(
            ledger.read(FILE), ["what", "rows"], ["rows until recovery", "excess"]
        )
    cells = [
        {"what": what, "rows": rows}
        for what in ("level", "constant", "coverage")
        for rows in asked.rows
    ]
    cells += [{"what": "mixture", "rows": rows} for rows in asked.mixture]
    return ledger.each(FILE, cells, measure)


def measure(cell):
    """Return the rows until recovery, or the excess of the mixture."""
    if cell["what"] == "mixture":
        return {"excess": round(of_mixture(cell["rows"]), 2)}
    if cell["what"] == "coverage":
        return {"rows until recovery": of_coverage(cell["rows"])}
    before = NOISE[np.arange(cell["rows"]) % len(NOISE)] * (cell["what"] == "level")
    after = (1000.0 if cell["what"] == "level" else 0.0) + NOISE
    return {"rows until recovery": of_moments(before, after)}


def of_moments(before, after):
    """Return the number of the first of 30 numbers in a row that are counted as they are."""
    from foretrace._rows.running import Moments

    moments, in_a_row = Moments(), 0
    for x in before.tolist():
        learn(moments, x)
    for i, x in enumerate(after.tolist()):
        in_a_row = in_a_row + 1 if learn(moments, x) == x else 0
        if in_a_row == 30:
            return i - 29
    return len(after)


def learn(moments, x, bound=10.0):
    """Count a number; return it as it was counted, also by an earlier version."""
    if hasattr(moments, "learn"):
        return moments.learn(x, bound)
    inside = moments.within(x, bound)
    moments.update(inside)
    return inside


def of_coverage(exact):
    """Return the number of the first of 40 labels of which 30 lie in their intervals."""
    from foretrace._rows.intervals import Intervals

    intervals, inside = Intervals(1), []
    for error in [0.0] * exact + NOISE[:4000].tolist():
        margins = intervals.margins(1.0)
        inside.append(-margins[0, 0] <= error <= margins[1, 0])
        intervals.learn(np.array([error]), margins, 1.0)
    shares = np.convolve(inside[exact:], np.ones(40), "valid")
    return int(np.argmax(shares >= 30)) if (shares >= 30).any() else len(shares)


def of_mixture(rows):
    """Return the excess of the error in the 500 rows after the shift, in shifts."""
    import tempfile
    from pathlib import Path

    from foretrace._runs.metrics import read_metrics
    from foretrace.stream._config import StreamConfig
    from foretrace.stream._run import follow

    ys = [*NOISE[np.arange(rows) % len(NOISE)], *(1000 + NOISE[:500])]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.csv").write_text("\n".join(["y", *map(str, ys), ""]))
        config = StreamConfig(f"{folder}/a.csv", target="y", task="regression", log_every=500)
        result = follow(config, f"{folder}/run", show_progress=False)
        line = [line for line in read_metrics(result.run.metrics) if line["kind"] == "stream"][-1]
    return 500 * (line["mae"] - line["no_change_mae"]) / 1000


if __name__ == "__main__":
    main()

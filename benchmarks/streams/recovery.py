"""Rows until a new level, the end of a constant stretch, or new noise is followed.

    python -m benchmarks.streams.recovery [--rows 1000 100000 1000000]
        [--mixture 1000 10000 100000] [--page]

`level`: rows until a running mean accepts numbers 1,000 standard deviations away. `constant`: the
same for noise after equal numbers. `coverage`: rows until 30 of 40 labels lie in their intervals,
after exact predictions. These three are parts of the program of a stream. `mixture` is the default
mixture: excess of its error in the 500 rows after a shift by 1,000 over the error of the last
value, in shifts (a row at the old level is one). `--page` prints the records.
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
    import jax

    from foretrace._experts.moments import new_moments

    def learn(moments, x):
        counted, moments = moments.learn(x[None], 10.0, np.ones(1, bool))
        return moments, counted[0] == x

    with jax.enable_x64(True):
        values = np.concatenate([before, after])
        _, found = jax.jit(lambda xs: jax.lax.scan(learn, new_moments(1), xs))(values)
    return first_of(np.asarray(found)[len(before) :], 30, 30)


def of_coverage(exact):
    """Return the number of the first of 40 labels of which 30 lie in their intervals."""
    import jax
    import jax.numpy as jnp

    from foretrace._experts.intervals import Intervals

    intervals = Intervals(1)

    def learn(state, error):
        margins = intervals.in_use(state, jnp.ones(()))
        state = intervals.learn(state, error[None], margins, jnp.ones(()), jnp.ones((), bool))
        return state, (-margins[0, 0] <= error) & (error <= margins[1, 0])

    with jax.enable_x64(True):
        errors = np.concatenate([np.zeros(exact), NOISE[:4000]])
        _, inside = jax.jit(lambda xs: jax.lax.scan(learn, intervals.init(), xs))(errors)
    return first_of(np.asarray(inside)[exact:], 40, 30)


def first_of(found, window, enough):
    """Return the number of the first row from which enough of a window are true."""
    sums = np.convolve(found, np.ones(window), "valid")
    return int(np.argmax(sums >= enough)) if (sums >= enough).any() else len(sums)


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

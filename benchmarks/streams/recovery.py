"""Rows until a new level, the end of a constant stretch, or new noise is followed.

    python -m benchmarks.streams.recovery [--rows 1000 100000 1000000]
        [--mixture 1000 10000 100000]

`level`: rows until a running mean accepts numbers 1,000 standard deviations away. `constant`: the
same for noise after equal numbers. `coverage`: rows until 30 of 40 labels lie in their intervals,
after exact predictions. These three are parts of the program of a stream. `mixture` is the default
mixture: excess of its error in the 500 rows after a shift by 1,000 over the error of the last
value, in shifts (a row at the old level is one).
"""

import tempfile

import numpy as np

from benchmarks import ledger
from benchmarks.streams.followed import follow, write

NOISE = np.random.default_rng(0).normal(size=400_000)


def cells(rows=(10**3, 10**5, 10**6), mixture=(10**3, 10**4, 10**5)):
    """Return the cells: rows before a change, for the parts and for the mixture."""
    parts = ledger.grid(what=["level", "constant", "coverage"], rows=rows)
    return parts + ledger.grid(what="mixture", rows=mixture)


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

    from foretrace.stream.model.moments import new_moments

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

    from foretrace.stream.model.intervals import Intervals

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
    ys = [*NOISE[np.arange(rows) % len(NOISE)], *(1000 + NOISE[:500])]
    with tempfile.TemporaryDirectory() as folder:
        given = {"source": write(f"{folder}/a.csv", y=ys), "target": "y", "task": "regression"}
        lines = follow({}, log_every=500, **given).lines
    line = [line for line in lines if line["kind"] == "stream"][-1]
    return 500 * (line["mae"] - line["no_change_mae"]) / 1000


if __name__ == "__main__":
    ledger.run(__doc__, "recovery", cells, measure)

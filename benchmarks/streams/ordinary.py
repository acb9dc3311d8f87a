"""Ordinary columns without much noise: the default beside plain least squares.

    python -m benchmarks.streams.ordinary [--streams solar ...] [--seeds 0 1 2]
        [--broken none "1 % of -9999" "5 % of -1 in bursts" ...] [--commits f6ae9fc8 ...]

Machines that are off, nights, counters, growth, shifts, other units: y is linear in two columns a
and b (t is the row, n standard normal), but for those of `OWN`, which were written down before they
were run, and where y may depend on earlier rows. Mean absolute error after row 200 of 5,760. The
default has no setting; plain recursive least squares has a constant, a, b and the last y, and
forgets .9995 a row. Where labels are broken, the error is that of the other rows. River's models
learn whole labels alone. A commit's default is measured in place of this one.
"""

import itertools
import tempfile

import numpy as np

from benchmarks import ledger
from benchmarks.streams import earlier

ROWS, WARM = 5760, 200


def linear(draw, a, b=None, noise=0.3, wa=2.0, wb=1.0):
    """Return rows of both columns, and y."""
    b = draw.normal(size=ROWS) if b is None else b
    return np.stack([a, b], 1), wa * a + wb * b + noise * draw.normal(size=ROWS)


def solar(draw, t, n):
    """Sun by the minute: nights of 0 +- .3, days up to 800."""
    sun = np.maximum(0, np.sin(2 * np.pi * (t / 1440 - 0.25))) * 800
    return linear(draw, sun * (1 + 0.1 * n()) + 0.3 * n(), noise=0.5, wa=0.5, wb=3)


def blocks(length, idle):
    """Return a machine that works in every second block of rows."""
    return lambda draw, t, n: linear(
        draw, np.where((t // length) % 2 == 1, 50 + 10 * n(), idle * n()), noise=0.5
    )


def scaled(factor):
    """Return columns whose scale depends on the row."""
    return lambda draw, t, n: linear(draw, n() * factor(t), n() * factor(t))


def exact(draw, t, n):
    """Return a relation without noise."""
    return linear(draw, 10 * n() + 5, noise=0)


STREAMS = {
    "solar": solar,
    "on and off, 500 rows": blocks(500, 0.01),
    "on and off, 100 rows": blocks(100, 0.02),
    "level shift": lambda draw, t, n: linear(draw, n() + 1000 * (t >= 3000)),
    "drift": lambda draw, t, n: linear(draw, np.cumsum(n()) + 0.05 * t, noise=0.1),
    "long tail": lambda draw, t, n: linear(draw, np.exp(1.5 * n())),
    "broken readings": lambda draw, t, n: broken(draw, n()),
    "another unit": lambda draw, t, n: another_unit(draw, t, n()),
    "exact": exact,
    "0 for 1,000 rows": lambda draw, t, n: linear(
        draw, np.where(t < 1000, 0, 200 + 50 * n()), noise=0.5, wa=0.5
    ),
    "0 in 98 %": lambda draw, t, n: linear(
        draw, np.where(draw.uniform(size=ROWS) < 0.98, 0, 50 + 20 * n()), noise=0.5, wa=1
    ),
    "x 100 in blocks": scaled(lambda t: np.where((t // 700) % 2 == 1, 100, 1)),
    "Student t": lambda draw, t, n: linear(
        draw, draw.standard_t(2, ROWS), draw.standard_t(2, ROWS)
    ),
    "Cauchy": lambda draw, t, n: linear(draw, draw.standard_cauchy(ROWS)),
    "growth": scaled(lambda t: np.exp(8 * np.minimum(t / 2400, 1))),
    "shrinking": scaled(lambda t: np.exp(8 * (1 - np.minimum(t / 2400, 1)))),
}


def broken(draw, a):
    """Return a column with a reading of a million in .2 % of the rows."""
    x, y = linear(draw, a)
    x[draw.uniform(size=ROWS) < 0.002, 0] = 1e6
    return x, y


def another_unit(draw, t, a):
    """Return a column that is in grams, not kilograms, from the middle on."""
    x, y = linear(draw, a)
    x[t >= ROWS // 2, 0] *= 1000
    return x, y


def river_level(draw, t, n):
    """Return rain in a tenth of the rows, and the level of a river that it fills."""
    rain = np.where(draw.uniform(size=ROWS) < 0.1, draw.gamma(1, 10, ROWS), 0)
    y = np.zeros(ROWS)
    for i in range(1, ROWS):
        y[i] = 0.95 * y[i - 1] + 0.5 * rain[i]
    return np.stack([rain, n()], 1), y + 0.1 * n()


OWN = {
    "counter": lambda draw, t, n: linear(draw, (t % 1000) * 3.0 + 0.1 * n()),
    "prices": lambda draw, t, n: prices(draw, 1e4 + np.cumsum(n()), n()),
    "calibration": lambda draw, t, n: linear(draw, (20 + n()) * np.where(t < 2500, 1, 1.2)),
    "three products": lambda draw, t, n: linear(
        draw, np.array([0, 10, 1000])[(t // 150) % 3] * (1 + 0.05 * n())
    ),
    "sales": lambda draw, t, n: linear(
        draw, np.exp(3 * t / ROWS) * 100 * (1 + 0.3 * np.sin(2 * np.pi * t / 7) + 0.05 * n())
    ),
    "battery": lambda draw, t, n: linear(draw, 12.6 - (t % 400) / 200 + 0.001 * n(), noise=0.01),
    "river level": river_level,
    "target in other units": lambda draw, t, n: in_other_units(t, *linear(draw, 20 + 5 * n())),
}


def prices(draw, one, difference):
    """Return two prices, nearly equal, and what depends on their difference."""
    x = np.stack([one, one + difference], 1)
    return x, 3 * (x[:, 1] - x[:, 0]) + 0.1 * draw.normal(size=ROWS)


def in_other_units(t, x, y):
    """Return y in degrees Fahrenheit from the middle on."""
    return x, np.where(t < ROWS // 2, y, 1.8 * y + 32)


def at_random(share):
    """Return which labels are broken, each by itself."""
    return lambda draw: draw.uniform(size=ROWS) < share


def in_bursts(share, length=10):
    """Return which labels are broken: ten in a row, or more where two bursts overlap."""
    begins = 1 - (1 - share) ** (1 / length)
    return lambda draw: np.convolve(draw.uniform(size=ROWS) < begins, np.ones(length))[:ROWS] > 0


def at_rows(first, last):
    """Return which labels are broken: those of some rows."""
    return lambda draw: (np.arange(ROWS) >= first) & (np.arange(ROWS) <= last)


BROKEN = {"one of 1e6": (at_rows(2000, 2000), 1e6), "20 zeros in a row": (at_rows(2000, 2019), 0)}
for share, value in itertools.product((1, 2, 5, 20), ("-9999", "-1", "0", "999999", "1e30")):
    name = f"{share} % of {value}"
    BROKEN[name] = at_random(share / 100), float(value)
    BROKEN[f"{name} in bursts"] = in_bursts(share / 100), float(value)


def rows(name, seed):
    """Return the columns and y of a stream."""
    draw = np.random.default_rng(seed)
    return (STREAMS | OWN)[name](draw, np.arange(ROWS), lambda: draw.normal(size=ROWS))


def least_squares(x, y, forget=0.9995, prior=1e6):
    """Return the predictions of plain recursive least squares."""
    last = np.concatenate([[0.0], y[:-1]])
    features = np.column_stack([np.ones(len(y)), x, last])
    P, w, out = prior * np.eye(features.shape[1]), np.zeros(features.shape[1]), np.zeros(len(y))
    for i, f in enumerate(features):
        out[i] = f @ w
        v = P @ f
        w = w + v * (y[i] - out[i]) / (forget + f @ v)
        P = (P - np.outer(v, v) / (forget + f @ v)) / forget
        P = (P + P.T) / 2
    return out


def measure(cell):
    """Return the mean absolute errors of the default, and of what it should not be behind."""
    x, truth = rows(cell["stream"], cell["seed"])
    good, y = np.arange(ROWS) >= WARM, truth
    if "broken" in cell:
        which, value = BROKEN[cell["broken"]]
        hit = which(np.random.default_rng(1000 + cell["seed"]))
        good, y = good & ~hit, np.where(hit, value, truth)
    answers = {"foretrace": default(x, y, cell.get("commit"))}
    if "commit" not in cell:
        answers |= plain(x, y)
    if "commit" not in cell and "broken" not in cell:
        answers |= of_river(x, y)
    return {name: float(np.abs(one - truth)[good].mean()) for name, one in answers.items()}


def default(x, y, commit=None):
    """Return the predictions of the default, or of a commit's default."""
    import pandas as pd

    from foretrace.stream import run

    frame, found = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y}), []
    if commit:
        return np.array(earlier.predictions(commit, frame, "y"), float)
    with tempfile.TemporaryDirectory() as folder:
        run(frame, f"{folder}/run", target="y", task="regression", on_prediction=found.append)
    return np.array([one["y"] for one in found], float)


def plain(x, y):
    """Return the predictions of least squares, of the last label and of the mean."""
    last, mean = y[:-1], (np.cumsum(y) / np.arange(1, ROWS + 1))[:-1]
    return {
        "plain least squares": least_squares(x, y),
        "last value": np.concatenate([[0.0], last]),
        "mean": np.concatenate([[0.0], mean]),
    }


def of_river(x, y):
    """Return the predictions of river's linear models."""
    from river import linear_model, optim, preprocessing

    models = {
        "river linear regression": linear_model.LinearRegression(optim.SGD(0.001)),
        "river Bayesian linear regression": linear_model.BayesianLinearRegression(),
        "river passive-aggressive": linear_model.PARegressor(),
    }
    last = np.concatenate([[0.0], y[:-1]])
    return {
        name: followed(preprocessing.StandardScaler() | model, x, last, y)
        for name, model in models.items()
    }


def followed(model, x, last, y):
    """Return the predictions of a model of river, which gets the last y as a column."""
    out = np.zeros(len(y))
    for i, (a, b, c) in enumerate(np.column_stack([x, last]).tolist()):
        row = {"a": a, "b": b, "last": c}
        out[i] = model.predict_one(row)
        model.learn_one(row, y[i])
    return np.clip(np.nan_to_num(out), -1e12, 1e12)


def cells(streams=(*STREAMS, *OWN), seeds=(0, 1, 2), broken=("none",), commits=("none",)):
    """Return the cells; `none` stands for whole labels, and for the present default.

    broken: names of `BROKEN`, or none
    commits: commits whose default is measured, or none
    """
    found = []
    for kind, commit in itertools.product(broken, commits):
        also = {"broken": kind, "commit": commit}
        also = {name: value for name, value in also.items() if value != "none"}
        found += ledger.grid(seed=seeds, stream=streams, **also)
    return found


if __name__ == "__main__":
    ledger.run(__doc__, "ordinary", cells, measure)

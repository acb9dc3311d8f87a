"""Made streams with a long memory: the row decides which values are written, held or counted.

Each function returns inputs (T, I), labels (T,) and the number of classes, 0 for numbers. Inputs
are Gaussian unless said, numbers have noise of standard deviation 0.1, and no label is among the
inputs.
"""

from itertools import accumulate

import numpy as np

NOISE = 0.1
EACH = 5
"""Rows from label to label."""


def latched(events, values, start):
    """Return at each row the value of the last row with an event."""
    last = np.maximum.accumulate(np.where(events, np.arange(len(events)), -1))
    return np.where(last >= 0, values[last], start)


def states(start, step, rows):
    """Return the state after each row: `step` of the state before and of the row."""
    return np.array([*accumulate(rows, step, initial=start)][1:])


def noisy(random, numbers):
    return numbers + NOISE * random.normal(size=len(numbers))


def flipflop(random, rows):
    """A bit, the sign of c, is written where a > 1 and b > 1, each 40 rows."""
    x = random.normal(size=(rows, 4))
    return x, latched((x[:, 0] > 1) & (x[:, 1] > 1), (x[:, 2] > 0).astype(int), 0), 2


def toggle(random, rows):
    """A bit is toggled where a > 1 and b > 1."""
    x = random.normal(size=(rows, 4))
    return x, np.cumsum((x[:, 0] > 1) & (x[:, 1] > 1)) % 2, 2


def hold(random, rows):
    """A number c is sampled where a > 1 and b > 1, and held."""
    x = random.normal(size=(rows, 4))
    return x, noisy(random, latched((x[:, 0] > 1) & (x[:, 1] > 1), x[:, 2], 0.0)), 0


def switch(random, rows):
    """On by p > 0.8 and v > 0.8, off by p < -0.8 and u > 0.8; y = x + 0.5 if on, -0.3 x if off."""
    p, v, u, x = random.normal(size=(4, rows))
    on, off = (p > 0.8) & (v > 0.8), (p < -0.8) & (u > 0.8)
    state = latched(on | off, on, False)
    return np.stack([p, v, u, x], axis=1), noisy(random, np.where(state, x + 0.5, -0.3 * x)), 0


def session(random, rows):
    """A login, each 200th row or so, names one of four users; their weights of two inputs count."""
    login = random.random(rows) < 1 / 200
    user, x = random.integers(0, 4, rows), random.normal(size=(rows, 2))
    weights = random.normal(size=(4, 2))
    y = np.sum(weights[latched(login, user, 0)] * x, axis=1)
    return np.concatenate([login[:, None], np.eye(4)[user], x], axis=1), noisy(random, y), 0


def tank(random, rows):
    """A level gains inflow and loses outflow, between two limits; three classes by its height."""
    x = random.normal(size=(rows, 3))
    levels = states(0.0, lambda level, row: np.clip(level + 0.1 * (row[0] - row[1]), -1, 1), x)
    return x, np.digitize(levels, [-1 / 3, 1 / 3]), 3


def counter(random, rows):
    """Events, a flag on each tenth row or so, counted modulo three."""
    x = random.normal(size=(rows, 3))
    x[:, 0] = random.random(rows) < 0.1
    return x, np.cumsum(x[:, 0].astype(int)) % 3, 3


def ema(random, rows):
    """The mean of a * b over some 200 rows, scaled to a standard deviation of one half."""
    x = random.normal(size=(rows, 3))
    means = states(0.0, lambda mean, row: mean + (row[0] * row[1] - mean) / 200, x)
    return x, noisy(random, 10 * means), 0


def alarm(random, rows):
    """An alarm, set where a > 1 and b > 0.5, off when it is acknowledged: c > 1.2 and d > 0.5."""
    a, b, c, d = x = random.normal(size=(4, rows))
    on, off = (a > 1) & (b > 0.5), (c > 1.2) & (d > 0.5)
    return x.T, latched(on | off, on, False).astype(int), 2


def gear(random, rows):
    """One of four gears, up where a > 1 and b > 0, down where a < -1 and c > 0; it scales d."""
    a, b, c, d = x = random.normal(size=(4, rows))
    steps = ((a > 1) & (b > 0)).astype(int) - ((a < -1) & (c > 0))
    gears = states(0, lambda now, step: min(max(now + step, 0), 3), steps)
    return x.T, noisy(random, (gears / 2 - 0.5) * d), 0


def heater(random, rows):
    """A temperature beside the cold outside; heating is on from below -0.5 to above 0.5."""

    def step(state, row):
        now, on = state
        now += 0.02 * ((1 if on else -1) + 2 * row[0]) * (1 + (row[1] > 1))
        return now, now < -0.5 or (on and now < 0.5)

    x = random.normal(size=(rows, 3))
    return x, noisy(random, states((0.0, False), step, x)[:, 0]), 0


def keyed(random, rows):
    """A key, shown each 90th row or so, says which of four weightings of two numbers decides."""
    shown = random.random(rows) < 1 / 90
    key, x = random.integers(0, 4, rows), random.normal(size=(rows, 2))
    angle = np.pi / 2 * latched(shown, key, 0) + 0.4
    y = np.cos(angle) * x[:, 0] + np.sin(angle) * x[:, 1] > 0
    columns = [shown[:, None], np.eye(4)[key] * shown[:, None], x]
    return np.concatenate(columns, axis=1), y.astype(int), 2


def delayed(random, rows):
    """tanh(2 a) of 100 rows before, and the product of b 110 and c 120 rows before."""
    a, b, c = x = random.normal(size=(3, rows))
    y = np.tanh(2 * np.roll(a, 100)) + 0.5 * np.roll(b, 110) * np.roll(c, 120)
    return x.T, noisy(random, y), 0


def _far(reach):
    """Return a stream of digits, 0 to 3, and noise; the class is an earlier digit."""

    def far(random, rows):
        digits = random.integers(0, 4, rows)
        return np.stack([digits, random.normal(size=rows)], axis=1), np.roll(digits, reach), 4

    return far


def lock(random, rows):
    """A lock: a > 1 makes it ready, then b > 1 opens it; c > 1.2 shuts it. Three classes."""
    a, b, c, _ = x = random.normal(size=(4, rows))

    def step(now, row):
        ready, opens, shuts = row
        return 0 if shuts else 1 if now == 0 and ready else 2 if now == 1 and opens else now

    return x.T, states(0, step, np.stack([a > 1, b > 1, c > 1.2], axis=1)), 3


def slots(random, rows):
    """A number a is stored in one slot where b > 1.5, in another where b < -1.5; d says which."""
    a, b, _, d = x = random.normal(size=(4, rows))
    first, second = latched(b > 1.5, a, 0.0), latched(b < -1.5, a, 0.0)
    return x.T, noisy(random, np.where(d > 0, first, second)), 0


def timer(random, rows):
    """A light, on for 30 rows from the last row where a > 1 and b > 1."""
    x = random.normal(size=(rows, 4))
    last = latched((x[:, 0] > 1) & (x[:, 1] > 1), np.arange(rows), -30)
    return x, (np.arange(rows) - last < 30).astype(int), 2


def peak(random, rows):
    """The largest a since c > 1.2 and d > 0.5, which begins anew with the a of its row."""
    a, _, c, d = x = random.normal(size=(4, rows))
    rows = zip(a, (c > 1.2) & (d > 0.5), strict=True)
    highest = states(0.0, lambda now, row: row[0] if row[1] else max(now, row[0]), rows)
    return x.T, noisy(random, highest), 0


def smooth(random, rows):
    """Nothing is held: the mean of a over some 50 rows less that of b over 10, in like units."""
    x, rates = random.normal(size=(rows, 3)), np.array([50, 10])
    slow, fast = states(np.zeros(2), lambda means, row: means + (row[:2] - means) / rates, x).T
    return x, noisy(random, 5 * slow - 2 * fast), 0


def drift(random, rows):
    """Nothing is held: weights of the present row, which turn once in 8,000 rows."""
    x, angle = random.normal(size=(rows, 3)), 2 * np.pi * np.arange(rows) / 8000
    return x, noisy(random, np.cos(angle) * x[:, 0] + np.sin(angle) * x[:, 1]), 0


STREAMS = {
    made.__name__: made for made in (flipflop, toggle, hold, switch, session, tank, counter, ema)
}
MORE = {made.__name__: made for made in (alarm, gear, heater, keyed, delayed)}
MORE |= {f"far {reach}": _far(reach) for reach in (20, 100, 500)}
ONCE = {made.__name__: made for made in (lock, slots, timer, peak, smooth, drift)}
"""Written when all settings were fixed, and run once; of the last two no gain was expected."""
MADE = STREAMS | MORE | ONCE

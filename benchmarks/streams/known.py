"""What known promotions are worth to a forecast: `python -m benchmarks.streams.known`.

Six made shops, 730 days, seven days ahead. A promotion on a fifth of the days raises sales by half,
beside a weekly pattern and 8 % of noise. `future` is the mean absolute error of the forecast behind
the last row, whose seven days were drawn but not written.
"""

import datetime
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import ledger
from benchmarks.streams.followed import follow, write

LEVELS, DAYS, AHEAD = (70, 110, 150, 200, 260, 330), 730, 7
WEEK = (0.9, 0.95, 1, 1, 1.1, 1.3, 0.75)


def cells(seeds=(0, 1, 2)):
    """Return the cells."""
    return ledger.grid(seed=seeds, known=[False, True])


def shops(seed):
    """Return day, shop, promotion and sales of each row, seven days to come among them."""
    draw = np.random.default_rng(seed)
    promoted = draw.uniform(size=(DAYS + AHEAD, len(LEVELS))) < 0.2
    noise = 1 + 0.08 * draw.normal(size=promoted.shape)
    week = np.resize(WEEK, len(promoted))[:, None]
    sales = np.array(LEVELS) * week * np.where(promoted, 1.5, 1) * noise
    first = datetime.date(2024, 1, 1)
    days = [first + datetime.timedelta(int(day)) for day in np.repeat(range(len(sales)), 6)]
    names = np.tile([f"s{shop}" for shop in range(len(LEVELS))], len(sales))
    return days, names, promoted.astype(int).ravel(), sales.ravel()


def measure(cell):
    """Return the scores of a run with the promotions of the next days, or without."""
    days, names, promoted, sales = shops(cell["seed"])
    end = DAYS * len(LEVELS)
    written = [f"{value:.1f}" for value in sales[:end]] + [""] * AHEAD * len(LEVELS)
    count = None if cell["known"] else end
    table = {"day": days, "shop": names, "promo": promoted, "sales": written}
    with tempfile.TemporaryDirectory() as folder:
        table = {name: column[:count] for name, column in table.items()}
        options = {"source": write(Path(folder) / "shops.csv", **table), "target": "sales"}
        options |= {"known": ("promo",)} if cell["known"] else {}
        options |= {"member": "shop", "horizon": AHEAD, "task": "regression"}
        result, lines, *_ = follow({"seed": cell["seed"]}, **options)
    places = zip(names[end:], np.repeat(range(AHEAD), len(LEVELS)), strict=True)
    truth = dict(zip(places, sales[end:], strict=True))
    errors = [abs(row["sales"] - truth[row["shop"], row["ahead"] - 1]) for row in result.forecast]
    last = [line["mae"] for line in lines if line["kind"] == "stream"][-1]
    wanted = {name: result.scores[name] for name in ("mae", "coverage", "width")}
    return wanted | {"last line": last, "future": float(np.mean(errors))}


if __name__ == "__main__":
    ledger.run(__doc__, "known", cells, measure)

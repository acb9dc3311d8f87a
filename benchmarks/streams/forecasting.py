"""Two public boards of online forecasting, with nothing set and nothing chosen on test rows.

    FORETRACE_DATA=... python -m benchmarks.streams.forecasting [--horizons 1 24 48]
        [--only foretrace]

At each row the next H rows of every column are forecast; a value is used once it has been seen,
never before. Columns are standardised by the training rows. The score is the mean squared error
over all test windows, steps and columns; a window counts if all its targets are test rows. Every
way sees all rows from the first on, each once.

`foretrace` is `ft.stream.Forecaster(horizon=H, member="column")` with no other option: columns are
members. The others are the last value, the value a season ago (24 rows; 5 for exchange rates, a
week of trading), and least squares on the last 96 differences, with coefficients that all columns
share.
"""

import csv
import gzip
import math
import time
from typing import NamedTuple

import numpy as np

from benchmarks import ledger
from benchmarks.streams.sources import data


class Board(NamedTuple):
    """A protocol on one data set.

    Args:
        file: name in the folder `streams` of the data.
        season: number of rows of a season.
        train: number of training rows, by which columns are standardised.
        first: first row that is a target of the score.
        rows: number of rows in all; None for all of the file.
    """

    file: str
    season: int
    train: int
    first: int
    rows: int | None = None


# A: 20 % training, 5 % validation, 75 % test; B: 60, 10, 30 %, and the first target 96 rows later.
BOARDS = {
    ("A", "ETTh2"): Board("ETTh2.csv.gz", 24, 2880, 3600, 14_400),
    ("A", "Exchange"): Board("exchange_rate.txt.gz", 5, 1517, 1897),
    ("B", "ETTh1"): Board("ETTh1.csv.gz", 24, 10_452, 12_194 + 96),
    ("B", "ETTh2"): Board("ETTh2.csv.gz", 24, 10_452, 12_194 + 96),
}
LAGS = 96


def cells(horizons=(1, 24, 48)):
    """Return the cells."""
    return [
        cell
        for board, data in BOARDS
        for cell in ledger.grid(board=board, data=data, horizon=horizons, way=WAYS)
    ]


def measure(cell):
    """Return the errors of a way on a board, and its CPU time for each value."""
    board = BOARDS[cell["board"], cell["data"]]
    table = standardised(board)
    began = time.process_time()
    found = forecast(cell["way"], table, cell["horizon"], board.season)
    seconds = time.process_time() - began
    squared, absolute = errors(found, table, board.first)
    return {
        "mse": round(squared, 4),
        "mae": round(absolute, 4),
        "us a value": round(1e6 * seconds / table.size, 1),
    }


def standardised(board):
    """Return the columns of a board, standardised by the training rows."""
    with gzip.open(data() / "streams" / board.file, "rt", newline="") as file:
        lines = list(csv.reader(file))
    if "ETT" in board.file:  # a header, and a date in front
        lines = [line[1:] for line in lines[1:]]
    table = np.array(lines, float)[: board.rows]
    train = table[: board.train]
    return (table - train.mean(0)) / train.std(0)


def errors(forecasts, table, first):
    """Return mean squared and mean absolute error over windows, steps and columns.

    Args:
        forecasts: of shape (rows, columns, H): made after each row, of the rows behind it.
        table: values, of shape (rows, columns).
        first: first row that is a target.
    """
    horizon = forecasts.shape[2]
    end = len(table) - horizon  # first row after which not all targets are known
    targets = np.stack([table[first + h : end + 1 + h] for h in range(horizon)], axis=2)
    misses = forecasts[first - 1 : end] - targets
    return float(np.mean(misses**2)), float(np.mean(np.abs(misses)))


def forecast(way, table, horizon, season):
    """Return forecasts after each row, (rows, columns, H), from the rows up to it alone."""
    return WAYS[way](table, horizon, season)


def last_value(table, horizon, season):
    """Forecast the last value."""
    return np.repeat(table[:, :, None], horizon, axis=2)


def season_ago(table, horizon, season):
    """Forecast the value of the last season's row; the last value before a season was seen."""
    found = last_value(table, horizon, season)
    for h in range(horizon):
        back = season * math.ceil((h + 1) / season) - (h + 1)
        found[back:, :, h] = table[: len(table) - back]
    return found


def ridge(table, horizon, season):
    """Forecast by least squares on the last differences; all columns share the coefficients."""
    steps = np.diff(table, axis=0, prepend=table[:1])
    padded = np.concatenate([np.zeros((LAGS - 1, table.shape[1])), steps])
    covariance, weights = np.eye(LAGS), np.zeros((LAGS, horizon))
    found = np.empty((*table.shape, horizon))
    for t, row in enumerate(table):
        if t >= horizon:  # all steps of the forecast made H rows ago are known now
            made = t - horizon
            targets = table[made + 1 : t + 1].T - table[made][:, None]
            for column, target in enumerate(targets):
                x = padded[made : made + LAGS, column]
                gain = covariance @ x
                gain = gain / (1 + x @ gain)
                weights += np.outer(gain, target - x @ weights)
                covariance -= np.outer(gain, x @ covariance)
        found[t] = row[:, None] + padded[t : t + LAGS].T @ weights
    return found


def foretrace(table, horizon, season):
    """Forecast by the estimator as it ships."""
    import foretrace as ft

    columns = [{"column": i} for i in range(table.shape[1])]
    model = ft.stream.Forecaster(horizon=horizon, member="column")
    found = np.empty((*table.shape, horizon))
    for t, row in enumerate(table):
        if t % 1000 == 0:
            ledger.say(f"    row {t:,} of {len(table):,}")
        for i, x in enumerate(columns):
            model.learn_one(float(row[i]), x)
            found[t, i] = model.forecast(horizon, member=i)
    return found


WAYS = {
    "last value": last_value,
    "season ago": season_ago,
    "least squares on 96 differences": ridge,
    "foretrace": foretrace,
}

if __name__ == "__main__":
    ledger.run(__doc__, "forecasting", cells, measure)

"""Earlier rows as features: numbers and categories share a room."""

import numpy as np
import pandas as pd
import pytest

from foretrace._experts.shape import LAGS, MAX_LAGGED, Shape, category_codes
from foretrace._runs.metrics import read_metrics
from foretrace.stream._config import StreamConfig
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._run import follow

ROOM = 16
"""Indicators of a column of categories."""


def shape_of(numbers, columns):
    """A row of numbers, each with an indicator of a missing value, and columns of categories."""
    first = 2 * numbers
    places = tuple((first + ROOM * i, ROOM) for i in range(columns))
    lagged = tuple(range(0, first, 2))
    return Shape(first + ROOM * columns, lagged, 4, classes=True, categories=places)


def write(path, rows, back):
    """A file whose class is the category of some rows before, beside a column of noise."""
    draw = np.random.default_rng(0)
    colours, noise = draw.integers(0, 4, rows), draw.normal(size=rows)
    names, classes = np.array(["red", "green", "blue", "grey"]), np.array([*"abcd"])
    columns = {"noise": noise, "colour": names[colours], "y": classes[np.roll(colours, back)]}
    pd.DataFrame(columns).to_csv(path, index=False)
    return str(path)


def test_the_category_of_eight_rows_before_is_seen(tmp_path):
    model = ModelConfig(experts=("baselines", "lags"))
    source = write(tmp_path / "a.csv", 3000, 8)
    config = StreamConfig(source, target="y", chunk=50, log_every=500, model=model)
    follow(config, tmp_path / "run", show_progress=False)
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    records = [record for record in records if record["kind"] == "stream"]
    assert records[0]["accuracy"] < records[-1]["accuracy"] and records[-1]["accuracy"] > 0.95


@pytest.mark.parametrize("columns", [2, 20])
@pytest.mark.parametrize("numbers", [2, 30])
def test_columns_share_a_room_that_does_not_grow(numbers, columns):
    shape = shape_of(numbers, columns)
    assert shape.lagged_size <= MAX_LAGGED
    assert shape.size(shape.depth) <= LAGS or shape.depth == 1
    assert columns * shape.category_size <= max(8, columns)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_category_has_features_of_its_own(size):
    codes = category_codes(ROOM, size)
    assert not codes[0].any() and len(np.unique(codes.round(3), axis=0)) == ROOM
    # The first ones are independent of each other: a linear model tells them apart.
    assert np.linalg.matrix_rank(codes[: size + 1] - codes[0]) == size

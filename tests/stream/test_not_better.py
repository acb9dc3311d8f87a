"""A run that is no better than a baseline says so at its end; a run that is better does not."""

import numpy as np
import pytest

from foretrace._runs.metrics import read_metrics
from foretrace.stream._config import StreamConfig
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._report import table
from foretrace.stream._run import follow

pytestmark = pytest.mark.usefixtures("standard_promotion")


def run(tmp_path, lines, **options):
    (tmp_path / "a.csv").write_text("\n".join(lines))
    config = StreamConfig(str(tmp_path / "a.csv"), target="y", **options)
    follow(config, tmp_path / "run", show_progress=False)
    return read_metrics(tmp_path / "run" / "metrics.jsonl")[-1], table(tmp_path / "run").caption


def test_a_coin_is_no_better_than_its_more_frequent_side(tmp_path):
    draw = np.random.default_rng(0)
    lines = [
        "x,y",
        *(
            f"{draw.normal():.3f},{'heads' if draw.uniform() < 0.7 else 'tails'}"
            for _ in range(600)
        ),
    ]
    last, caption = run(tmp_path, lines, model=ModelConfig(experts=("row",)))
    assert last["kind"] == "result" and last["not_better_than"] == ["majority_"]
    assert (
        caption.startswith("The accuracy, 6")
        and "is not better than the most frequent class (" in caption
    )
    assert "the last one known" not in caption and "try more rows, other inputs, or" in caption


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_numbers_are_compared_with_the_last_one(tmp_path, noise):
    draw = np.random.default_rng(0)
    xs, walk = draw.normal(size=600), np.cumsum(draw.normal(size=600))
    ys = walk if noise else xs
    lines = ["x,y", *(f"{x},{y}" for x, y in zip(xs, ys, strict=True))]
    last, caption = run(tmp_path, lines, task="regression", model=ModelConfig(experts=("row",)))
    assert last["not_better_than"] == (["no_change_"] if noise else [])
    assert ("is not better than predicting the last one known (" in caption) == bool(noise)

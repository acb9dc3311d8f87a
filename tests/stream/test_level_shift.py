"""A new level: the mixture follows as the last value does."""

import numpy as np
import pandas as pd
import pytest

from foretrace import stream
from foretrace._runs.metrics import read_metrics
from foretrace.stream import ModelConfig
from foretrace.stream._report import page


@pytest.mark.parametrize("shift", [1e3, -1e6])
def test_the_mixture_follows_a_new_level_as_the_last_value_does(shift, tmp_path):
    ys, found = np.random.default_rng(0).normal(size=900), []
    ys[600:] += shift
    options = {"task": "regression", "model": ModelConfig(experts=("row",))}
    frame = pd.DataFrame({"y": ys})
    result = stream.run(frame, tmp_path / "run", target="y", on_prediction=found.append, **options)
    assert result.experts["last"] == pytest.approx(result.scores["no_change_mae"], rel=1e-6)
    mixed = np.abs(ys - [row["y"] for row in found])
    last = np.abs(np.diff(ys, prepend=0.0))
    # The jump, and three rows until `last` has the weight.
    assert mixed[600:].mean() < 4 * last[600:].mean()
    assert mixed[640:].mean() < 1.1 * last[640:].mean()
    assert mixed[800:].mean() < last[800:].mean()


def test_a_column_that_changes_its_level_is_told_with_the_row_by_which_it_was_seen(tmp_path):
    a, b = np.random.default_rng(0).normal(size=(2, 900))
    a[640:] += 400.0
    options = {"task": "regression", "model": ModelConfig(experts=("row",)), "log_every": 100}
    frame = pd.DataFrame({"a": a, "b": b, "y": b})
    run = stream.run(frame, tmp_path / "run", target="y", **options).run_dir
    *lines, last = read_metrics(run / "metrics.jsonl")
    row, before, _, now, _ = last["changes"].pop("a")
    assert row == 700 and abs(before) < 0.3 and abs(now - 400) < 1 and not last["changes"]
    told = [line for line in lines if "warnings" in line]
    assert [line["step"] for line in told] == [700] and "'a'" in told[0]["warnings"][0]
    assert f"Columns that changed: a from {before:.3g}" in page(run).renderables[0].caption

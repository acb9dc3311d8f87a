"""A new level: the mixture follows as the last value does."""

import numpy as np
import pandas as pd
import pytest

from foretrace import stream
from foretrace.stream import ModelConfig


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

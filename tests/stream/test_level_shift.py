"""A new level: the mixture follows as the last value does."""

import numpy as np
import pytest

from foretrace._experts.score import OF_NUMBERS
from foretrace._rows.encode import Encoder
from foretrace._rows.slots import SlotTable
from foretrace._rows.streams import Streams
from foretrace._rows.target import NumberTarget
from foretrace.stream._intake import Intake
from foretrace.stream._model import resolve, shape_of
from foretrace.stream._model_config import ModelConfig


@pytest.mark.parametrize("shift", [1e3, -1e6])
@pytest.mark.exact
def test_the_mixture_follows_a_new_level_as_the_last_value_does(shift):
    encoder, target = Encoder([], width=2, adopt=True), NumberTarget()
    model = resolve(ModelConfig(experts=("row", "gradient")), shape_of(encoder, target))
    intake = Intake(Streams(encoder, target, SlotTable(1)), *model)
    state = intake.mixture.init()
    ys = np.random.default_rng(0).normal(size=900)
    ys[600:] += shift
    errors = []
    for y in ys.tolist():
        state, step = intake.learn(state, [({}, y)])
        scores = dict(zip(OF_NUMBERS, step.scores[0].tolist(), strict=True))
        at = intake.mixture.names.index("last")
        errors.append([scores["mae"], scores["no_change_mae"], step.errors[0, at]])
    mixed, last, expert = np.array(errors).T
    np.testing.assert_allclose(expert[1:], last[1:], rtol=1e-6, atol=1e-6)
    # The jump, and three rows until `last` has the weight.
    assert mixed[600:].mean() < 4 * last[600:].mean()
    assert mixed[640:].mean() < 1.1 * last[640:].mean()
    assert mixed[800:].mean() < last[800:].mean()

"""A new level: the mixture follows as the last value does; predictions are the scored ones."""

import numpy as np
import pytest
from tiers import fast

from foretrace._experts.score import OF_NUMBERS
from foretrace._rows.encode import Encoder
from foretrace._rows.schema import Column
from foretrace._rows.slots import SlotTable
from foretrace._rows.streams import Streams
from foretrace._rows.target import ClassTarget, NumberTarget
from foretrace.stream._intake import Intake
from foretrace.stream._model import resolve, shape_of
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._saved import copy_state, first_state

pytestmark = pytest.mark.usefixtures("standard_promotion")
FEW = ModelConfig(experts=("row", "gradient"))
ALONE = ModelConfig("tiny", depth=1, model_size=8, state_size=4)


def make(target, config=FEW, delay=0):
    columns = [Column("x", "numeric"), Column("c", "categorical")]
    encoder = Encoder(columns, width=24, adopt=True)
    streams = Streams(encoder, target, SlotTable(1), delay=delay)
    intake = Intake(streams, *resolve(config, shape_of(encoder, target, delay=delay)))
    return intake, first_state(intake.mixture)


@pytest.mark.parametrize("shift", [1e3, -1e6])
@pytest.mark.exact
def test_the_mixture_follows_a_new_level_as_the_last_value_does(shift):
    intake, state = make(NumberTarget())
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


def rows(count, classes):
    draw = np.random.default_rng(1)
    for i in range(count):
        row = {"x": float(draw.normal() * 5), "c": "abcdef"[min(i // 9, int(draw.integers(6)))]}
        if i == 30:
            row["x"] = 1e9  # an outlier
        if i % 7 == 3:
            row["x"] = None
        if i > 40:
            row["late"] = float(draw.normal())  # a column that appears later
        y = (row["x"] or 0.0) + "abcdef".index(row["c"])
        yield row, ("up" if y > 0 else "down") if classes else y


# One compiled program predicts and another learns: they round differently, experts in float64, a
# network in float32.
@pytest.mark.parametrize(("config", "tolerance"), fast([(FEW, 1e-12), (ALONE, 1e-5)]))
@pytest.mark.parametrize("options", [{}, {"delay": 3}])
@pytest.mark.parametrize("classes", [False, True])
def test_what_is_predicted_is_what_is_scored(classes, options, config, tolerance):
    intake, state = make(ClassTarget(4) if classes else NumberTarget(), config, **options)
    predicted, scored, values = [], [], []
    for row, value in rows(60, classes):
        values.append(value)
        before = intake.to_json()
        predicted.append(np.asarray(intake.predict(state, row).newest))
        assert intake.to_json() == before
        _, moved = intake.advance(copy_state(state), row, None)
        np.testing.assert_allclose(moved.newest[0], predicted[-1], rtol=tolerance, atol=tolerance)
        intake.restore(before)
        state, step = intake.learn(state, [(row, value)])
        np.testing.assert_allclose(step.newest[0], predicted[-1], rtol=tolerance, atol=tolerance)
        if len(predicted) > options.get("delay", 0):
            scored.append(np.asarray(step.scores)[0])
    assert len(scored) == 60 - options.get("delay", 0)
    for output, value, found in zip(predicted, values, scored, strict=False):
        label = intake.target.read(value, learn=False)
        if not classes:
            assert found[0] == pytest.approx(abs(output[0] - label), rel=tolerance, abs=tolerance)
        elif found[0] == found[0]:  # NaN before the first class
            loss = np.log(np.exp(np.asarray(output, float)).sum()) - output[int(label)]
            assert found[1] == pytest.approx(float(loss), rel=tolerance, abs=tolerance)

"""A new level: the mixture follows as the last value does; predictions are the scored ones."""

import numpy as np
import pytest
from tiers import fast

from foretrace._rows.delayed_labels import DelayedLabels
from foretrace._rows.encode import Encoder
from foretrace._rows.number_target import NumberTarget
from foretrace._rows.schema import Column
from foretrace._rows.target import ClassTarget
from foretrace.stream._intake import Intake
from foretrace.stream._model import resolve, shape_of
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._saved import copy_state, first_state

pytestmark = pytest.mark.usefixtures("standard_promotion")
FEW = ModelConfig(experts=("row", "gradient"))
ALONE = ModelConfig("tiny", depth=1, model_size=8, state_size=4)


def make(target, config=FEW, **options):
    columns = [Column("x", "numeric"), Column("c", "categorical")]
    labels = DelayedLabels(Encoder(columns, width=24, adopt=True), target, **options)
    intake = Intake(labels, *resolve(config, shape_of(labels)))
    return intake, first_state(intake.mixture)


@pytest.mark.parametrize("shift", [1e3, -1e6])
@pytest.mark.exact
def test_the_mixture_follows_a_new_level_as_the_last_value_does(shift):
    intake, state = make(NumberTarget())
    ys = np.random.default_rng(0).normal(size=900)
    ys[600:] += shift
    errors = []
    for y in ys.tolist():
        state, step, resolved, *_ = intake.learn(state, [({}, y)])
        context = resolved[0].context
        mixed = step.resolved[0, 0]
        last = 0.0 if context.last is None else context.last
        errors.append(
            [abs(mixed - y), abs(last - y), step.errors[0, intake.mixture.names.index("last")]]
        )
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
    predicted, scored = [], []
    for row, value in rows(60, classes):
        before = intake.to_json()
        predicted.append(intake.predict(state, row))
        assert intake.to_json() == before
        output, *_ = intake.advance(copy_state(state), row, None)
        np.testing.assert_allclose(output, predicted[-1], rtol=tolerance, atol=tolerance)
        intake.restore(before)
        state, step, resolved, *_ = intake.learn(state, [(row, value)])
        np.testing.assert_allclose(step.newest[0], predicted[-1], rtol=tolerance, atol=tolerance)
        if resolved[0] is not None:
            scored.append(np.asarray(step.resolved)[0])
    assert len(scored) == 60 - options.get("delay", 0)
    np.testing.assert_allclose(scored, predicted[: len(scored)], rtol=tolerance, atol=tolerance)

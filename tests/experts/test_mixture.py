"""The mixture as a whole: what is in it, its programs and the form of its state."""

import jax
import numpy as np
import pytest

from foretrace.stream.experts.by_name import EXPERTS, REMEMBERING, experts_of
from foretrace.stream.experts.least_squares import Squares
from foretrace.stream.experts.shape import Shape
from foretrace.stream.model.mixture import Mixture
from foretrace.stream.model.model_config import AUTO
from foretrace.stream.model.rows import pack
from foretrace.stream.read.row import RawRow

CLASSES = Shape(2, (0, 1), 2, classes=True)
NUMBERS = Shape(2, (0,), 1)
FEW = ("baselines", "contexts", "row", "neighbours", "gradient")
"""One expert of each kind: a test of all compiles for seconds."""


def packed(shape, xs, labels, slots=None, known=None):
    """Rows of each slot in their order; labels come `delay` rows of the slot later, if `known`."""
    past, rows = {}, []
    for i, label in enumerate(labels):
        slot = 0 if slots is None else slots[i]
        is_new, came = slot not in past, past.setdefault(slot, [])
        came.append(np.nan if known is not None and not known[i] else label)
        due = len(came) - 1 - (shape.delay - shape.horizon)
        y = came[due] if due >= 0 else np.nan
        rows.append(RawRow(xs[i], np.zeros(shape.inputs), y, slot, is_new))
    return pack(shape, rows)


def run(model, rows, chunk=None):
    """Return the state after the rows, and what each step returned."""
    state, steps = model.init(), []
    for i in range(0, len(rows), chunk or len(rows)):
        state, step = model.step(state, rows[i : i + (chunk or len(rows))])
        steps.append(step)
    return state, jax.tree.map(lambda *parts: np.concatenate(parts), *steps)


def leaves(state):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def assert_same(one, two, **tolerance):
    """Assert that the arrays of two trees are equal, bit for bit unless a tolerance is given."""
    for a, b in zip(leaves(one), leaves(two), strict=True):
        np.testing.assert_allclose(a, b, **tolerance or {"rtol": 0, "atol": 0})


def test_experts_can_be_left_out_and_what_is_too_large_says_so():
    assert Mixture(NUMBERS, ("baselines",)).pure.names == ("last", "mean", "season")
    left_out = ("wide", "waves", "neighbours", "gradient", "events", *REMEMBERING)
    assert Mixture(Shape(0, (), 256, classes=True)).pure.left_out == left_out
    small = tuple(name for name in EXPERTS if name not in REMEMBERING)
    assert set(Mixture(CLASSES, small).pure.names) > {"majority", "wide", "context 5", "neighbours"}


SMALLER = {  # shape: greatest number of rows back, least squares
    "day": (Shape(4, (0, 2), 96, ahead=True, delay=96), 26, ("lags", "steps")),
    "many classes": (Shape(0, (), 256, classes=True), 5, ("lags",)),
    "one earlier row is too large": (Shape(20, tuple(range(10)), 400, classes=True), 1, ("row",)),
}


@pytest.mark.parametrize("name", SMALLER)
def test_many_outputs_shorten_the_lags_and_the_row_stands_in_for_sets_that_are_too_large(name):
    shape, depth, sets = SMALLER[name]
    experts, left_out = experts_of(shape, AUTO)
    found = next(expert.sets for expert in experts if isinstance(expert, Squares))
    assert (shape.depth, found) == (depth, sets) and "waves" in left_out


def test_a_state_is_float64_of_known_shapes_and_global_precision_stays():
    with jax.enable_x64(False):
        model = Mixture(NUMBERS, ("baselines", "row"))
        state, _ = run(model, packed(NUMBERS, np.zeros((4, 2)), [1.0, 2.0, 3.0, 4.0]), 2)
        assert state.experts[1].covariances[0].dtype == np.float64
        assert jax.numpy.zeros(1).dtype == np.float32
    like, own = (
        jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), one) for one in (model.like, state)
    )
    assert like == own
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((model.init(), state)))

"""Least squares on soft steps of a row's numbers: any smooth function of each number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from foretrace._experts.features import expand, look, maps, new_past
from foretrace._experts.mixture import mixture
from foretrace._experts.shape import MAX_ROW, STEPS, WIDE, Shape


def test_the_features_are_the_row_and_each_number_at_each_threshold():
    shape = Shape(3, (0, 2), 1, previous=False)

    @jax.jit
    def steps_of(*values):
        seen, _ = look(shape, maps(shape), new_past(shape), *values)
        return expand(shape, maps(shape), seen).steps

    values = (jnp.array(one) for one in ([0.0, 1.0, 4.0], np.nan, [0.0, 1.0], []))
    steps = np.asarray(steps_of(*values))
    assert steps[:4].tolist() == [1.0, 0.0, 1.0, 4.0]
    first, second = steps[4:].reshape(2, STEPS)
    assert (np.diff(first) < 0).all()
    assert first == pytest.approx(-first[::-1], abs=1e-6)
    assert (second > 0.99).all()


@pytest.mark.parametrize(("numbers", "has_steps"), [(0, False), (1, True), (26, True), (27, False)])
def test_there_are_never_more_features_than_random_ones(numbers, has_steps):
    shape = Shape(max(numbers, 1), tuple(range(numbers)), 1)
    names = mixture(shape, ("baselines", "steps")).names
    assert ("steps from mean" in names) == has_steps
    assert not has_steps or shape.steps_size <= WIDE
    projected = Shape(MAX_ROW + 1, (MAX_ROW,), 1)
    assert not projected.has_steps

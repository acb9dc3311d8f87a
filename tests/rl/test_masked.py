"""Environments observed partly: all else as in the wrapped one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_environments import walk
from tiers import fast

from foretrace import rl
from foretrace.rl._config import RLConfig

MAZE = rl.TMaze(2, limit=7)
ACTIONS = [1, 3, 1, 1, 0, 1, 2, 1, 1, 0, 1, 1]


def same_but_observations(a, b):
    for name in ("reward", "terminated", "truncated", "discount"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_the_interface():
    key, wrapped = jax.random.key(0), rl.Masked(MAZE, (1,))
    state, observation = wrapped.reset(key)
    after, step = wrapped.step(state, jnp.array(1, jnp.int32), key)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), s) for s in (state, after)]
    assert shapes[0] == shapes[1]
    assert observation.shape == step.observation.shape == (wrapped.observation_size,)
    assert observation.dtype == step.observation.dtype
    assert (wrapped.action_count, wrapped.truncates) == (4, True)
    assert not hasattr(wrapped, "value") and not hasattr(wrapped, "spread")


@pytest.mark.parametrize(("hide", "left"), fast([((2, 0), [1]), ((1,), [0, 2]), ((), [0, 1, 2])]))
def test_hidden_elements_are_left_out(hide, left):
    first, steps = walk(MAZE, ACTIONS)
    seen, masked = walk(rl.Masked(MAZE, hide), ACTIONS)
    np.testing.assert_array_equal(seen, first[left])
    np.testing.assert_array_equal(masked.observation, steps.observation[:, left])
    same_but_observations(masked, steps)


def test_predictions_are_compared_with_the_values_of_the_wrapped_environment():
    inner = rl.TraceConditioning(3)
    state, _ = inner.reset(jax.random.key(0))
    wrapped = rl.Masked(inner, (1,))
    assert wrapped.spread(0.9) == inner.spread(0.9)
    np.testing.assert_array_equal(wrapped.value(state, 0.9), inner.value(state, 0.9))


def test_the_option_hides_elements():
    assert RLConfig(environment=MAZE).seen is MAZE
    assert RLConfig(environment=MAZE, hide=(0, 2)).seen == rl.Masked(MAZE, (0, 2))
    with pytest.raises(ValueError, match="hide"):
        RLConfig(environment=MAZE, hide=(0.5,))


def test_what_does_not_fit_is_named():
    for hide, message in (
        ((3,), "from 0 to 2"),
        ((-1,), "from 0 to 2"),
        ((1, 1), "different positions"),
        ((0, 1, 2), "hides all 3"),
        ([1], "tuple of integers"),
        ((True,), "tuple of integers"),
    ):
        with pytest.raises(ValueError, match=message):
            rl.Masked(MAZE, hide)

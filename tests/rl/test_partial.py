"""Environments observed partly, later or with noise: all else as in the wrapped one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_environments import walk
from tiers import fast

from foretrace import rl
from foretrace.rl._config import TASKS, ObservationConfig

MAZE = rl.TMaze(2, limit=7)
ACTIONS = [1, 3, 1, 1, 0, 1, 2, 1, 1, 0, 1, 1]
WRAPPED = [rl.Masked(MAZE, (1,)), rl.Noisy(MAZE, 0.5), rl.Delayed(MAZE, 2)]


def same_but_observations(a, b):
    for name in ("reward", "terminated", "truncated", "discount"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_the_interface():
    key = jax.random.key(0)
    for wrapped in WRAPPED:
        state, observation = wrapped.reset(key)
        after, step = wrapped.step(state, jnp.array(1, jnp.int32), key)
        shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), s) for s in (state, after)]
        assert shapes[0] == shapes[1]
        assert observation.shape == step.observation.shape == (wrapped.observation_size,)
        assert observation.dtype == step.observation.dtype
        assert (wrapped.action_count, wrapped.truncates) == (4, True)
        assert wrapped.value is None and wrapped.spread is None


@pytest.mark.parametrize(("hide", "left"), fast([((2, 0), [1]), ((1,), [0, 2]), ((), [0, 1, 2])]))
def test_hidden_elements_are_left_out(hide, left):
    first, steps = walk(MAZE, ACTIONS)
    seen, masked = walk(rl.Masked(MAZE, hide), ACTIONS)
    np.testing.assert_array_equal(seen, first[left])
    np.testing.assert_array_equal(masked.observation, steps.observation[:, left])
    same_but_observations(masked, steps)


def test_observations_arrive_late_and_start_anew_with_each_episode():
    chain, late = rl.MemoryChain(3), 2
    actions = [0] * 12
    first, steps = walk(chain, actions)
    seen, delayed = walk(rl.Delayed(chain, late), actions)
    same_but_observations(delayed, steps)
    np.testing.assert_array_equal(seen, [0, 0])
    # Each episode has four steps: nothing arrives after the first, then its cue, then silence;
    # never its question.
    np.testing.assert_array_equal(delayed.observation[1], first)
    assert (delayed.observation[[0, 4, 8]] == 0).all()
    assert (np.abs(delayed.observation[[1, 5, 9], 0]) == 1).all()
    np.testing.assert_array_equal(delayed.observation[2:4], steps.observation[:2])
    assert (delayed.observation[:, 1] == 0).all()


def test_noise_has_its_deviation_and_is_drawn_anew():
    silent = rl.TraceConditioning(100, pause=10_000)
    _, steps = walk(rl.Noisy(silent, 0.5), [0] * 2000)
    heard = steps.observation
    assert abs(heard.std() - 0.5) < 0.03 and abs(heard.mean()) < 0.05
    assert abs(np.corrcoef(heard[:-1, 0], heard[1:, 0])[0, 1]) < 0.1
    assert abs(np.corrcoef(heard[:, 0], heard[:, 1])[0, 1]) < 0.1
    firsts = jax.vmap(lambda key: rl.Noisy(silent, 0.5).reset(key)[1])(
        jax.random.split(jax.random.key(0), 100)
    )
    assert 0.4 < np.std(firsts) < 0.6


def test_predictions_are_compared_with_the_values_of_the_wrapped_environment():
    inner = rl.TraceConditioning(3)
    state, _ = inner.reset(jax.random.key(0))
    for wrapped in (rl.Delayed(inner, 2), rl.Masked(inner, (1,))):
        outer, _ = wrapped.reset(jax.random.key(0))
        assert wrapped.spread(0.9) == inner.spread(0.9)
        np.testing.assert_array_equal(wrapped.value(outer, 0.9), inner.value(state, 0.9))


def test_the_options_wrap_in_order_and_are_named():
    nothing = ObservationConfig()
    assert nothing.of(MAZE) is MAZE and str(nothing) == ""
    full = ObservationConfig((0, 2), noise=0.1, delay=3)
    assert full.of(MAZE) == rl.Delayed(rl.Noisy(rl.Masked(MAZE, (0, 2)), 0.1), 3)
    assert str(full) == " (without elements 0, 2, noise 0.1, 3 late)"


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
    for deviation in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="deviation"):
            rl.Noisy(MAZE, deviation)
    with pytest.raises(ValueError, match="steps=0"):
        rl.Delayed(MAZE, 0)
    for options, message in (
        ({"delay": -1}, "delay=-1"),
        ({"noise": -1.0}, "noise=-1.0"),
        ({"hide": (0.5,)}, "hide"),
    ):
        with pytest.raises(ValueError, match=message):
            ObservationConfig(**options)


@pytest.mark.full
def test_cartpole_of_gymnax_without_its_velocities():
    pytest.importorskip("gymnax")
    cart = rl.Gymnax("CartPole-v1")
    key = jax.random.key(0)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        state, whole = cart.reset(key)
        _, seen = rl.Masked(cart, (1, 3)).reset(key)
        np.testing.assert_array_equal(seen, whole[jnp.array([0, 2])])
        _, step = rl.Masked(cart, (1, 3)).step(state, jnp.array(1), key)
        assert step.observation.shape == (2,)
    assert TASKS["gymnax"].observation == ObservationConfig()

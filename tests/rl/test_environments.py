"""The built-in environments: pure functions that keep their laws under any actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace import rl

ENVIRONMENTS = [rl.MemoryChain(3), rl.TraceConditioning(4, distractors=2), rl.TMaze(3, limit=12)]


def walk(environment, actions, seed=0):
    """Return the first observation and what follows each action, episode after episode."""

    def act(state, now):
        action, key = now
        state, step, _ = rl.step_or_reset(environment, state, action, key)
        return state, step

    state, first = environment.reset(jax.random.key(seed))
    keys = jax.random.split(jax.random.key(seed + 1), len(actions))
    _, steps = jax.lax.scan(act, state, (jnp.asarray(actions), keys))
    return np.asarray(first), jax.tree.map(np.asarray, steps)


@pytest.mark.parametrize(
    "environment", ENVIRONMENTS, ids=lambda environment: type(environment).__name__
)
def test_the_interface(environment):
    key = jax.random.key(0)
    state, observation = environment.reset(key)
    after, step = environment.step(state, jnp.array(0, jnp.int32), key)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), after) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), state
    )
    assert observation.shape == step.observation.shape == (environment.observation_size,)
    assert observation.dtype == step.observation.dtype == step.reward.dtype == step.discount.dtype
    assert step.terminated.dtype == step.truncated.dtype == bool
    again = environment.step(state, jnp.array(0, jnp.int32), key)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), (after, step), again))


@given(st.lists(st.integers(0, 1), min_size=12, max_size=12), st.integers(0, 99))
def test_a_memory_chain_asks_for_its_cue(actions, seed):
    length = 3
    first, steps = walk(rl.MemoryChain(length), actions, seed)
    ends = np.flatnonzero(steps.terminated)
    np.testing.assert_array_equal(ends, [length, 2 * length + 1, 3 * length + 2])
    assert not steps.truncated.any() and abs(first[0]) == 1 and first[1] == 0
    state, _ = rl.MemoryChain(length).reset(jax.random.key(seed))
    assert steps.reward[length] == (1 if (actions[length] == 1) == (state.cue > 0) else -1)
    assert (steps.reward[~steps.terminated] == 0).all()
    np.testing.assert_array_equal(steps.observation[:length, 1], [0, 0, 1])
    assert (steps.observation[:length, 0] == 0).all()


def test_both_cues_come():
    chain = rl.MemoryChain(1)
    _, observations = jax.vmap(chain.reset)(jax.random.split(jax.random.key(0), 64))
    assert set(np.asarray(observations[:, 0])) == {-1.0, 1.0}


@pytest.mark.full
@given(st.integers(2, 6), st.integers(1, 9), st.integers(0, 99))
def test_the_event_follows_the_stimulus_by_the_interval(interval, pause, seed):
    _, steps = walk(rl.TraceConditioning(interval, pause), [0] * 200, seed)
    stimuli, events = (np.flatnonzero(steps.observation[:, i]) for i in range(2))
    np.testing.assert_array_equal(steps.reward, steps.observation[:, 1])
    assert len(events) > 3 and not (steps.terminated | steps.truncated).any()
    events = events[events >= stimuli[0]]
    np.testing.assert_array_equal(events - stimuli[: len(events)], interval)
    pauses = stimuli[1 : len(events) + 1] - events[: len(stimuli) - 1]
    assert pauses.min() >= pause and pauses.max() <= 2 * pause


def test_the_shortest_way_through_a_maze_turns_where_the_sign_points():
    maze, seen = rl.TMaze(3), set()
    for seed in range(6):
        state, first = maze.reset(jax.random.key(seed))
        north = bool(state.north)
        seen.add(north)
        np.testing.assert_array_equal(first, [0, 1, 1] if north else [1, 1, 0])
        _, steps = walk(maze, [1, 1, 1, 0], seed)
        np.testing.assert_array_equal(steps.terminated, [False, False, False, True])
        np.testing.assert_allclose(steps.reward, [0, 0, 0, 4 if north else -0.1])
        np.testing.assert_array_equal(steps.observation[:3], [[1, 0, 1], [1, 0, 1], [0, 1, 0]])
    assert seen == {True, False}


def test_walls_cost_and_a_limit_truncates():
    _, steps = walk(rl.TMaze(2, limit=5), [3, 0, 2, 1, 3, 3])
    np.testing.assert_allclose(steps.reward[:5], [-0.1, -0.1, -0.1, 0, 0])
    np.testing.assert_array_equal(steps.truncated, [False] * 4 + [True, False])
    assert not steps.terminated.any()
    # The last turn of the steps allowed ends the episode by itself.
    _, steps = walk(rl.TMaze(2, limit=3), [1, 1, 0])
    assert steps.terminated[2] and not steps.truncated[2]


def test_bad_sizes_are_named():
    for make, name in (
        (rl.MemoryChain, "length"),
        (rl.TMaze, "corridor"),
        (rl.TraceConditioning, "interval"),
    ):
        with pytest.raises(ValueError, match=f"{name}=0"):
            make(0)
    with pytest.raises(ValueError, match="interval=1"):
        rl.TraceConditioning(1)


class Broken(rl.MemoryChain):
    """A memory chain with one thing that does not fit."""

    def step(self, state, action, key):
        return self.spoil(*super().step(state, action, key))


@pytest.mark.parametrize(
    ("spoil", "error", "match"),
    [
        (
            lambda s, t: (s, t._replace(reward=t.reward[None])),
            ValueError,
            r"reward has shape \(1,\), expected \(\)",
        ),
        (
            lambda s, t: (s, t._replace(observation=t.observation[:1])),
            ValueError,
            "the same at every step",
        ),
        (
            lambda s, t: (s, t._replace(terminated=t.reward)),
            TypeError,
            "terminated is float32, expected bool",
        ),
        (
            lambda s, t: (s, t._replace(reward=t.terminated)),
            TypeError,
            "reward is bool, expected floating point",
        ),
        (
            lambda s, t: (s._replace(step=t.reward), t),
            ValueError,
            "same structure, shapes and dtypes",
        ),
        (lambda s, t: (s, tuple(t)), TypeError, "returned a tuple, expected"),
    ],
)
def test_an_environment_that_does_not_fit_is_named(spoil, error, match):
    environment = Broken(2)
    object.__setattr__(environment, "spoil", spoil)
    with pytest.raises(error, match=rf"Broken\.step.*{match}"):
        rl.check_environment(environment)

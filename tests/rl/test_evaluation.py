"""An agent that acts without learning: episodes, greedy or sampled, and a constant state."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rl_cases import make_agent, stream
from tiers import fast

import foretrace as ft
from foretrace import rl


@dataclasses.dataclass(frozen=True)
class Counting(rl.Environment):
    """Action 1 or the step `length` ends the episode; the reward is the number of the step."""

    length: int = 5
    observation_size = action_count = 2
    truncates = False

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(2)

    def step(self, state, action, key):
        now = state + 1
        ends = (action == 1) | (now == self.length)
        shown = jnp.stack([now, -now]).astype(float)
        return now, rl.TimeStep(shown, now + 0.0, ends, jnp.array(False), jnp.ones(()))


@pytest.mark.parametrize("batch_size", fast([None, 1, 3]))
def test_an_evaluation_is_that_of_a_loop_in_python(batch_size):
    """Greedy actions by the network over the observations of an episode, with frozen moments."""
    agent = make_agent(normalize_observations=True, batch_size=batch_size)
    state, given = agent.init(), stream(6, batch_size)
    for t in range(6):
        _, state, _ = agent.step(state, jax.tree.map(lambda part, t=t: part[t], given))
    found = agent.evaluate(state, Counting(), 7)
    # What is seen does not depend on the actions, as long as none of them ends the episode.
    moments, steps = state.observations, np.arange(5.0)
    seen = (np.stack([steps, -steps], 1) - moments.mean) / np.sqrt(moments.variance + 1e-8)
    outputs = ft.forward(state.network, None, jnp.asarray(seen))[0]
    ends = [*np.flatnonzero(jnp.argmax(outputs[:, 1:], axis=1) == 1) + 1, 5]
    np.testing.assert_array_equal(found.lengths, [ends[0]] * 7)
    np.testing.assert_allclose(found.returns, [sum(range(ends[0] + 1))] * 7, atol=1e-12)


@pytest.mark.parametrize("batch_size", fast([4, None]))
def test_samples_follow_the_policy_and_each_environment_ends_its_episodes(batch_size):
    """An untrained policy of two actions with equal logits: lengths are geometric, cut at five."""
    agent = make_agent(batch_size=batch_size)
    state = agent.init()
    state = state._replace(network=jax.tree.map(jnp.zeros_like, state.network))
    sampled = {"greedy": False, "key": jax.random.key(5)}
    found, same = (agent.evaluate(state, Counting(), 2000, **sampled) for _ in range(2))
    assert len(found.returns) == 2000
    shares = np.bincount(found.lengths, minlength=6)[1:] / 2000
    np.testing.assert_allclose(shares, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16], atol=0.035)
    np.testing.assert_array_equal(found.returns, found.lengths * (found.lengths + 1) / 2)
    np.testing.assert_array_equal(found.lengths, same.lengths)
    other = agent.evaluate(state, Counting(), 2000, greedy=False)
    assert (found.lengths != other.lengths).any()
    if batch_size:
        # Streams draw actions of their own.
        assert len({tuple(part) for part in np.split(found.lengths, batch_size)}) == batch_size

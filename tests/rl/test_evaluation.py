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
    """Five steps, or fewer: action 1 of two ends the episode. The reward is the step's number.

    A continuous action is the reward, and ends nothing.
    """

    action_count: int | None = 2
    observation_size = 2
    truncates = False

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(2)

    def step(self, state, action, key):
        now, free = state + 1, self.action_count is None
        shown = jnp.stack([now, -now]).astype(float)
        ends = (now == 5) if free else (action == 1) | (now == 5)
        return now, rl.TimeStep.of(shown, action[0] if free else now, ends)


@pytest.mark.parametrize("batch_size", fast([None, 1, 3]))
def test_an_evaluation_is_that_of_a_loop_in_python(batch_size):
    """Means of the policy over the observations of each episode, with frozen moments."""
    method = rl.ActorCritic(action_size=1)
    agent = make_agent(method, normalize_observations=True, batch_size=batch_size)
    state, given = jax.jit(agent.init)(), stream(6, batch_size)
    for t in range(6):
        _, state, _ = agent.step(state, jax.tree.map(lambda part, t=t: part[t], given))
    assert agent._step._cache_size() == 1, "a step compiles once"
    found = agent.evaluate(state, Counting(None), 7)
    moments, steps = state.observations, np.arange(5.0)
    seen = (np.stack([steps, -steps], 1) - moments.mean) / np.sqrt(moments.variance + 1e-8)
    outputs = ft.forward(state.network, None, jnp.asarray(seen))[0]
    np.testing.assert_array_equal(found.lengths, [5] * 7)
    np.testing.assert_allclose(found.returns, [outputs[:, 1].sum()] * 7, rtol=1e-5)


@pytest.mark.parametrize("batch_size", fast([4, None]))
def test_samples_follow_the_policy_and_each_environment_ends_its_episodes(batch_size):
    """An untrained policy of two actions with equal logits: lengths are geometric, cut at five."""
    agent = make_agent(batch_size=batch_size)
    state = jax.jit(agent.init)()
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


def test_an_environment_that_cannot_be_hashed_is_refused():
    class Loose(Counting):
        __hash__ = None  # as of a dataclass that is not frozen

    agent = make_agent(batch_size=None)
    with pytest.raises(TypeError, match="Loose cannot be hashed .*frozen dataclass"):
        agent.evaluate(jax.jit(agent.init)(), Loose(), 2)
    with pytest.raises(TypeError, match="Loose cannot be hashed"):
        rl.check_environment(Loose())

"""An agent that acts without learning: episodes, greedy or sampled, and a constant state."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import fast

import foretrace as ft
from foretrace import rl
from foretrace.rl._environment import TimeStep

pytestmark = pytest.mark.usefixtures("as_a_user")


@pytest.fixture(scope="module", autouse=True)
def as_a_user():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def make_agent(environment, method=None, **options):
    method = rl.ActorCritic() if method is None else method
    outputs = environment.action_count + isinstance(method, rl.ActorCritic)
    cell = ft.LRU.factory(state_size=3)
    network = ft.Network(
        environment.observation_size,
        outputs,
        model_size=4,
        depth=1,
        cell=cell,
        key=jax.random.key(0),
    )
    return rl.Agent(network, method, rule=ft.ONLINE, **options)


def learned(agent, environment, steps=6):
    """Return the state after some steps of learning."""
    streams = agent.batch_size or 1

    def front(tree):
        return jax.tree.map(lambda leaf: leaf[0], tree) if agent.batch_size is None else tree

    states, observation = jax.vmap(environment.reset)(jax.random.split(jax.random.key(1), streams))
    action, state, _ = agent.step(agent.init(), rl.Transition(front(observation), first=True))
    for key in jax.random.split(jax.random.key(2), steps):
        acts = jnp.reshape(action, (streams,))
        states, after, observation = jax.vmap(lambda *now: rl.step_or_reset(environment, *now))(
            states, acts, jax.random.split(key, streams)
        )
        given = rl.Transition(
            front(observation),
            front(after.reward),
            front(after.terminated),
            front(after.truncated),
            final_observation=front(after.observation),
        )
        action, state, _ = agent.step(state, given)
    return state


@dataclasses.dataclass(frozen=True)
class Counting:
    """Action 1 or the step `length` ends the episode; the reward is the number of the step."""

    length: int = 5
    observation_size = 2
    action_count = 2
    truncates = False
    flaw: float = 0.0

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(2)

    def step(self, state, action, key):
        now = state + 1
        ends = (action == 1) | (now == self.length)
        shown = jnp.stack([now, -now]).astype(float)
        return now, TimeStep(shown, now + self.flaw, ends, jnp.array(False), jnp.ones(()))


@pytest.mark.parametrize("batch_size", fast([None, 1, 3]))
def test_an_evaluation_is_that_of_a_loop_in_python(batch_size):
    """Greedy actions by the network over the observations of an episode, with frozen moments."""
    environment = Counting()
    agent = make_agent(environment, normalize_observations=True, batch_size=batch_size)
    state = learned(agent, environment)
    before = jax.tree.map(
        np.array, jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))
    )
    found = agent.evaluate(state, environment, 7)
    # What is seen does not depend on the actions, as long as none of them ends the episode.
    moments, steps = state.observations, np.arange(5.0)
    seen = (np.stack([steps, -steps], 1) - moments.mean) / np.sqrt(moments.variance + 1e-8)
    outputs = ft.forward(state.network, None, jnp.asarray(seen))[0]
    ends = [*np.flatnonzero(jnp.argmax(outputs[:, 1:], axis=1) == 1) + 1, 5]
    np.testing.assert_array_equal(found.lengths, [ends[0]] * 7)
    np.testing.assert_allclose(found.returns, [sum(range(ends[0] + 1))] * 7, atol=1e-12)
    after = jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))
    for a, b in zip(after, before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("batch_size", fast([4, None]))
def test_samples_follow_the_policy_and_each_environment_ends_its_episodes(batch_size):
    """An untrained policy of two actions with equal logits: lengths are geometric, cut at five."""
    environment = Counting()
    agent = make_agent(environment, batch_size=batch_size)
    zero = jax.tree.map(jnp.zeros_like, agent.network.decoder)
    state = agent.init()
    state = state._replace(
        network=eqx.tree_at(lambda network: network.decoder, state.network, zero)
    )
    found = agent.evaluate(state, environment, 2000, greedy=False, key=jax.random.key(5))
    assert len(found.returns) == 2000
    shares = np.bincount(found.lengths, minlength=6)[1:] / 2000
    np.testing.assert_allclose(shares, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16], atol=0.035)
    np.testing.assert_array_equal(found.returns, found.lengths * (found.lengths + 1) / 2)
    same = agent.evaluate(state, environment, 2000, greedy=False, key=jax.random.key(5))
    np.testing.assert_array_equal(found.lengths, same.lengths)
    other = agent.evaluate(state, environment, 2000, greedy=False)
    assert (found.lengths != other.lengths).any()


@pytest.mark.full
def test_greedy_actions_explore_nothing():
    method, values = rl.QLearning(1.0), jnp.array([3.0, 1.0, 2.0])
    draws = [method.noise(jax.random.key(i), 0, 3, values.dtype) for i in range(20)]
    assert {int(method.action(values, noise)) for noise in draws} == {0, 1, 2}
    assert int(method.greedy_action(values)) == 0
    method = rl.ActorCritic(action_size=2)
    np.testing.assert_array_equal(
        method.greedy_action(jnp.array([9.0, 1.0, 2.0, 0.0, 5.0])), [1.0, 2.0]
    )


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"episodes": 0}, ValueError, r"evaluate\(episodes=0\)"),
        ({"episodes": 2.0}, ValueError, r"evaluate\(episodes=2.0\)"),
        ({"most_steps": -1}, ValueError, r"evaluate\(most_steps=-1\)"),
        ({"most_steps": 3}, ValueError, r"0 of 2 episodes ended within 3 steps"),
        (
            {"environment": rl.TMaze()},
            ValueError,
            "observations have 3 elements, the network 2 inputs",
        ),
        ({"environment": rl.RepeatFirst()}, ValueError, "observations have 4 elements"),
        ({"environment": 7}, TypeError, r"evaluate\(environment=7\) must be"),
        ({"environment": Counting(flaw=float("nan"))}, ValueError, "is NaN or infinite at step 1"),
        ({"state": None}, TypeError, "state is a NoneType"),
        ({"key": 3}, TypeError, "evaluate"),
    ],
)
def test_what_does_not_fit_is_named(change, error, match):
    agent = make_agent(rl.MemoryChain(8))
    given = {"state": agent.init(), "environment": rl.MemoryChain(8), "episodes": 2} | change
    with pytest.raises(error, match=match):
        agent.evaluate(given.pop("state"), given.pop("environment"), given.pop("episodes"), **given)


def test_an_agent_that_only_predicts_has_no_returns():
    agent = make_agent(rl.TraceConditioning(), rl.ValuePrediction())
    with pytest.raises(ValueError, match="only predicts"):
        agent.evaluate(agent.init(), rl.TraceConditioning(), 1)

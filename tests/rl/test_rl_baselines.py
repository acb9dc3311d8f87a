"""The baselines of the benchmarks: a rolling window by its definition, and their records."""

import jax
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from rl_cases import make_network

import foretrace as ft

PPO = {"environment": "chain", "length": 2, "discount": 0.9, "entropy": 0.01, "learning_rate": 1e-3}
PPO |= {"environments": 4, "rollout": 8, "epochs": 1, "steps": 1600, "seeds": [0]}


def traces(agent, steps=7, done=2):
    """Return the trace after each step of a stream with one end of an episode, no updates."""
    draw, state, found = np.random.default_rng(0), agent.init(jax.random.key(0)), []
    brought = {"first": True}
    for t in range(steps):
        _, state, _ = agent.step(state, ft.rl.Transition(draw.normal(size=2), **brought))
        found.append(ravel_pytree(state.trace)[0])
        brought = {"reward": draw.normal(), "terminated": t == done}
    return np.array(found)


@pytest.mark.full
@pytest.mark.parametrize("entropy", [0.0, 0.1])
@pytest.mark.exact
def test_a_window_over_whole_episodes_is_the_exact_gradient(benchmark, entropy):
    """At full credit depth the online rule is exact, and so is a window over the episode."""
    network, method = make_network(), ft.rl.ActorCritic(entropy=entropy)
    options = {"optimizer": optax.sgd(0.0), "discount": 0.9}
    rolling = benchmark("agents.rolling").RollingAgent
    exact = traces(ft.rl.Agent(network, method, rule=ft.ONLINE.with_depth(1), **options))
    whole, short = (traces(rolling(network, method, reach=reach, **options)) for reach in (5, 2))
    np.testing.assert_allclose(whole, exact, atol=1e-12)
    # A window of two steps is exact for the first two steps of an episode, and not beyond.
    apart = np.abs(short - exact).max(axis=1)
    assert apart[1] < 1e-12 < 1e-6 < apart[2]


@pytest.mark.full
@pytest.mark.exact
def test_generalised_advantages_by_their_definition(benchmark):
    ppo = benchmark("agents.ppo")
    draw = np.random.default_rng(0)
    reward, value = draw.normal(size=(6, 2)), draw.normal(size=(7, 2))
    done, none = draw.random((6, 2)) < 0.3, np.zeros((6, 2))
    moments = ppo.Moment(none, none, none, none, value[:6], reward, done, none)
    with jax.numpy_dtype_promotion("standard"):
        found = ppo.advantages(PPO, *jax.tree.map(jax.numpy.asarray, (moments, value[6])))
    advantage = np.zeros(2)
    for t in reversed(range(6)):
        goes_on = PPO["discount"] * (1 - done[t])
        advantage = reward[t] + goes_on * (value[t + 1] + ppo.GAE * advantage) - value[t]
        np.testing.assert_allclose(found[t], advantage)


def test_gymnax_asks_for_the_cue_of_so_many_steps_ago(benchmark):
    pytest.importorskip("gymnax", reason="pip install 'foretrace[rl]'")
    chain = benchmark("agents.others").GymnaxChain(length=3)
    state, observation = chain.reset(jax.random.key(0))
    cue, rewards = observation[2], []
    for _ in range(4):
        state, step = chain.step(state, (cue > 0).astype(int), jax.random.key(1))
        rewards.append((float(step.reward), bool(step.terminated)))
    assert abs(cue) == 1
    assert rewards == [(0.0, False)] * 3 + [(1.0, True)]

"""The baselines of the benchmarks: a rolling window by its definition, and their records."""

import jax
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from rl_cases import make_network

import foretrace as ft


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

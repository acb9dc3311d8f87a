"""The baselines of the benchmarks: a rolling window by its definition, and what they record."""

import importlib
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import foretrace as ft

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """Return a function that imports a script of the benchmarks, as it is found when one of them runs."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    yield importlib.import_module
    for name in list(sys.modules):
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


def traces(agent, steps=7, done=2):
    """Return the trace after each step of a stream with one end of an episode, without an update."""
    draw, state, found = np.random.default_rng(0), agent.init(jax.random.key(0)), []
    for t in range(steps):
        _, state = agent.act(state, draw.normal(size=2))
        found.append(state.trace)
        state, _ = agent.learn(state, draw.normal(), t == done)
    return found


@pytest.mark.full
@pytest.mark.parametrize("entropy", [0.0, 0.1])
def test_a_window_over_whole_episodes_is_the_exact_gradient(script, entropy):
    """With credit at the full depth the online rule is exact, and so is a window that holds the episode."""
    make = ft.LRU.factory(state_size=3)
    network = ft.Network(2, 3, model_size=4, depth=1, cell=make, key=jax.random.key(1))
    options = {"optimizer": optax.sgd(0.0), "entropy": entropy, "discount": 0.9}
    rolling = script("rl_rolling").RollingActorCritic
    exact = traces(ft.rl.ActorCritic(network, rule=ft.ONLINE.with_depth(1), **options))
    whole, short = (traces(rolling(network, reach=reach, **options)) for reach in (5, 2))
    apart = []
    for a, b, c in zip(exact, whole, short, strict=True):
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_allclose(y, x, atol=1e-12)
        apart.append(max(np.abs(x - z).max() for x, z in zip(jax.tree.leaves(a), jax.tree.leaves(c), strict=True)))
    # A window of two steps is exact for the first two steps of an episode, and not beyond.
    assert apart[1] < 1e-12 < 1e-6 < apart[2]

"""Least squares on temporal differences: the decoder solves the equations of all steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import foretrace as ft
from foretrace import rl
from foretrace._engine.data import Data
from foretrace._engine.forward import run
from foretrace.rl._config import TASKS, AgentConfig, RLConfig
from foretrace.rl._monitors import Range, spectral_radius, untrained
from foretrace.rl._program import advance, begin, build

pytestmark = pytest.mark.usefixtures("standard_promotion", "allowed_rank_promotion")

CELLS = (ft.SetReset.factory(state_size=3), ft.Rotation.factory(state_size=2))
DISCOUNT, DECAY, FORGET, PRIOR, STEPS = 0.8, 0.6, 0.99, 1e-3, 60
"""No step comes near the weight of so strong a prior, so each step counts in full."""


@pytest.fixture(scope="module")
def allowed_rank_promotion():
    with jax.numpy_rank_promotion("allow"):
        yield


def agent_of(method, outputs=1, prior=PRIOR, **options):
    network = ft.ModuleNetwork(2, outputs, cells=CELLS, key=jax.random.key(0))
    options = {"optimizer": rl.LSTD(FORGET, prior), "rule": "reservoir"} | options
    return rl.Agent(network, method, discount=DISCOUNT, trace_decay=DECAY, **options)


def transitions(streams):
    """Return observations, rewards, ends, cuts, and last observations; now and then an end."""
    rng = np.random.default_rng(3)
    ends = rng.random((2, STEPS, streams)) < 0.08
    return (
        rng.normal(size=(STEPS + 1, streams, 2)),
        rng.normal(size=(STEPS, streams)),
        ends[0],
        ends[1] & ~ends[0],
        rng.normal(size=(STEPS, streams, 2)),
    )


def parameters(state):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.network.decoder)])


@pytest.mark.parametrize("streams", [None, 1, 3])
def test_the_decoder_solves_the_equations_of_all_steps(streams):
    agent = agent_of(rl.ValuePrediction(), batch_size=streams)
    observations, rewards, ended, cut, finals = transitions(streams or 1)
    front = (lambda array: array[0]) if streams is None else (lambda array: array)
    read = jax.jit(
        lambda carry, x: run(
            agent.network, carry, Data(x[None]), rule=ft.RESERVOIR, readout=lambda f: f
        )
    )

    def features(carry, x):
        f, after = read(carry, x)
        return np.append(f[0], 1.0), after

    size = agent.network.feature_size + 1
    A, b, counted = np.zeros((size, size)), np.zeros(size), 0
    empty = ft.init_carry(agent.network, ft.RESERVOIR)
    now = [features(empty, x) for x in observations[0]]
    z = [phi for phi, _ in now]
    _, state, _ = agent.step(
        agent.init(), rl.Transition(front(observations[0]), first=np.array(True))
    )
    for t in range(STEPS):
        A, b = A * FORGET ** len(z), b * FORGET ** len(z)
        for s in range(len(z)):
            phi, carry = now[s]
            fresh = ended[t, s] or cut[t, s]
            following = features(empty if fresh else carry, observations[t + 1, s])
            last = features(carry, finals[t, s])[0] @ parameters(state) if cut[t, s] else 0
            A += np.outer(z[s], phi - (0 if fresh else DISCOUNT) * following[0])
            b += z[s] * (rewards[t, s] + DISCOUNT * last)
            now[s] = following
            z[s] = following[0] + (0 if fresh else DISCOUNT * DECAY) * z[s]
        _, state, _ = agent.step(
            state,
            rl.Transition(
                front(observations[t + 1]),
                front(rewards[t]),
                front(ended[t]),
                front(cut[t]),
                final_observation=front(finals[t]),
            ),
        )
        counted += len(z)
        if counted >= size:
            counted = 0
            want = np.linalg.solve(A + np.eye(size) / PRIOR, b)
            np.testing.assert_allclose(parameters(state), want, rtol=1e-10, atol=1e-12)
    assert 3 * size / (streams or 1) < STEPS and ended.any() and cut.any()


def test_where_nothing_is_known_nothing_changes():
    agent = agent_of(rl.ValuePrediction())
    state = agent.init()
    for x in np.random.default_rng(0).normal(size=(40, 2)):
        _, state, _ = agent.step(state, rl.Transition(x, first=True))
    np.testing.assert_array_equal(parameters(state), parameters(agent.init()))
    assert not np.any(state.opt_state.moments) and int(state.step) == 0


def test_a_huge_observation_does_not_hide_the_others():
    """The value of a constant reward is learned in spite of a row of 1e12."""
    agent = agent_of(rl.ValuePrediction(), prior=1.0)
    _, state, _ = agent.step(agent.init(), rl.Transition([1.0, 0.5], first=True))
    for t in range(600):
        x = [1e12, -1e12] if t == 20 else [1.0, 0.5]
        prediction, state, _ = agent.step(state, rl.Transition(x, reward=2.0))
    np.testing.assert_allclose(prediction, 2.0 / (1 - DISCOUNT), rtol=0.05)


def test_an_infinite_moment_is_refused():
    agent = agent_of(rl.ValuePrediction())
    step = jax.jit(agent.step)
    _, state, _ = step(
        agent.init(), rl.Transition(jnp.ones(2), jnp.zeros(()), first=jnp.array(True))
    )
    _, after, info = step(state, rl.Transition(jnp.full(2, jnp.inf), jnp.ones(())))
    assert not info.accepted and int(after.skipped) == 1
    for name in ("moments", "targets", "mass"):
        np.testing.assert_array_equal(
            getattr(after.opt_state, name), getattr(state.opt_state, name)
        )


def test_options_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="ActorCritic.*LSTD, which learns values alone"):
        agent_of(rl.ActorCritic(), outputs=3)
    with pytest.raises(ValueError, match="rule=ONLINE.*give rule=foretrace.RESERVOIR"):
        agent_of(rl.ValuePrediction(), rule=ft.ONLINE)
    network = ft.Network(
        2,
        1,
        model_size=4,
        depth=1,
        cell=ft.LRU.factory(state_size=2),
        readout_size=3,
        key=jax.random.key(0),
    )
    with pytest.raises(ValueError, match="needs a linear decoder"):
        rl.Agent(network, rl.ValuePrediction(), rule="reservoir", optimizer=rl.LSTD())
    for options in ({"forget": 0.0}, {"forget": 1.1}, {"prior": 0.0}, {"prior": np.inf}):
        with pytest.raises(ValueError, match=f"LSTD\\({next(iter(options))}="):
            rl.LSTD(**options)


def test_a_run_refuses_options_that_do_not_fit():
    for options, text in (
        ({}, "agent.method=actor-critic does not fit"),
        ({"method": "sarsa", "learning_rate": 0.1}, "agent.learning_rate=0.1 does not fit"),
    ):
        with pytest.raises(ValueError, match=text):
            AgentConfig(optimizer="lstd", **options)
    fits = AgentConfig(optimizer="lstd", method="sarsa")
    maze = TASKS["t-maze"].environment
    with pytest.raises(ValueError, match="rule=online does not fit agent.optimizer=lstd"):
        RLConfig(maze, agent=fits)
    wider = TASKS["repeat-first"].network
    with pytest.raises(ValueError, match="no option of the network applies"):
        RLConfig(maze, agent=fits, rule="reservoir", network=wider)


def run_of(config, steps):
    """Return the metrics of the last half of a run."""
    agent = build(config)
    world = begin(config.seen, agent, jax.random.key(1))
    go = jax.jit(lambda world: advance(config.seen, agent, world, steps // 2))
    world, _ = go(world)
    return go(world)[1]


@pytest.mark.full
def test_a_cue_is_used_after_a_corridor():
    """Chance is a return of 1.95, the best one 4."""
    config = RLConfig(
        rl.TMaze(10),
        agent=AgentConfig(optimizer="lstd", method="sarsa", trace_decay=0.9, epsilon_steps=2000),
        rule="reservoir",
        network=TASKS["t-maze"].network,
    )
    found = run_of(config, 20_000)
    assert found["return"] / found["episodes"] > 3.2
    assert found["untrained_modules"] == 1 and found["refused"] == 0
    assert found["dead_modules"] < 1 and 0 < found["spectral_radius"] < 1.01


def test_modules_have_a_radius_and_a_range():
    network = ft.ModuleNetwork(2, 1, cells=CELLS, depth=2, key=jax.random.key(0))
    h = ft.init_carry(network, ft.RESERVOIR, 1).h
    alone = jax.tree.map(lambda leaf: leaf[:, 0], h)
    radius = spectral_radius(network, alone, jnp.ones(2))
    assert radius.shape == () and radius > 0
    still = Range.empty(network, h).including(network, h).including(network, h)
    assert float(still.dead()) == 1
    first = h[0][0].at[0, 0, 1].add(0.5)
    moved = still.including(network, ((first, h[0][1]), h[1]))
    np.testing.assert_allclose(moved.dead(), 9 / 10)
    assert float(untrained(network, network)) == 1

"""Least squares on temporal differences: the decoder solves the equations of all steps."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import foretrace as ft
from foretrace import cli, rl
from foretrace._engine.data import Data
from foretrace._engine.forward import run
from foretrace._recurrence.chunk import Carry
from foretrace.rl._config import TASKS, AgentConfig, RLConfig
from foretrace.rl._monitors import Range, spectral_radius, untrained
from foretrace.rl._program import advance, begin, build

CELLS = (ft.SetReset.factory(state_size=3), ft.Rotation.factory(state_size=2))
DISCOUNT, DECAY, FORGET, PRIOR, STEPS = 0.8, 0.6, 0.99, 2.0, 60


def agent_of(method, outputs=1, prior=PRIOR, **options):
    network = ft.ModuleNetwork(2, outputs, cells=CELLS, key=jax.random.key(0))
    options = {"optimizer": rl.LSTD(FORGET, prior), "rule": "reservoir"} | options
    return rl.Agent(network, method, discount=DISCOUNT, trace_decay=DECAY, **options)


def parameters(state):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.network.decoder)])


class Stream:
    """One stream in NumPy: features, trace, and what each step adds to the equations."""

    def __init__(self, network):
        self.network, self.z, self.keep = network, 0.0, 0.0
        self.empty = self.carry = ft.init_carry(network, ft.RESERVOIR)
        self.read = jax.jit(
            lambda carry, x: run(
                network, carry, Data(x[None]), rule=ft.RESERVOIR, readout=lambda f: f
            )
        )

    def features(self, x):
        f, after = self.read(self.carry, jnp.asarray(x))
        return np.append(f[0], 1.0), after

    def see(self, x, begins):
        """Take in an observation that is learned from next."""
        self.carry = self.empty if begins else self.carry
        self.phi, self.carry = self.features(x)
        self.z = (0.0 if begins else self.keep * self.z) + self.phi


@pytest.mark.exact
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("streams", [None, 1, 3])
def test_the_decoder_solves_the_equations_of_all_steps(streams, scaled):
    """Episodes end, are cut, begin anew; discounts differ; one reward is huge."""
    agent = agent_of(rl.ValuePrediction(), batch_size=streams, scale_rewards=scaled)
    rng, count = np.random.default_rng(3), streams or 1
    front = (lambda array: array[0]) if streams is None else (lambda array: array)
    each = [Stream(agent.network) for _ in range(count)]
    observation = rng.normal(size=(count, 2))
    for stream, x in zip(each, observation, strict=True):
        stream.see(x, True)
    first = rl.Transition(front(observation), np.zeros(agent._front), first=np.array(True))
    _, state, _ = agent.step(agent.init(), first)
    size = agent.network.feature_size + 1
    A, b, waiting, solved, ends = np.zeros((size, size)), np.zeros(size), 0, 0, np.zeros(3)
    squares, bounded = 0.0, 0
    for t in range(STEPS):
        observation, last = rng.normal(size=(2, count, 2))
        rewards, discounts = rng.normal(size=count), rng.random(count)
        rewards *= 1e6 if t == 20 else 1
        ended, cut, begun = rng.random((3, count)) < 0.1
        cut &= ~ended
        given = (observation, rewards, ended, cut, discounts, last, begun)
        _, state, _ = agent.step(state, rl.Transition(*map(front, given)))
        scale = np.sqrt(state.rewards.moments.variance + 1e-8) if scaled else 1.0
        known = int((~begun).sum())
        A, b, waiting = A * FORGET**known, b * FORGET**known, waiting + known
        counted = rewards / scale
        if squares > 0:
            counted = np.minimum(np.maximum(counted, -10 * squares**0.5), 10 * squares**0.5)
        bounded += (counted != rewards / scale)[~begun].sum()
        squares += (counted[~begun] ** 2).sum()
        for s, stream in enumerate(each):
            discount = 0.0 if ended[s] else DISCOUNT * discounts[s]
            ahead = stream.features(last[s] if cut[s] else observation[s])[0]
            if not begun[s]:
                A += np.outer(stream.z, stream.phi - discount * ahead)
                b += stream.z * counted[s]
            stream.keep = DECAY * discount
            stream.see(observation[s], ended[s] or cut[s] or begun[s])
        if waiting >= size:
            waiting, solved = 0, solved + 1
            want = np.linalg.solve(A + np.eye(size) / PRIOR, b)
            np.testing.assert_allclose(parameters(state), want, rtol=1e-9, atol=1e-11)
        ends += [ended.any(), cut.any(), begun.any()]
    assert solved >= 3 and (bounded or scaled) and (ends > 2).all()


@pytest.mark.parametrize(
    ("end", "want"),
    [
        ("truncated", np.full(10, 10.0)),
        ("terminated", 10 * (1 - 0.9 ** (10 - np.arange(10)))),
    ],
)
def test_an_episode_that_was_cut_is_not_one_that_ended(end, want):
    """A reward of 1 for ever is worth 10, wherever the stream is cut."""
    network = ft.ModuleNetwork(1, 1, key=jax.random.key(0))
    options = {"rule": "reservoir", "optimizer": rl.LSTD(), "discount": 0.9, "trace_decay": 0.8}
    agent = rl.Agent(network, rl.ValuePrediction(), **options)
    one, ends = jnp.ones(1), jnp.arange(1, 20_001) % 10 == 0
    start = rl.Transition(one, jnp.zeros(()), first=jnp.array(True))

    def step(state, now):
        given = rl.Transition(one, jnp.ones(()), **{end: now}, final_observation=one)
        prediction, state, _ = agent.step(state, given)
        return state, prediction

    _, found = jax.lax.scan(step, agent.step(agent.init(), start)[1], ends)
    np.testing.assert_allclose(np.roll(found[-10:], 1), want, rtol=0.03)


def test_the_value_of_an_action_is_learned_at_its_output():
    """Two actions that are rewarded 1 and 2; what follows has the value of the better one."""
    agent = agent_of(rl.QLearning(epsilon=0.5, on_policy=False), outputs=2, prior=100.0)
    action, state, _ = agent.step(agent.init(), rl.Transition([1.0, 0.5], first=True))
    for _ in range(400):
        outcome = rl.Transition([1.0, 0.5], reward=1.0 + int(action))
        action, state, _ = agent.step(state, outcome)
    best = 2 / (1 - DISCOUNT)
    found = agent.evaluate(state, Rewards(), 1)
    assert found.returns[0] == 2.0
    output, _ = ft.forward(state.network, state.carry._replace(e=None), jnp.array([[1.0, 0.5]]))
    np.testing.assert_allclose(output[0], [1 + DISCOUNT * best, best], rtol=0.05)


class Rewards(rl.Environment):
    """One step, which is rewarded by 1 plus the action."""

    observation_size, action_count = 2, 2

    def reset(self, key):
        return jnp.zeros(()), jnp.array([1.0, 0.5])

    def step(self, state, action, key):
        end = jnp.array(True)
        seen = rl.TimeStep(jnp.array([1.0, 0.5]), 1.0 + action, end, ~end, jnp.ones(()))
        return state, seen


def test_where_nothing_is_known_nothing_changes():
    agent = agent_of(rl.ValuePrediction())
    state = agent.init()
    for x in np.random.default_rng(0).normal(size=(40, 2)):
        _, state, _ = agent.step(state, rl.Transition(x, first=True))
    np.testing.assert_array_equal(parameters(state), parameters(agent.init()))
    assert not np.any(state.opt_state.recent) and int(state.step) == 0


def followed(size, at=20):
    """Return predictions of a constant reward, and the state, with a row of a size."""
    agent = agent_of(rl.ValuePrediction())
    rows = np.random.default_rng(1).normal(size=(600, 2))
    step = jax.jit(agent.step)
    none = jnp.zeros(())
    _, state, _ = step(agent.init(), rl.Transition(rows[0], none, first=jnp.array(True)))
    found = []
    for t, x in enumerate(rows):
        x = x * size if t == at else x
        prediction, state, _ = step(state, rl.Transition(x, none + 2.0))
        found.append(float(prediction))
    return np.array(found), state


@pytest.mark.parametrize("size", [1e3, 1e12])
def test_a_huge_observation_does_not_stop_learning(size):
    found, state = followed(size)
    assert int(state.skipped) == 0
    assert np.abs(found[-100:] - 2 / (1 - DISCOUNT)).mean() < 0.5


@pytest.mark.parametrize(
    ("rewards", "want"),
    [
        ({1000: 1e3}, 10),
        ({1000: 1e12}, 10),
        ({1000: -1e18, 3000: 1e18}, 10),
        ({t: 1e12 for t in range(1000, 10_000)}, 1e13),
    ],
)
def test_one_huge_reward_is_soon_outweighed_and_rewards_that_stay_huge_count(rewards, want):
    network = ft.ModuleNetwork(1, 1, key=jax.random.key(0))
    options = {"rule": "reservoir", "optimizer": rl.LSTD(0.999), "discount": 0.9}
    agent = rl.Agent(network, rl.ValuePrediction(), **options)
    seen = jax.random.normal(jax.random.key(1), (10_001, 1))
    rewards = jnp.ones(10_000).at[np.array([*rewards])].set(np.array([*rewards.values()]))
    _, state, _ = agent.step(agent.init(), rl.Transition(seen[0], first=True))

    def step(state, now):
        prediction, state, _ = agent.step(state, rl.Transition(*now))
        return state, prediction

    found = jax.lax.scan(step, state, (seen[1:], rewards))[1]
    np.testing.assert_allclose(found[-100:], want, rtol=0.1)


@pytest.mark.parametrize("reward", [1e20, 3e38])
def test_a_reward_whose_sum_would_be_infinite_is_refused_once(reward):
    agent = agent_of(rl.ValuePrediction())
    step, none = jax.jit(agent.step), jnp.zeros(())
    _, state, _ = step(agent.init(), rl.Transition(jnp.ones(2), none, first=jnp.array(True)))
    _, after, info = step(state, rl.Transition(jnp.ones(2), none + reward))
    assert not info.accepted and int(after.skipped) == 1
    jax.tree.map(np.testing.assert_array_equal, after.opt_state, state.opt_state)
    for x in np.random.default_rng(1).normal(size=(300, 2)):
        prediction, after, _ = step(after, rl.Transition(x, none + 2.0))
    assert int(after.skipped) == 1
    np.testing.assert_allclose(prediction, 2 / (1 - DISCOUNT), rtol=0.1)


def test_options_that_do_not_fit_are_refused():
    for method in (rl.ActorCritic(), Curious(), object.__new__(Delegating)):
        outputs = 1 if isinstance(method, Curious) else 3
        with pytest.raises(ValueError, match=f"{type(method).__name__}.*which learns values alone"):
            agent_of(method, outputs=outputs)
    for optimizer in (rl.LSTD, ft.kalman()):
        with pytest.raises(TypeError, match="must be foretrace.rl.ObGD, foretrace.rl.LSTD"):
            agent_of(rl.ValuePrediction(), optimizer=optimizer)
    trained = agent_of(rl.ValuePrediction(), rule="online", optimizer=rl.ObGD())
    with pytest.raises(TypeError, match="of an agent with another optimizer"):
        agent_of(rl.ValuePrediction()).step(trained.init(), rl.Transition([1.0, 0.0], first=True))
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
    for value in ("1", True, None):
        with pytest.raises(TypeError, match="LSTD\\(prior=.*must be a number"):
            rl.LSTD(prior=value)


def test_a_run_refuses_options_that_do_not_fit():
    for options, text in (
        ({}, "agent.method=actor-critic does not fit"),
        ({"method": "sarsa", "learning_rate": 0.1}, "agent.learning_rate=0.1 does not fit"),
        ({"method": "sarsa", "kappa": 3.0}, "agent.kappa=3.0 does not fit"),
        ({"method": "sarsa", "scale_rewards": True}, "agent.scale_rewards=True does not fit"),
    ):
        with pytest.raises(ValueError, match=text):
            AgentConfig(optimizer="lstd", **options)
    fits = AgentConfig(optimizer="lstd", method="sarsa")
    maze = TASKS["t-maze"].environment
    with pytest.raises(ValueError, match="rule=online does not fit agent.optimizer=lstd"):
        RLConfig(maze, agent=fits)
    other = dataclasses.replace(TASKS["t-maze"].network, depth=3, glu=False)
    with pytest.raises(ValueError, match=r"^network.depth, network.glu does not fit .*lstd"):
        RLConfig(maze, agent=fits, rule="reservoir", network=other)
    with pytest.raises(ValueError, match="network=None does not fit agent.optimizer=adam"):
        RLConfig(maze, network=None)


LEAST = "rl t-maze --rule reservoir --agent.optimizer lstd --agent.method sarsa --steps 10"


@pytest.mark.parametrize(
    ("command", "given", "named"),
    [
        (LEAST, "--cell lru", "--cell"),
        (LEAST, "--model_size=32", "--model_size=32"),
        (LEAST, "--network.norm-eps 1e-5 --network.glu", "--network.norm-eps, --network.glu"),
        (f"sweep {LEAST} --grid seed=0,1", "--depth 2", "--depth"),
    ],
)
def test_an_option_of_the_unused_network_is_named_even_with_its_default(
    command, given, named, tmp_path, capsys
):
    words = [*command.split(), *given.split(), "--run-dir", str(tmp_path / "run")]
    assert cli.main(words) == 2
    assert f"error: {named} does not fit agent.optimizer=lstd" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_record_has_no_network_that_is_not_used(tmp_path):
    assert cli.main([*LEAST.split(), "--run-dir", str(tmp_path / "run")]) == 0
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert recorded["network"] is None and recorded["agent"]["optimizer"] == "lstd"
    resume = ["resume", str(tmp_path / "run"), "--steps", "20"]
    assert cli.main([*resume, "--depth", "2"]) == 2
    assert cli.main(resume) == 0
    assert cli.main(["report", str(tmp_path / "run")]) == 0


def test_a_run_has_untrained_modules_and_a_trained_decoder():
    config = RLConfig(
        rl.TMaze(3), agent=AgentConfig(optimizer="lstd", method="sarsa"), rule="reservoir"
    )
    agent = build(config)
    world = begin(config.seen, agent, jax.random.key(1))
    after, tally = jax.jit(lambda world: advance(config.seen, agent, world, 300))(world)
    assert tally["untrained_modules"] == 1 and tally["refused"] == 0
    assert tally["update_norm"] > 0 and tally["spectral_radius"] > 0
    jax.tree.map(
        np.testing.assert_array_equal, after.agent.network.layers, world.agent.network.layers
    )
    assert not np.allclose(parameters(after.agent), parameters(world.agent))


def test_modules_can_be_trained_by_a_gradient():
    agent = agent_of(rl.ValuePrediction(), rule="online", optimizer=None)
    before = state = agent.init()
    _, state, _ = agent.step(state, rl.Transition([1.0, 0.5], first=True))
    for _ in range(3):
        _, state, _ = agent.step(state, rl.Transition([0.5, 1.0], reward=1.0))
    moved = jax.tree.map(
        lambda a, b: not np.array_equal(a, b), state.network.layers, before.network.layers
    )
    assert all(jax.tree.leaves(moved))


class Curious(rl.ValuePrediction):
    """Has a bonus that is not a value."""

    entropy = 0.1


class Delegating:
    """Has what the step asks for, but not by inheritance."""

    entropy = 0.0

    def __getattr__(self, name):
        return getattr(rl.ActorCritic(), name)


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
        agent=AgentConfig(
            optimizer="lstd", method="sarsa", trace_decay=0.9, epsilon=0.02, epsilon_steps=2000
        ),
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

    def moved_by(states):
        after = ft.forward(network, Carry(states, None), jnp.ones((1, 2)))[1].h
        return ravel_pytree(after)[0]

    flat, restore = ravel_pytree(alone)
    # By differences: the derivative of `forward` to its carry is cut.
    ends = [
        [moved_by(restore(flat + step)) for step in (1e-6 * d, -1e-6 * d)]
        for d in np.eye(flat.size)
    ]
    jacobian = np.array([(up - down) / 2e-6 for up, down in ends]).T
    want = np.abs(np.linalg.eigvals(jacobian)).max()
    np.testing.assert_allclose(spectral_radius(network, alone, jnp.ones(2)), want, rtol=1e-3)
    still = Range.empty(network, h).including(network, h).including(network, h)
    assert float(still.dead()) == 1
    first = h[0][0].at[0, 0, 1].add(0.5)
    moved = still.including(network, ((first, h[0][1]), h[1]))
    np.testing.assert_allclose(moved.dead(), 9 / 10)
    assert float(untrained(network, network)) == 1

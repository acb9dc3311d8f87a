"""What tests of agents share: small networks and agents, and a stream with what it teaches."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from gradients import filled
from learners import network_of, once

import foretrace as ft
from foretrace import rl

DISCOUNT, KEY = 0.9, jax.random.key(0)


@once
def make_network(inputs=2, outputs=3, cell="lru", depth=1, **options):
    """Return a small network; a network of modules if no cell is named."""
    if cell is not None:
        return network_of(cell, depth, inputs, outputs, **options)
    cells = ft.SetReset.factory(state_size=3), ft.Rotation.factory(state_size=2)
    return filled(lambda: ft.ModuleNetwork(inputs, outputs, cells=cells, depth=depth, key=KEY))


@once
def make_agent(method=None, *, inputs=2, actions=2, cell="lru", depth=1, **options):
    """Return an agent of a small network with the outputs that a method needs."""
    method = rl.ActorCritic() if method is None else method
    outputs = {rl.ValuePrediction: 1, rl.QLearning: actions}.get(type(method), 1 + actions)
    if getattr(method, "action_size", None):
        outputs = 1 + 2 * method.action_size
    network = make_network(inputs, outputs, cell, depth)
    return rl.Agent(network, method, **({"rule": ft.ONLINE, "discount": DISCOUNT} | options))


def summing():
    """Return an optimiser that adds gradients up and moves nothing, so that they can be read."""
    zeros = partial(jax.tree.map, jnp.zeros_like)
    return optax.GradientTransformation(
        zeros, lambda g, total, p: (zeros(g), jax.tree.map(jnp.add, total, g))
    )


def stream(steps, streams=None, *, gaps=False, huge=(), seed=0):
    """Return transitions, time in front: episodes end, are cut and begin anew.

    Args:
        steps: number of steps.
        streams: number of streams side by side; None for one without an axis.
        gaps: whether some observations and rewards are NaN.
        huge: steps whose rewards are a million times larger.
        seed: seed of the numbers.
    """
    rng, shape = np.random.default_rng(seed), (steps, *(() if streams is None else (streams,)))
    kind = rng.choice(4, shape, p=[0.6, 0.15, 0.15, 0.1])
    kind[0] = 3
    observation, final = rng.normal(size=(2, *shape, 2))
    reward = rng.normal(size=shape)
    reward[list(huge)] *= 1e6
    if gaps:
        observation[rng.random(steps) < 0.2] = np.nan
        reward[rng.random(steps) < 0.2] = np.nan
    return rl.Transition(
        observation, reward, kind == 1, kind == 2, rng.random(shape), final, kind == 3
    )


def run(agent, given, key=KEY, kept=lambda state: None):
    """Return the last state; and action, information and what is kept of the state, by step."""

    def step(state, now):
        action, state, info = agent.step(state, now)
        return state, (action, info, kept(state))

    return jax.jit(lambda key, given: jax.lax.scan(step, agent.init(key), given))(key, given)


class Lessons(NamedTuple):
    """What one stream teaches, with an axis of the steps whose observation is finite.

    Args:
        at: steps of the stream.
        xs: inputs of the network.
        begins: whether the step begins an episode.
        known: whether the outcome of the step's action is learned from.
        reward: reward of the action; 0 where it is not known.
        discount: discount of what follows.
        ahead: inputs whose value stands for what follows.
    """

    at: np.ndarray
    xs: np.ndarray
    begins: np.ndarray
    known: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    ahead: np.ndarray


def lessons_of(given, *, normalized=False):
    """Return the lessons of each stream by their definition.

    An action is learned from if its observation was finite and its reward is, unless the next step
    begins an episode without an outcome. What follows is the last observation of an episode that
    was cut, and else the next one: where that one is missing within an episode, nothing is learned.
    """
    steps = len(given.reward)
    seen, reward, ended, cut, discount, last, first = (
        np.reshape(part, (steps, -1, 2) if part.ndim > given.reward.ndim else (steps, -1))
        for part in given
    )
    at, paid = np.flatnonzero(np.isfinite(seen).all((1, 2))), np.isfinite(reward).all(1)
    then = at[:-1] + 1
    for i in range(reward.shape[1]):
        ends = ended[:, i] | cut[:, i]
        over = np.cumsum(ends | first[:, i])[at]
        known = paid[then] & ~first[then, i] & ((then == at[1:]) | ends[then])

        def as_input(row, k):
            rows = seen[at[: k + 1]].reshape(-1, 2)
            if not normalized:
                return row
            spread = rows.var(0, ddof=1) if len(rows) > 1 else 1.0
            return (row - rows.mean(0)) / np.sqrt(spread + 1e-8)

        xs = np.array([as_input(seen[t, i], k) for k, t in enumerate(at)])
        cuts = [as_input(last[t, i], k) if cut[t, i] else xs[k + 1] for k, t in enumerate(then)]
        yield Lessons(
            at,
            xs,
            np.append(True, np.diff(over) > 0),
            np.append(known, False),
            np.append(np.where(known, reward[then, i], 0), 0),
            np.append(np.where(ended[then, i], 0, DISCOUNT * discount[then, i]), 0),
            np.array([*cuts, np.zeros(2)]),
        )


def outputs_of(network, lessons):
    """Return a network's outputs at each step, open to the derivative in time, and ahead of it."""
    xs, begins = (jnp.pad(part, [(0, 1), *[(0, 0)] * (part.ndim - 1)]) for part in lessons[1:3])
    read = partial(ft.forward, network, None, rule=ft.BPTT)

    def ahead(k, x):
        return read(xs.at[k + 1].set(x), reset=begins.at[k + 1].set(False))[0][k + 1]

    following = jax.vmap(ahead)(jnp.arange(len(lessons.at)), jnp.asarray(lessons.ahead))
    return read(xs, reset=begins)[0][:-1], following


def assert_same(got, want, tolerance=1e-10):
    """Assert that two trees hold the same numbers."""
    for (path, g), w in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=0, atol=tolerance, err_msg=jax.tree_util.keystr(path))


class Space:
    """A space of observations or actions, as gymnasium defines it."""

    def __init__(self, shape=None, n=None):
        self.shape, self.n, self.low, self.high = shape, n, -1.0, 1.0


class Walk:
    """A random walk in the interface of gymnasium: the reward is the place.

    Args:
        last: length of an episode; None without end.
        cut: number of steps after which an episode is cut.
        action_space: space of the actions. Default: two of them.
        wrong_from: step of an episode from which on `wrong` is given in place of what is right.
        **wrong: parts of a step by name; `reset` and `step` are the number of values returned, and
            `error` is raised.
    """

    def __init__(self, *, last=5, cut=None, action_space=None, wrong_from=3, **wrong):
        self.observation_space, self.action_space = Space(shape=(1, 2)), action_space or Space(n=2)
        self.last, self.cut, self.wrong, self.wrong_from = last, cut, wrong, wrong_from
        self.seeds = []

    def reset(self, *, seed=None):
        self.seeds.append(seed)
        self.random, self.steps = np.random.default_rng(seed or len(self.seeds)), 0
        self.place = self.random.normal()
        return (np.array([[self.place, 0]], np.float32), {})[: self.wrong.get("reset", 2)]

    def step(self, action):
        self.place += self.random.normal() + float(np.sum(action))
        self.steps += 1
        given = {
            "observation": np.array([[self.place, self.steps]], np.float32),
            "reward": np.array([self.place]),
            "terminated": self.steps == self.last,
            "truncated": self.steps == self.cut,
            "info": {},
        }
        if self.steps >= self.wrong_from:
            if "error" in self.wrong:
                raise self.wrong["error"]
            given = {name: self.wrong.get(name, part) for name, part in given.items()}
        return tuple(given.values())[: self.wrong.get("step", 5)]

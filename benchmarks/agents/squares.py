"""Values by least squares on untrained modules: LSTD(lambda), with SARSA where there are actions.

    z <- discount lambda z + phi,  d = phi - discount phi',  K = P z / (1 + d P z)
    W <- W + K (reward - d W),     P <- (P - K d P) / FORGET, but not above its first trace

phi are the outputs of 24 modules of `benchmarks.streams.memory` and a constant, in the place of the
action that was taken. The network is not trained; actions are greedy, but for a share `EXPLORE` of
random ones, which the returns contain. Everything is in float64, because P is not symmetric.

Source: Bradtke and Barto, Linear least-squares algorithms for temporal difference learning, 1996;
    Boyan, Least-squares temporal difference learning, 1999.
"""

import statistics
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import foretrace as ft
from benchmarks.streams.memory import modules
from foretrace._engine.data import Data
from foretrace._engine.forward import run
from foretrace.rl import MemoryChain, TMaze, TraceConditioning

DECAY, EXPLORE, DISCOUNT, FORGET = 0.9, 0.02, 0.99, 0.9999
LEAST = 0.3
"""Smallest 1 + d P z with which a step is learned: P need not be positive."""
STEPS = {
    ("chain", 64): 150_000,
    ("chain", 128): 300_000,
    ("maze", 10): 60_000,
    ("maze", 50): 100_000,
    ("maze", 100): 100_000,
    ("trace", 20): 60_000,
    ("trace", 50): 100_000,
}
"""Steps of each task, at most those of the agents in `own`."""


def cells(seeds):
    """Return a cell for each task."""
    return [
        {"part": "squares", "environment": kind, "length": length, "steps": steps, "seeds": seeds}
        for (kind, length), steps in STEPS.items()
    ]


def learn(cell):
    """Return the mean return, or the share of variance not predicted, of the last tenth."""
    kinds = {"chain": MemoryChain, "maze": TMaze, "trace": TraceConditioning}
    environment = kinds[cell["environment"]](cell["length"])
    with jax.enable_x64(True):
        found = [followed(environment, cell["steps"], seed) for seed in cell["seeds"]]
    each = [round(float(np.nanmean(scores[-len(scores) // 10 :])), 4) for scores in found]
    return {"mean": round(statistics.mean(each), 4), "each": each}


class Life(NamedTuple):
    """Everything that a step changes."""

    world: Any
    carry: Any
    features: jax.Array
    action: jax.Array
    W: jax.Array
    P: jax.Array
    z: jax.Array
    total: jax.Array


def followed(environment, steps, seed):
    """Return the score of each step, NaN where there is none: the return of an episode that ends.

    For predictions it is the squared error in units of the best constant's.
    """
    predicts, actions = environment.predicts, environment.action_count
    discount = 1 - 1 / (2 * environment.interval) if predicts else DISCOUNT
    spread = environment.spread(discount) if predicts else None
    network = ft.ModuleNetwork(
        environment.observation_size, 1, cells=modules(8), key=jax.random.key(seed)
    )
    start = ft.init_carry(network, ft.RESERVOIR)

    def step(life, key):
        world_key, action_key, reset_key = jax.random.split(key, 3)
        world, seen = environment.step(life.world, life.action, world_key)
        ends = seen.terminated | seen.truncated
        world, observation, carry = jax.tree.map(
            lambda new, old: jnp.where(ends, new, old),
            (*environment.reset(reset_key), start),
            (world, seen.observation, life.carry),
        )
        features, carry = features_of(network, carry, observation)
        action = chosen(life.W, features, actions, action_key)
        phi = placed(life.features, life.action, actions)
        after = placed(features, action, actions)
        z = discount * DECAY * life.z + phi
        W, P = learned(life, z, phi - jnp.where(ends, 0.0, discount) * after, seen.reward)
        total = life.total + seen.reward
        score = jnp.where(ends, total, jnp.nan)
        if predicts:
            value, known = environment.value(world, discount)
            score = jnp.where(known, (after @ life.W - value) ** 2 / spread, jnp.nan)
        z, total = jnp.where(ends, 0.0, z), jnp.where(ends, 0.0, total)
        return Life(world, carry, features, action, W, P, z, total), score

    key = jax.random.key(seed)
    world, observation = environment.reset(jax.random.fold_in(key, 1))
    features, carry = features_of(network, start, observation)
    zero = jnp.zeros(actions * len(features))
    life = Life(world, carry, features, jnp.int32(0), zero, jnp.eye(len(zero)), zero, 0.0)
    keys = jax.random.split(jax.random.fold_in(key, 2), steps)
    return np.asarray(jax.jit(lambda life: jax.lax.scan(step, life, keys)[1])(life))


def features_of(network, carry, x):
    """Return a constant and the outputs of the modules at an observation, and the next carry."""
    f, after = run(network, carry, Data(x[None]), rule=ft.RESERVOIR, readout=lambda f: f)
    return jnp.concatenate([jnp.ones(1), f[0]]), after


def placed(features, action, actions):
    """Return features in the place of an action, and zeros in those of the others."""
    return (jax.nn.one_hot(action, actions)[:, None] * features).ravel()


def chosen(W, features, actions, key):
    """Return the best action, or now and then a random one."""
    explores, drawn = jax.random.split(key)
    random = jax.random.randint(drawn, (), 0, actions, jnp.int32)
    best = jnp.argmax(W.reshape(actions, -1) @ features).astype(jnp.int32)
    return jnp.where(jax.random.bernoulli(explores, EXPLORE), random, best)


def learned(life, z, d, reward):
    """Return W and P after a step."""
    moved = life.P @ z
    weight = 1 + d @ moved
    K = jnp.where(weight > LEAST, moved / weight, 0.0)
    P = life.P - jnp.outer(K, d @ life.P)
    P = P / jnp.where(jnp.trace(P) < len(P), FORGET, 1.0)
    return life.W + K * (reward - d @ life.W), P

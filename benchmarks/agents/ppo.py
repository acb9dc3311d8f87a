"""Recurrent PPO with backpropagation through time, an upper reference that is not online.

Many environments run, and every rollout is gone through four times. The network is the agents' in
`own.py`. A rollout begins with the network's last state, and is differentiated as a whole.
Options are the usual ones: GAE .95, clipping at .2, gradient norm .5, advantages normalised, a
learning rate that falls to zero in a straight line. Steps are counted over all environments.

Source: Schulman et al., Proximal policy optimization algorithms, arXiv 1707.06347; Huang et al.,
    The 37 implementation details of PPO, ICLR blog, 2022.
"""

import statistics
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

import foretrace as ft
from benchmarks.agents.own import ENVIRONMENTS
from benchmarks.networks import lru_network
from foretrace.rl import step_or_reset

BLOCKS = 50
CLIP, GAE, VALUE_WEIGHT, LARGEST_NORM = 0.2, 0.95, 0.5, 0.5


class Player(NamedTuple):
    """Environments and states between two steps; `total` is each episode's return so far."""

    environments: Any
    observation: jax.Array
    start: jax.Array
    h: Any
    total: jax.Array


class Moment(NamedTuple):
    """A step of every environment."""

    observation: jax.Array
    start: jax.Array
    action: jax.Array
    log_probability: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array
    returned: jax.Array


def run(network, h, observations, starts):
    """Return values, logarithms of probabilities and states after a chunk, time second."""
    before = ft.init_carry(network, ft.BPTT, len(starts))._replace(h=h)
    outputs, carry = ft.forward(network, before, observations, reset=starts)
    return outputs[..., 0], jax.nn.log_softmax(outputs[..., 1:]), carry.h


def act(environment, cell, network, player, key):
    """Take one step in every environment."""
    draw, follow = jax.random.split(key)
    value, logs, h = run(network, player.h, player.observation[:, None], player.start[:, None])
    action = jax.random.categorical(draw, logs[:, 0]).astype(jnp.int32)
    keys = jax.random.split(follow, len(action))
    after, step, observation = jax.vmap(partial(step_or_reset, environment))(
        player.environments, action, keys
    )
    reward, done = step.reward, step.terminated | step.truncated
    if environment.truncates:
        # The value of the last observation stands for the rest of an episode that was cut.
        rest = run(network, h, step.observation[:, None], jnp.zeros_like(done)[:, None])[0][:, 0]
        reward = reward + cell["discount"] * jnp.where(step.truncated & ~step.terminated, rest, 0.0)
    total = player.total + step.reward
    chosen = jnp.take_along_axis(logs[:, 0], action[:, None], 1)[:, 0]
    given = player.observation, player.start, action, chosen, value[:, 0]
    moment = Moment(*given, reward, done, jnp.where(done, total, 0.0))
    return Player(after, observation, done, h, jnp.where(done, 0.0, total)), moment


def advantages(cell, moments, last_value):
    """Return generalised advantages of a rollout, time in front."""

    def back(later, now):
        advantage, value = later
        goes_on = cell["discount"] * (1.0 - now.done)
        advantage = now.reward + goes_on * value - now.value + goes_on * GAE * advantage
        return (advantage, now.value), advantage

    return lax.scan(back, (jnp.zeros_like(last_value), last_value), moments, reverse=True)[1]


def loss(network, cell, h, moments, advantage, aim):
    """Return the clipped objective of some environments, time second."""
    value, logs, _ = run(network, h, moments.observation, moments.start)
    chosen = jnp.take_along_axis(logs, moments.action[..., None], -1)[..., 0]
    ratio = jnp.exp(chosen - moments.log_probability)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage).mean()
    entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
    return VALUE_WEIGHT * ((value - aim) ** 2).mean() - gain - cell["entropy"] * entropy


def iterate(environment, cell, optimizer, state, key):
    """Play a rollout and learn from it; return the state, and number and sum of the returns."""
    network, opt_state, player = state
    play, shuffle = jax.random.split(key)
    began = player.h
    player, moments = lax.scan(
        partial(act, environment, cell, network), player, jax.random.split(play, cell["rollout"])
    )
    last_value = run(network, player.h, player.observation[:, None], player.start[:, None])[0][:, 0]
    advantage = advantages(cell, moments, last_value)
    counted = moments.done.sum(), moments.returned.sum()
    rows = jax.tree.map(
        lambda leaf: jnp.swapaxes(leaf, 0, 1), (moments, advantage, advantage + moments.value)
    )

    def update(now, some):
        network, opt_state = now
        h = jax.tree.map(lambda leaf: leaf[:, some], began)
        grads = jax.grad(loss)(network, cell, h, *jax.tree.map(lambda leaf: leaf[some], rows))
        updates, opt_state = optimizer.update(grads, opt_state, network)
        return (optax.apply_updates(network, updates), opt_state), None

    orders = jax.vmap(lambda key: jax.random.permutation(key, cell["environments"]))(
        jax.random.split(shuffle, cell["epochs"])
    )
    (network, opt_state), _ = lax.scan(
        update, (network, opt_state), orders.reshape(-1, cell["environments"] // 4)
    )
    return (network, opt_state, player), counted


def learn(cell):
    """Return the mean return of the last tenth of each seed, and its curve."""
    environment = ENVIRONMENTS[cell["environment"]](cell["length"])
    rollouts = cell["steps"] // (BLOCKS * cell["environments"] * cell["rollout"])
    # Four updates an epoch, each from a quarter of the environments.
    rate = optax.linear_schedule(cell["learning_rate"], 0.0, rollouts * BLOCKS * cell["epochs"] * 4)
    optimizer = optax.chain(optax.clip_by_global_norm(LARGEST_NORM), optax.adam(rate, eps=1e-5))

    @jax.jit
    def first(key):
        of_network, of_environments = jax.random.split(key)
        sizes = environment.observation_size, 1 + environment.action_count
        network = lru_network(*sizes, 32, 2, key=of_network)
        count = cell["environments"]
        state, observation = jax.vmap(environment.reset)(jax.random.split(of_environments, count))
        h = ft.init_carry(network, ft.BPTT, count).h
        player = Player(state, observation, jnp.ones(count, bool), h, jnp.zeros(count))
        return network, optimizer.init(network), player

    block = jax.jit(
        lambda state, key: lax.scan(
            partial(iterate, environment, cell, optimizer), state, jax.random.split(key, rollouts)
        )
    )
    results, curves = [], []
    for seed in cell["seeds"]:
        key, lines = jax.random.key(seed), []
        state = first(jax.random.fold_in(key, 0))
        for i in range(BLOCKS):
            state, (episodes, returns) = block(state, jax.random.fold_in(key, i + 1))
            lines.append((float(episodes.sum()), float(returns.sum())))
        last = lines[-BLOCKS // 10 :]
        results.append(round(sum(total for _, total in last) / sum(count for count, _ in last), 4))
        curves.append([round(total / max(count, 1), 3) for count, total in lines])
    return {"mean": round(statistics.mean(results), 4), "each": results, "curves": curves}

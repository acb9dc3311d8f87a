"""Compiled program of an agent's run: a block of environment steps with metrics."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from foretrace._learner.optimizer import adam
from foretrace._modules import ModuleNetwork
from foretrace._network import AbstractNetwork
from foretrace._types import Array, Float, Int, PRNGKeyArray
from foretrace.rl._actor_critic import ActorCritic
from foretrace.rl._agent import Agent
from foretrace.rl._config import AgentConfig, RLConfig
from foretrace.rl._environment import (
    Environment,
    check_environment,
    each_environment,
    step_or_reset,
)
from foretrace.rl._lstd import LSTD
from foretrace.rl._method import Method
from foretrace.rl._metrics import Tally, counted, empty, ended
from foretrace.rl._monitors import has_moved
from foretrace.rl._overshoot import ObGD
from foretrace.rl._q_learning import QLearning
from foretrace.rl._state import AgentState
from foretrace.rl._transition import Transition
from foretrace.rl._update import Update
from foretrace.rl._value_prediction import ValuePrediction


class World(NamedTuple):
    """Agent and environments between two steps, which a checkpoint stores.

    Args:
        agent: state of the agent.
        environments: state of each environment.
        transition: outcome of the last action, and present observation of each environment.
        total: sum of the rewards of each environment's present episode.
        key: PRNG key of the environments.
    """

    agent: AgentState
    environments: Any
    transition: Transition
    total: Float[Array, "B"]
    key: PRNGKeyArray


def build(
    config: RLConfig, key: PRNGKeyArray | None = None, network: AbstractNetwork | None = None
) -> Agent:
    """Return the agent of a configuration. The function may be traced.

    Args:
        config: configuration of a run.
        key: PRNG key of the initial parameters. Default: a key from the configuration's seed.
        network: network of the agent. Default: a network sampled with the key.

    Raises:
        ValueError: a size, rate or probability is out of range, a depth is given for a rule without
            sensitivities, or the method needs discrete actions and the environment has continuous
            ones.
    """
    agent, environment, bounds = config.agent, config.seen, config.environment.bounds
    actions, size = environment.action_count or 0, None if bounds is None else bounds[0].size
    if size is not None and agent.method != "actor-critic":
        raise ValueError(
            f"agent.method={agent.method} does not fit {config.environment}, whose actions are "
            "continuous; use --agent.method actor-critic"
        )
    outputs = {"prediction": 1, "actor-critic": 1 + (2 * size if size else actions)}
    sizes = environment.observation_size, outputs.get(agent.method, actions)
    if network is None:
        key = jax.random.key(config.seed) if key is None else key
        draw = ModuleNetwork if agent.optimizer == "lstd" else config.network.drawn
        network = draw(*sizes, key=key)
    return Agent(
        network,
        method_of(agent, size),
        rule=config.rule,
        discount=agent.discount,
        trace_decay=agent.trace_decay,
        optimizer=optimizer_of(agent),
        normalize_observations=agent.normalize_observations,
        scale_rewards=agent.scale_rewards,
        batch_size=config.environments,
    )


def optimizer_of(config: AgentConfig) -> Update | optax.GradientTransformation:
    """Return the optimiser of a configuration."""
    if config.optimizer == "lstd":
        return LSTD()
    if config.optimizer == "obgd":
        return ObGD(config.step_size, config.kappa)
    return adam(config.step_size)


def method_of(config: AgentConfig, action_size: int | None = None) -> Method:
    """Return the method of learning of a configuration, for actions of this size."""
    if config.method == "prediction":
        return ValuePrediction()
    if config.method == "actor-critic":
        return ActorCritic(action_size, config.actor_weight, config.entropy)
    epsilon = optax.linear_schedule(1.0, config.epsilon, config.epsilon_steps)
    return QLearning(epsilon=epsilon, on_policy=config.method == "sarsa")


def begin(environment: Environment, agent: Agent, key: PRNGKeyArray) -> World:
    """Return agent and environments before the first step.

    Raises:
        TypeError, ValueError: the environment does not have the interface of `Environment`.
    """
    check_environment(environment)
    agent_key, reset_key, key = jax.random.split(key, 3)
    assert agent.batch_size is not None, "a run has a batch of environments"
    keys = jax.random.split(reset_key, agent.batch_size)
    environments, observation = each_environment(environment, environment.reset)(keys)
    nothing = jnp.zeros(keys.shape, observation.dtype)
    no = jnp.zeros(keys.shape, bool)
    # Arrays, because the first transition must have the structure of the later ones.
    start = Transition(observation, nothing, no, no, nothing, observation, first=~no)
    world = World(agent.init(agent_key), environments, start, nothing, key)
    # Separate arrays, so that all can be donated.
    return jax.tree.map(jnp.copy, world)


def advance(
    environment: Environment, agent: Agent, world: World, steps: Int[Array, ""] | int
) -> tuple[World, Tally]:
    """Act and learn for a number of steps."""
    h = world.agent.carry.h

    def step(_: Any, now: tuple[World, Tally, Any]) -> tuple[World, Tally, Any]:
        world, tally = _step(environment, agent, *now[:2])
        moved = has_moved(h, world.agent.carry.h)
        return world, tally, jax.tree.map(jnp.logical_or, now[2], moved)

    start = (world, empty(world.total.dtype), has_moved(h, h))
    after, tally, moved = lax.fori_loop(0, steps, step, start)
    return after, ended(tally, world.agent, after.agent, moved)


def _step(
    environment: Environment, agent: Agent, world: World, tally: Tally
) -> tuple[World, Tally]:
    given = world.transition
    if not environment.truncates:
        given = given._replace(truncated=None, final_observation=None)
    action, state, info = agent.step(world.agent, given)
    key, draw = jax.random.split(world.key)
    keys = jax.random.split(draw, world.total.size)
    act = each_environment(environment, partial(step_or_reset, environment))
    environments, step, observation = act(world.environments, action, keys)
    no = jnp.zeros_like(step.terminated)
    followed = Transition(**step._asdict(), final_observation=step.observation, first=no)
    total, done = world.total + step.reward, step.terminated | step.truncated
    refused = state.skipped - world.agent.skipped
    error, known = _prediction_error(environment, agent, world.environments, action)
    tally = counted(tally, step, info, total, refused, error, known)
    brought = followed._replace(observation=observation)
    return World(state, environments, brought, jnp.where(done, 0, total), key), tally


def _prediction_error(
    environment: Environment, agent: Agent, states: Any, prediction: Array
) -> tuple[Array, Array]:
    """Return squared errors, and whether the values are known; unknown errors are zero."""
    value_of = getattr(environment, "value", None)
    if value_of is None:
        return jnp.zeros(()), jnp.zeros(())
    value, known = jax.vmap(lambda state: value_of(state, agent.discount))(states)
    return jnp.where(known, (prediction - value) ** 2, 0), known

"""What a run of an agent compiles: a block of environment steps, with what is measured in them."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from foretrace._learner.optimizer import adam
from foretrace._network import Network
from foretrace._types import Array, Float, Int, PRNGKeyArray
from foretrace.rl._actor_critic import ActorCritic
from foretrace.rl._agent import Agent
from foretrace.rl._config import AgentConfig, RLConfig
from foretrace.rl._environment import Environment, TimeStep, check_environment, each_environment, step_or_reset
from foretrace.rl._method import Method
from foretrace.rl._monitors import Range, spectral_radius, untrained
from foretrace.rl._overshoot import ObGD
from foretrace.rl._q_learning import QLearning
from foretrace.rl._state import AgentInfo, AgentState
from foretrace.rl._step import inputs_of
from foretrace.rl._transition import Transition
from foretrace.rl._value_prediction import ValuePrediction


class World(NamedTuple):
    """Agent and environments between two steps: all that a checkpoint holds.

    Args:
        agent: state of the agent.
        environments: state of each environment.
        transition: what the last action brought, and the observation that each environment shows.
        total: sum of the rewards of the present episode of each environment.
        key: PRNG key of the environments.
    """

    agent: AgentState
    environments: Any
    transition: Transition
    total: Float[Array, "B"]
    key: PRNGKeyArray


class Tally(NamedTuple):
    """Sums over the steps of a block, over all environments; the last three are of the block as a whole.

    Args:
        steps: number of steps.
        episodes: number of episodes that ended.
        returns: sum of their returns, which are sums of rewards without a discount.
        rewards: sum of the rewards.
        td_error: sum of the absolute temporal-difference errors.
        trace_norm: sum of the norms of the traces.
        sensitivity_norm: sum of the norms of the sensitivities.
        step_size: sum of the step sizes.
        update_norm: sum of the norms of the changes of the parameters, once for each environment.
        skipped: number of refused steps.
        squared_error: sum of the squared distances of predictions from what they should be.
        known: number of predictions for which that is known.
        spectral_radius: largest |eigenvalue| of a recurrent layer's step at the end, over all environments.
        dead_modules: share of modules of the recurrent layers whose state did not move.
        untrained_modules: share of modules of the recurrent layers whose coefficients did not change.
    """

    steps: Float[Array, ""]
    episodes: Float[Array, ""]
    returns: Float[Array, ""]
    rewards: Float[Array, ""]
    td_error: Float[Array, ""]
    trace_norm: Float[Array, ""]
    sensitivity_norm: Float[Array, ""]
    step_size: Float[Array, ""]
    update_norm: Float[Array, ""]
    skipped: Float[Array, ""]
    squared_error: Float[Array, ""]
    known: Float[Array, ""]
    spectral_radius: Float[Array, ""]
    dead_modules: Float[Array, ""]
    untrained_modules: Float[Array, ""]


def build(config: RLConfig, key: PRNGKeyArray | None = None) -> Agent:
    """Return the agent that a configuration describes; may be traced.

    Args:
        config: configuration of a run.
        key: PRNG key of the initial parameters. Default: that of the configuration's seed.

    Raises:
        ValueError: sizes, rates or probabilities out of range, or a rule without credit in depth.
    """
    agent, environment, net = config.agent, config.seen, config.network
    actions = environment.action_count
    if actions is None:
        raise ValueError(
            f"{type(config.environment).__name__} has continuous actions; a run chooses among discrete ones"
        )
    outputs = {"prediction": 1, "actor-critic": 1 + actions}
    network = Network(
        environment.observation_size,
        outputs.get(agent.method, actions),
        model_size=net.model_size,
        depth=net.depth,
        cell=net.cell.factory(),
        glu=net.glu,
        norm=net.norm,
        dropout=net.dropout,
        readout_size=net.readout_size,
        cumulative_mean=net.cumulative_mean,
        key=jax.random.key(config.seed) if key is None else key,
    )
    bounded = agent.optimizer == "obgd"
    options: dict[str, Any] = {
        "rule": config.rule,
        "discount": agent.discount,
        "trace_decay": agent.trace_decay,
        "optimizer": ObGD(agent.step_size, agent.kappa) if bounded else adam(agent.step_size),
        "normalize_observations": agent.normalize_observations,
        "scale_rewards": agent.scale_rewards,
        "batch_size": config.environments,
    }
    return Agent(network, method_of(agent), **options)


def method_of(config: AgentConfig) -> Method:
    """Return the method of learning that a configuration describes."""
    if config.method == "prediction":
        return ValuePrediction()
    if config.method == "actor-critic":
        return ActorCritic(actor_weight=config.actor_weight, entropy=config.entropy)
    epsilon = optax.linear_schedule(1.0, config.epsilon, config.epsilon_steps)
    return QLearning(epsilon=epsilon, on_policy=config.method == "sarsa")


def begin(environment: Environment, agent: Agent, key: PRNGKeyArray) -> World:
    """Return agent and environments before the first step.

    Raises:
        TypeError, ValueError: an environment without the interface of `Environment`.
    """
    check_environment(environment)
    agent_key, reset_key, key = jax.random.split(key, 3)
    assert agent.batch_size is not None, "a run has a batch of environments"
    keys = jax.random.split(reset_key, agent.batch_size)
    environments, observation = each_environment(environment, environment.reset)(keys)
    nothing = jnp.zeros(keys.shape, observation.dtype)
    no = jnp.zeros(keys.shape, bool)
    # Arrays, since the first transition has the structure of the later ones.
    start = Transition(observation, nothing, no, no, nothing, observation, first=~no)
    world = World(agent.init(agent_key), environments, start, nothing, key)
    # Each array is one of its own, so that all can be donated.
    return jax.tree.map(jnp.copy, world)


def advance(environment: Environment, agent: Agent, world: World, steps: Int[Array, ""] | int) -> tuple[World, Tally]:
    """Act and learn for a number of steps."""

    def step(_: Any, now: tuple[World, Tally, Range]) -> tuple[World, Tally, Range]:
        world, tally = _step(environment, agent, *now[:2])
        return world, tally, now[2].including(world.agent.carry.h)

    zero = jnp.zeros((), world.total.dtype)
    start = (world, Tally(*[zero] * len(Tally._fields)), Range.empty(world.agent.carry.h))
    after, tally, seen = lax.fori_loop(0, steps, step, start)
    state = after.agent
    inputs = inputs_of(state.observations, after.transition.observation)
    radii = jax.vmap(lambda h, x: spectral_radius(state.network, h, x), in_axes=(1, 0))(state.carry.h, inputs)
    return after, tally._replace(
        spectral_radius=radii.max().astype(zero.dtype),
        dead_modules=seen.dead().astype(zero.dtype),
        untrained_modules=untrained(world.agent.network, state.network).astype(zero.dtype),
    )


def _step(environment: Environment, agent: Agent, world: World, tally: Tally) -> tuple[World, Tally]:
    given = world.transition
    if not environment.truncates:
        given = given._replace(truncated=None, final_observation=None)
    action, state, info = agent.step(world.agent, given)
    key, draw = jax.random.split(world.key)
    keys = jax.random.split(draw, world.total.size)
    act = each_environment(environment, partial(step_or_reset, environment))
    environments, step, observation = act(world.environments, action, keys)
    brought = Transition(
        observation,
        step.reward,
        step.terminated,
        step.truncated,
        step.discount,
        final_observation=step.observation,
        first=jnp.zeros_like(step.terminated),
    )
    total, done = world.total + step.reward, step.terminated | step.truncated
    skipped = state.skipped - world.agent.skipped
    error, known = _prediction_error(environment, agent, world.environments, action)
    tally = jax.tree.map(jnp.add, tally, _counted(step, info, total, done, skipped, error, known))
    return World(state, environments, brought, jnp.where(done, 0, total), key), tally


def _counted(
    step: TimeStep, info: AgentInfo, total: Array, done: Array, skipped: Array, error: Array, known: Array
) -> Tally:
    dtype = total.dtype
    return Tally(
        steps=jnp.asarray(total.size, dtype),
        episodes=done.sum(dtype=dtype),
        returns=jnp.where(done, total, 0).sum(),
        rewards=step.reward.sum(),
        td_error=jnp.abs(info.td_error).sum().astype(dtype),
        trace_norm=info.trace_norm.sum().astype(dtype),
        sensitivity_norm=info.sensitivity_norm.astype(dtype),
        step_size=info.step_size.sum().astype(dtype),
        update_norm=(info.update_norm * total.size).astype(dtype),
        skipped=skipped.astype(dtype),
        squared_error=error.astype(dtype),
        known=known.astype(dtype),
        # Known when the block is over.
        spectral_radius=jnp.zeros((), dtype),
        dead_modules=jnp.zeros((), dtype),
        untrained_modules=jnp.zeros((), dtype),
    )


def _prediction_error(environment: Environment, agent: Agent, states: Any, prediction: Array) -> tuple[Array, Array]:
    """Return the sum of squared errors where an environment says what the value is, and their number."""
    value_of = getattr(environment, "value", None)
    if value_of is None:
        return jnp.zeros(()), jnp.zeros(())
    value, known = jax.vmap(lambda state: value_of(state, agent.discount))(states)
    return jnp.where(known, (prediction - value) ** 2, 0).sum(), known.sum()

"""Evaluation of an agent in episodes in which it acts and does not learn."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace._engine.carry import init_carry
from foretrace._engine.forward import forward
from foretrace._recurrence.chunk import Carry
from foretrace._rule import BPTT
from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray
from foretrace.rl._environment import Environment, each_environment, step_or_reset
from foretrace.rl._learning_step import inputs_of, noise_of
from foretrace.rl._options import Options
from foretrace.rl._state import AgentState


class Episodes(NamedTuple):
    """Episodes of an evaluation.

    Args:
        returns: sum of the rewards of each episode, without discount.
        lengths: number of steps of each episode.
    """

    returns: Float[np.ndarray, "N"]
    lengths: Int[np.ndarray, "N"]


class _Play(NamedTuple):
    """An environment between two steps, with its results of at most Q episodes."""

    environment: Any
    observation: Float[Array, "I"]
    carry: Carry | None
    total: Float[Array, ""]
    length: Int[Array, ""]
    ended: Int[Array, ""]
    returns: Float[Array, "Q"]
    lengths: Int[Array, "Q"]
    step: Int[Array, ""]
    finite: Bool[Array, ""]


def play(
    agent: Options,
    environment: Environment,
    most: int,
    greedy: bool,
    state: AgentState,
    wanted: Int[Array, "B"],
    limit: Int[Array, ""],
    key: PRNGKeyArray,
) -> _Play:
    """Act until each environment has finished its episodes, or for `limit` steps."""
    streams = wanted.size
    reset_key, key = jax.random.split(key)

    def each(stream: Array, wanted: Array, reset_key: PRNGKeyArray) -> _Play:
        def step(now: _Play) -> _Play:
            draw, step_key = jax.random.split(jax.random.fold_in(key, now.step))
            x = inputs_of(state.observations, now.observation)[None]
            outputs, carry = forward(state.network, now.carry, x, reset=(now.length == 0)[None])
            output, alone = outputs[0], agent.batch_size is None
            own = draw if alone else jax.random.split(draw, streams)[stream]
            noise = noise_of(agent, state, own)
            action = agent.method.action(output, jnp.zeros_like(noise) if greedy else noise)
            place, after, observation = step_or_reset(
                environment, now.environment, action, jax.random.split(step_key, streams)[stream]
            )
            total, length = now.total + after.reward, now.length + 1
            done = after.terminated | after.truncated
            return _Play(
                place,
                observation,
                carry,
                jnp.where(done, 0, total),
                jnp.where(done, 0, length),
                now.ended + done,
                # Values of the present episode until it ends; beyond the last episode, nothing is
                # written.
                now.returns.at[now.ended].set(total, mode="drop"),
                now.lengths.at[now.ended].set(length, mode="drop"),
                now.step + 1,
                jnp.isfinite(after.reward) & jnp.isfinite(output).all(),
            )

        place, observation = environment.reset(reset_key)
        nothing, zero = jnp.zeros((), observation.dtype), jnp.zeros((), jnp.int32)
        returns, lengths = jnp.zeros(most, nothing.dtype), jnp.zeros(most, jnp.int32)
        carry, yes = init_carry(state.network, BPTT), jnp.array(True)
        return lax.while_loop(
            lambda now: (now.ended < wanted) & (now.step < limit) & now.finite,
            step,
            _Play(place, observation, carry, nothing, zero, zero, returns, lengths, zero, yes),
        )

    return each_environment(environment, each)(
        jnp.arange(streams), wanted, jax.random.split(reset_key, streams)
    )


def episodes_of(played: _Play, wanted: np.ndarray, limit: int) -> Episodes:
    """Return the episodes, ordered by environment.

    Raises:
        ValueError: too few episodes ended, or a reward or output was NaN or infinite.
    """
    if not played.finite.all():
        raise ValueError(
            "evaluate: a reward or an output of the network is NaN or infinite at step "
            f"{int(played.step[~played.finite].min())}"
        )
    ended = np.minimum(played.ended, wanted)
    if (ended < wanted).any():
        raise ValueError(
            f"evaluate: {ended.sum()} of {wanted.sum()} episodes ended within {limit} steps; give "
            "a larger most_steps, or an environment whose episodes end"
        )
    counted = np.arange(played.returns.shape[1]) < wanted[:, None]
    return Episodes(np.asarray(played.returns)[counted], np.asarray(played.lengths)[counted])

"""How good an agent is: episodes in which it acts and does not learn."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace._engine.carry import init_carry
from foretrace._recurrence.chunk import Carry
from foretrace._rule import BPTT
from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray
from foretrace.rl._environment import Environment, each_environment, step_or_reset
from foretrace.rl._learning_step import LearningStep
from foretrace.rl._state import AgentState

STEPS_OF_AN_EPISODE = 10_000
"""Largest number of steps that an evaluation waits for an episode, by default."""


class Episodes(NamedTuple):
    """Episodes of an evaluation.

    Args:
        returns: sums of rewards, without a discount.
        lengths: numbers of steps.
    """

    returns: Float[np.ndarray, "N"]
    lengths: Int[np.ndarray, "N"]


class _Play(NamedTuple):
    """Environments between two steps, and their episodes so far, at most Q of each."""

    environments: Any
    observation: Float[Array, "B I"]
    begins: Bool[Array, "B"]
    carry: Carry | None
    total: Float[Array, "B"]
    length: Int[Array, "B"]
    ended: Int[Array, "B"]
    returns: Float[Array, "B Q"]
    lengths: Int[Array, "B Q"]
    step: Int[Array, ""]
    finite: Bool[Array, ""]


def play(
    learning: LearningStep,
    environment: Environment,
    most: int,
    greedy: bool,
    state: AgentState,
    wanted: Int[Array, "B"],
    limit: Int[Array, ""],
    key: PRNGKeyArray,
) -> _Play:
    """Act until each environment has ended its wanted episodes, or for `limit` steps."""
    streams = wanted.size
    reset_key, key = jax.random.split(key)
    environments, observation = each_environment(environment, environment.reset)(
        jax.random.split(reset_key, streams)
    )
    act_in = each_environment(environment, partial(step_or_reset, environment))

    def step(now: _Play) -> _Play:
        draw, step_key = jax.random.split(jax.random.fold_in(key, now.step))
        action, output, carry = _acted(learning, state, now, draw if not greedy else None)
        environments, after, observation = act_in(
            now.environments, action, jax.random.split(step_key, streams)
        )
        total, length = now.total + after.reward, now.length + 1
        done = after.terminated | after.truncated
        # Beyond the last place nothing is written: further steps of a finished environment are left
        # out.
        place = (jnp.arange(streams), jnp.where(done & (now.ended < wanted), now.ended, most))
        counts = now.ended < wanted
        fine = jnp.isfinite(after.reward) & jnp.isfinite(output).all(-1)
        return _Play(
            environments,
            observation,
            done,
            carry,
            jnp.where(done, 0, total),
            jnp.where(done, 0, length),
            now.ended + done,
            now.returns.at[place].set(total, mode="drop"),
            now.lengths.at[place].set(length, mode="drop"),
            now.step + 1,
            now.finite & (fine | ~counts).all(),
        )

    front, nothing = (
        (streams,) if learning.batch_size is not None else (),
        jnp.zeros(streams, observation.dtype),
    )
    zeros = jnp.zeros(streams, jnp.int32)
    start = _Play(
        environments,
        observation,
        jnp.ones(streams, bool),
        init_carry(state.network, BPTT, *front),
        nothing,
        zeros,
        zeros,
        jnp.zeros((streams, most), nothing.dtype),
        jnp.zeros((streams, most), jnp.int32),
        jnp.zeros((), jnp.int32),
        jnp.array(True),
    )
    return lax.while_loop(
        lambda now: (now.ended < wanted).any() & (now.step < limit) & now.finite, step, start
    )


def _acted(
    learning: LearningStep, state: AgentState, now: _Play, draw: PRNGKeyArray | None
) -> tuple[Array, Array, Carry | None]:
    """Return actions and outputs with a first axis of environments, and the network's carry."""
    alone = learning.batch_size is None
    observation, begins = (
        (now.observation[0], now.begins[0]) if alone else (now.observation, now.begins)
    )
    action, output, carry = learning.act(state, now.carry, observation, begins, draw)
    return (action[None], output[None], carry) if alone else (action, output, carry)


def episodes_of(played: _Play, wanted: np.ndarray, limit: int) -> Episodes:
    """Return the episodes, environment after environment.

    Raises:
        ValueError: too few of them ended, or something was NaN or infinite.
    """
    if not played.finite:
        raise ValueError(
            "evaluate: a reward or an output of the network is NaN or infinite at step "
            f"{int(played.step)}"
        )
    ended = np.minimum(played.ended, wanted)
    if (ended < wanted).any():
        raise ValueError(
            f"evaluate: {ended.sum()} of {wanted.sum()} episodes ended within {limit} steps; give "
            "a larger most_steps, or an environment whose episodes end"
        )
    counted = np.arange(played.returns.shape[1]) < wanted[:, None]
    return Episodes(np.asarray(played.returns)[counted], np.asarray(played.lengths)[counted])

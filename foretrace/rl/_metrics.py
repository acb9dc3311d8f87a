"""Metrics of a run of an agent; a new metric is a line here."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from foretrace._types import Array, Float
from foretrace.rl._environment import TimeStep
from foretrace.rl._learning_step import inputs_of
from foretrace.rl._monitors import dead, spectral_radius, untrained
from foretrace.rl._state import AgentInfo, AgentState

Tally = dict[str, Float[Array, ""]]
"""Sums by name over a block's steps and all environments, and values at its end."""


class Moment(NamedTuple):
    """A step of all environments.

    Args:
        step: what followed the actions.
        info: information about the update.
        total: sums of rewards of the episodes, this step included.
        done: whether the episodes have ended.
        refused: whether the agent has refused the step: 0 or 1.
        error: squared distances of predictions from the values, where these are known; else zeros.
        known: whether the values are known.
    """

    step: TimeStep
    info: AgentInfo
    total: Float[Array, "B"]
    done: Array
    refused: Array
    error: Array
    known: Array


class Block(NamedTuple):
    """Block of steps: agent before and after, next observations, and what moved in the states."""

    before: AgentState
    after: AgentState
    observation: Float[Array, "B I"]
    moved: Any


class Metric(NamedTuple):
    """A number for each block of steps.

    Args:
        name: name in the record.
        title: what it is, in a report.
        of: function of a `Moment`, whose sum over steps and environments is measured; of a monitor,
            function of the `Block`, called at its end.
        share: name of the sum that it is divided by; None for the number itself.
    """

    name: str
    title: str
    of: Callable[[Any], Array]
    share: str | None = "steps"


METRICS = (
    Metric("episodes", "episodes that ended", lambda now: now.done, None),
    Metric(
        "return",
        "return of an episode",
        lambda now: jnp.where(now.done, now.total, 0),
        "episodes",
    ),
    Metric("reward", "reward of a step", lambda now: now.step.reward),
    Metric(
        "td_error", "absolute temporal-difference error", lambda now: jnp.abs(now.info.td_error)
    ),
    Metric("trace_norm", "norm of the traces in value", lambda now: now.info.trace_norm),
    Metric("sensitivity_norm", "norm of the traces in time", lambda now: now.info.sensitivity_norm),
    Metric("step_size", "step size", lambda now: now.info.step_size),
    # The update is one for all environments.
    Metric("update_norm", "norm of an update", lambda now: now.info.update_norm * now.total.size),
    Metric("refused", "refused steps", lambda now: now.refused, None),
    Metric("error", "share of variance not predicted", lambda now: now.error, "known"),
)
"""Sums over steps. The record shows `error` as a share of the values' spread, if known."""

_COUNTS = (
    Metric("steps", "steps", lambda now: jnp.ones_like(now.total), None),
    Metric("known", "known values", lambda now: now.known, None),
)
"""What only divides others."""

MONITORS = (
    Metric(
        "spectral_radius", "largest |eigenvalue| of a layer", lambda end: _radii(end).max(), None
    ),
    Metric(
        "dead_modules",
        "share of modules dead",
        lambda end: dead(end.after.network, end.moved),
        None,
    ),
    Metric(
        "untrained_modules",
        "share of modules untrained",
        lambda end: untrained(end.before.network, end.after.network),
        None,
    ),
)
"""Measurements made once, at the end of a block."""

TITLES = {measured.name: measured.title for measured in (*METRICS, *MONITORS)}
"""What the names in the record mean."""


def empty(dtype: Any) -> Tally:
    """Return the sums of no steps."""
    return {metric.name: jnp.zeros((), dtype) for metric in (*METRICS, *_COUNTS)}


def counted(tally: Tally, now: Moment) -> Tally:
    """Return the sums with one more step."""
    return {
        m.name: tally[m.name] + m.of(now).sum().astype(now.total.dtype)
        for m in (*METRICS, *_COUNTS)
    }


def ended(tally: Tally, block: Block) -> Tally:
    """Return the sums of a block, and the measurements at its end."""
    return tally | {m.name: m.of(block).astype(tally["steps"].dtype) for m in MONITORS}


def means(tally: dict[str, float], spread: float | None) -> dict[str, float]:
    """Return the record's line for a block of steps.

    Args:
        tally: sums over the block, as numbers.
        spread: error of the best constant prediction; None where there is nothing to compare
            predictions with.
    """
    found = {}
    for metric in (*METRICS, *MONITORS):
        share = 1.0 if metric.share is None else tally[metric.share]
        found[metric.name] = tally[metric.name] / share if share else float("nan")
    error = found.pop("error")
    return found if spread is None else found | {"error": error / spread}


def _radii(block: Block) -> Float[Array, "B"]:
    state = block.after
    inputs = inputs_of(state.observations, block.observation)
    return jax.vmap(lambda h, x: spectral_radius(state.network, h, x), in_axes=(1, 0))(
        state.carry.h, inputs
    )

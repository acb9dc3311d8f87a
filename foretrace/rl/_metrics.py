"""Metrics of an agent's run. To add a metric, add a title here and a number in `counted`."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from foretrace._types import Array, Float
from foretrace.rl._environment import TimeStep
from foretrace.rl._monitors import dead, spectral_radius, untrained
from foretrace.rl._state import AgentInfo, AgentState

Tally = dict[str, Float[Array, ""]]
"""Sums over the steps of a block and over all environments, and values at the end, by name."""

SUMS = {
    "episodes": "episodes that ended",
    "return": "return of an episode",
    "reward": "reward of a step",
    "td_error": "absolute temporal-difference error",
    "trace_norm": "norm of the traces in value",
    "sensitivity_norm": "norm of the traces in time",
    "step_size": "step size",
    "update_norm": "norm of an update",
    "refused": "refused steps",
    "error": "share of variance not predicted",
}
"""Titles of the sums. In the record, `error` is divided by the spread of the values."""

MONITORS = {
    "spectral_radius": "largest |eigenvalue| without input",
    "dead_modules": "share of modules dead",
    "untrained_modules": "share of modules untrained",
}
"""Titles of the measurements that are made once, at the end of a block."""

SHARES = dict.fromkeys(("episodes", "refused", *MONITORS)) | {
    "return": "episodes",
    "error": "known",
}
"""Sum by which a metric is divided, if not the number of steps; None for no division."""

TITLES = SUMS | MONITORS
"""Titles of all names in the record."""


def empty(dtype: Any) -> Tally:
    """Return sums over zero steps."""
    return {name: jnp.zeros((), dtype) for name in (*SUMS, "steps", "known")}


def counted(
    tally: Tally,
    step: TimeStep,
    info: AgentInfo,
    total: Float[Array, "B"],
    refused: Array,
    error: Array,
    known: Array,
) -> Tally:
    """Return the sums after one more step of all environments.

    Args:
        tally: sums before the step.
        step: results of the actions.
        info: information about the update.
        total: sums of the rewards of the present episodes, including this step.
        refused: 1 if the agent has refused the step, else 0.
        error: squared differences between predictions and values, zero if a value is unknown.
        known: whether the values are known.
    """
    done = step.terminated | step.truncated
    now = {
        "episodes": done,
        "return": jnp.where(done, total, 0),
        "reward": step.reward,
        "td_error": jnp.abs(info.td_error),
        "trace_norm": info.trace_norm,
        "step_size": info.step_size,
        # These are one number for all environments.
        "sensitivity_norm": info.sensitivity_norm * total.size,
        "update_norm": info.update_norm * total.size,
        "refused": refused,
        "error": error,
        "steps": jnp.ones_like(total),
        "known": known,
    }
    return {name: tally[name] + part.sum().astype(total.dtype) for name, part in now.items()}


def ended(tally: Tally, before: AgentState, after: AgentState, moved: Any) -> Tally:
    """Return the sums of a block, and the measurements at its end.

    Args:
        tally: sums over the block.
        before: state of the agent before the block.
        after: state of the agent at the end of the block.
        moved: whether each number of the recurrent states has changed in the block.
    """
    radius = jax.vmap(partial(spectral_radius, after.network), in_axes=1)
    found = {
        "spectral_radius": radius(after.carry.h).max(),
        "dead_modules": dead(after.network, moved),
        "untrained_modules": untrained(before.network, after.network),
    }
    return tally | {name: value.astype(tally["steps"].dtype) for name, value in found.items()}


def means(tally: dict[str, float], spread: float | None) -> dict[str, float]:
    """Return the line of the record for a block of steps.

    Args:
        tally: sums over the block, as Python numbers.
        spread: error of the best constant prediction; None if there is no such reference.
    """
    found = {}
    for name in TITLES:
        share = SHARES.get(name, "steps")
        count = 1.0 if share is None else tally[share]
        found[name] = tally[name] / count if count else float("nan")
    error = found.pop("error")
    return found if spread is None else found | {"error": error / spread}

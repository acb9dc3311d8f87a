"""A cell over a chunk under a rule: the only file where a rule stops gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from foretrace._cells.abstract import AbstractCell, AbstractDiagonalCell, Coefficients
from foretrace._recurrence.scan import linear_scan, linear_scan_given_states
from foretrace._recurrence.step_scan import depends_on_arguments, error_through_steps, step_scan
from foretrace._rule import LearningRule
from foretrace._types import Array, Bool, Float, Inputs, State, States


def unroll(
    cell: AbstractCell,
    theta: Coefficients,
    h: State,
    xs: Float[Array, "C I"],
    rule: LearningRule,
    reset: Bool[Array, "C"] | None = None,
) -> tuple[States, States]:
    """Run a cell over a chunk.

    Args:
        cell: the recurrence.
        theta: coefficients of the cell.
        h: state before the chunk, with the derivative that `rule` lets pass (see `attach`).
        xs: inputs of the chunk.
        rule: learning rule, which says which paths are differentiated.
        reset: steps that start an episode; their previous state is the initial one.

    Returns:
        `(hs, emitted)`, two results of equal value. `hs` is differentiable through time as the rule
        says. `emitted` is also differentiable in the present input, so that an error reaches the
        layer below at the present step. The readout reads `emitted`.
    """
    hs = states(cell, theta, h, xs, rule, reset)
    if rule.inputs:
        # Errors already reach the inputs of every step through time.
        return hs, hs
    # in_time + (in_space - stop_gradient(in_space)): the error reaches the layer below at the
    # present step, never through time.
    in_space = each_step(cell, lax.stop_gradient(theta), hs, h, xs, reset)
    return hs, straight_through(hs, in_space)


def states(
    cell: AbstractCell,
    theta: Coefficients,
    h: State,
    xs: Inputs,
    rule: LearningRule,
    reset: Bool[Array, "C"] | None = None,
    known: States | None = None,
) -> States:
    """Return the states of a chunk, differentiable through time as the rule says.

    Args:
        cell: the recurrence.
        theta: coefficients of the cell.
        h: state before the chunk.
        xs: inputs of the chunk, in the form that the cell's `step` takes.
        rule: learning rule, which says which paths are differentiated.
        reset: steps that start an episode.
        known: states, if they are known already. Then only their derivative is computed.
    """
    theta = _open(theta, rule)
    # Earlier steps of the layers below are constants, unless the rule differentiates the inputs.
    xs = xs if rule.inputs else lax.stop_gradient(xs)
    if not rule.own:
        # No derivative passes from step to step, so all steps are differentiated at once.
        values = _run(cell, *lax.stop_gradient((theta, h, xs)), rule, reset, known)
        return straight_through(values, each_step(cell, theta, values, h, xs, reset))
    return _run(cell, theta, h, xs, rule, reset, known)


def _run(
    cell: AbstractCell,
    theta: Coefficients,
    h: State,
    xs: Inputs,
    rule: LearningRule,
    reset: Bool[Array, "C"] | None,
    known: States | None,
) -> States:
    if isinstance(cell, AbstractDiagonalCell):
        return _scan_diagonal(cell, theta, h, xs, reset, known)
    hs = step_scan(cell, theta, h, xs, reset) if known is None else lax.stop_gradient(known)
    # Each single step has every derivative except by the state before it, which is added for the
    # chunk as a whole.
    drives = straight_through(hs, each_step(cell, theta, hs, h, xs, reset))
    return error_through_steps(cell, theta, h, past(cell, hs, h, reset), xs, drives, rule, reset)


def each_step(
    cell: AbstractCell,
    theta: Coefficients,
    hs: States,
    h: State,
    xs: Inputs,
    reset: Bool[Array, "C"] | None,
) -> States:
    """Return `step(theta, h_{t-1}, h_{t-1}, x_t)` for each step t separately, h_{t-1} constant."""
    before = past(cell, hs, h, reset)
    return jax.vmap(cell.step, in_axes=(None, 0, 0, 0))(theta, before, before, xs)


def past(cell: AbstractCell, hs: States, h: State, reset: Bool[Array, "C"] | None) -> States:
    """Return the state before each step of a chunk, not differentiated."""
    hs, h, initial = lax.stop_gradient((hs, h, cell.init_state()))
    # (h, h_1, ..., h_{C-1})
    before = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest[:-1]]), h, hs)
    return (
        before
        if reset is None
        else jax.vmap(optax.tree.where, in_axes=(0, None, 0))(reset, initial, before)
    )


def _scan_diagonal(
    cell: AbstractDiagonalCell,
    theta: Coefficients,
    h: State,
    xs: Inputs,
    reset: Bool[Array, "C"] | None,
    known: States | None,
) -> States:
    """Run `h_t = a_t h_{t-1} + b_t`, with the drives of all steps in one product."""
    first = jax.tree.map(lambda leaf: leaf[0], xs)
    # A decay that does not depend on the input is the same at every step: N numbers instead of C x
    # N.
    [varies] = depends_on_arguments(lambda x: cell.decay_and_drive(theta, x)[0], first)
    a, bs = jax.vmap(cell.decay_and_drive, in_axes=(None, 0), out_axes=(0 if varies else None, 0))(
        theta, xs
    )
    if reset is not None:
        # A start is a zero past, plus the decayed initial state in the drive.
        decayed = jnp.broadcast_to(a, bs.shape) * lax.stop_gradient(cell.init_state())[None]
        bs = bs + jnp.where(reset[:, None], decayed, 0)
    return (
        linear_scan(a, bs, h, reset)
        if known is None
        else linear_scan_given_states(a, bs, h, reset, known)
    )


def _open(theta: Coefficients, rule: LearningRule) -> Coefficients:
    if not rule.trains_cells:
        return lax.stop_gradient(theta)
    return theta if rule.recurrent else theta._replace(recurrent=lax.stop_gradient(theta.recurrent))


@jax.custom_jvp
def straight_through(value: Any, gradient_of: Any) -> Any:
    """Return `value` with both tangents: `value + (gradient_of - stop_gradient(gradient_of))`.

    Only the tangent of `gradient_of` is used. Its value need not even be computed, and `value`
    stays exact.
    """
    return value


@straight_through.defjvp
def _straight_through_jvp(primals: tuple, tangents: tuple) -> tuple:
    return primals[0], jax.tree.map(jnp.add, *tangents)

"""Scan of a one-step recurrence, `h_t = step(theta, h_{t-1}, h_{t-1}, x_t)`, and its derivative.

As for the linear scan, the states are computed first and the derivative is built from them, so that
no step runs forward twice. All products that do not depend on another step are computed for all
steps at once. The gradient of the weights is therefore one large product, instead of a sum that
grows in a loop. Only the error is passed from step to step.
"""

from typing import Any

import equinox as eqx
import jax
import jax.extend
import jax.numpy as jnp
import optax
from jax import lax

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._recurrence.scan import kept
from foretrace._rule import LearningRule
from foretrace._types import Array, Bool, Inputs, State, States


def step_scan(
    cell: AbstractCell, theta: Coefficients, h: State, xs: Inputs, reset: Bool[Array, "C"] | None
) -> States:
    """Return the states of a chunk, without a derivative.

    Args:
        cell: the recurrence.
        theta: coefficients of the cell.
        h: state before the chunk.
        xs: inputs of the chunk.
        reset: steps that start an episode; their previous state is the initial one.
    """
    theta, h, xs, initial = lax.stop_gradient((theta, h, xs, cell.init_state()))

    def step(h: State, now: tuple) -> tuple[State, State]:
        x, start = now
        if start is not None:
            h = optax.tree.where(start, initial, h)
        h = cell.step(theta, h, h, x)
        return h, h

    hs = lax.scan(step, h, (xs, reset))[1]
    return jax.tree.map(kept, hs)


def error_through_steps(
    cell: AbstractCell,
    theta: Coefficients,
    h: State,
    before: States,
    xs: Inputs,
    hs: States,
    rule: LearningRule,
    reset: Bool[Array, "C"] | None,
) -> States:
    """Return `hs` with errors that also reach earlier steps, along the paths of the rule.

    The error of step t is `mu_t = δ_t + (dh_{t+1}/dh_t)^T mu_{t+1}`. This error is passed to
    `hs[t]`, which holds the derivative of the step with respect to everything except the previous
    state. The error of the first step is passed to the state before the chunk.

    Args:
        cell: the recurrence.
        theta: coefficients of the cell.
        h: state before the chunk, with the derivative that the rule lets pass.
        before: state before each step.
        xs: inputs of the chunk.
        hs: states of the chunk, each differentiable in everything except the previous state.
        rule: learning rule. Without `others`, the states of other modules are constants.
        reset: steps that start an episode. Errors do not pass from such a step to the step before.
    """
    arrays, static = eqx.partition(cell, eqx.is_array)

    @jax.custom_vjp
    def through(hs: States, h: State, constants: tuple) -> States:
        return hs

    def forward(hs: States, h: State, constants: tuple) -> tuple[States, tuple]:
        return hs, constants

    def backward(constants: tuple, deltas: States) -> tuple:
        arrays, theta, before, xs, reset = constants
        step_errors = _transposed_steps(eqx.combine(arrays, static), theta, before, xs, rule)

        def back(later: State, now: tuple) -> tuple[State, State]:
            delta, varying, start = now
            mu = jax.tree.map(jnp.add, delta, later)
            earlier = step_errors.apply(varying, mu)
            if start is not None:
                earlier = optax.tree.where(start, jax.tree.map(jnp.zeros_like, earlier), earlier)
            return earlier, mu

        none = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), deltas)
        to_h, mus = lax.scan(back, none, (deltas, step_errors.varying, reset), reverse=True)
        return mus, to_h, None

    through.defvjp(forward, backward)
    return through(hs, h, lax.stop_gradient((arrays, theta, before, xs, reset)))


class _TransposedSteps(eqx.Module):
    """Maps of an error from each step's state to the state before the step.

    Args:
        varying: numbers of the maps that differ from step to step, with axis C in front.
        constant: numbers that are equal at all steps, such as weights.
        varies: for each number, in the order of `structure`, whether it varies.
        structure: tree structure of the vector-Jacobian product of one step.
    """

    varying: list[Array]
    constant: list[Array]
    varies: tuple[bool, ...] = eqx.field(static=True)
    structure: Any = eqx.field(static=True)

    def apply(self, varying: list[Array], mu: State) -> State:
        """Return the error of the state before the step to which `varying` belongs."""
        here, shared = iter(varying), iter(self.constant)
        leaves = [next(here if varies else shared) for varies in self.varies]
        (earlier,) = self.structure.unflatten(leaves)(mu)
        return earlier


def _transposed_steps(
    cell: AbstractCell, theta: Coefficients, before: States, xs: Inputs, rule: LearningRule
) -> _TransposedSteps:
    structure = None

    def numbers(h: State, x: Any) -> list[Array]:
        nonlocal structure
        # Both arguments are the same state. Without `others`, the second is a constant.
        _, pull = jax.vjp(
            lambda h: cell.step(theta, h, h if rule.others else lax.stop_gradient(h), x), h
        )
        leaves, structure = jax.tree.flatten(pull)
        return leaves

    first = jax.tree.map(lambda leaf: leaf[0], (before, xs))
    varies = [bool(places) for places in depends_on_arguments(numbers, *first)]
    leaves = jax.vmap(numbers, out_axes=[0 if each else None for each in varies])(before, xs)
    varying = [leaf for leaf, each in zip(leaves, varies, strict=True) if each]
    constant = [leaf for leaf, each in zip(leaves, varies, strict=True) if not each]
    return _TransposedSteps(varying, constant, tuple(varies), structure)


def depends_on_arguments(function: Any, *args: Any) -> list[set[int]]:
    """Return, for each leaf of a function's result, the leaves of the arguments it depends on.

    The leaves are given by their places. A nested program counts as depending on everything that
    it reads.
    """
    jaxpr = jax.make_jaxpr(function)(*args).jaxpr
    reads = {variable: {place} for place, variable in enumerate(jaxpr.invars)}

    def of(variables: Any) -> set[int]:
        known = [v for v in variables if isinstance(v, jax.extend.core.Var)]
        return set().union(*(reads.get(v, ()) for v in known))

    for equation in jaxpr.eqns:
        reads |= dict.fromkeys(equation.outvars, of(equation.invars))
    return [of([v]) for v in jaxpr.outvars]

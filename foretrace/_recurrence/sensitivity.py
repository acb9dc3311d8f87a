"""The sensitivity e = dh/dtheta: the effect of the past on a state, without storing the past.

(The literature also calls it the eligibility trace.) The entry e[n, ...] is the derivative of
module n's own state with respect to the coefficient theta[n, ...]. A dense layer under `RTRL`
instead carries the derivative of every module's state with respect to every coefficient. Each
stream has its own sensitivity.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cells.abstract import AbstractCell, Coefficients, shapes
from foretrace._recurrence.step_scan import depends_on_arguments
from foretrace._recurrence.unroll import states
from foretrace._rule import LearningRule
from foretrace._types import Array, Bool, Inexact, Inputs, PyTree, Sensitivity, State, States


def is_full(cell: AbstractCell, rule: LearningRule) -> bool:
    """Return whether a rule needs each module's derivative with respect to every coefficient."""
    return rule.others and not cell.independent


def init_sensitivity(cell: AbstractCell, rule: LearningRule) -> Sensitivity | None:
    """Return the sensitivity before the first step, which is zero; None if the rule carries none.

    The result has a tree of coefficients for each leaf of the state. A coefficient that the leaf
    never depends on is None there: for example, in `Beside`, one of another cell. If `is_full`,
    every array has one more module axis in front.
    """
    if not rule.carried:
        return None
    theta, h, _ = given = shapes(cell)
    coefficients, structure = jax.tree.flatten(theta)
    # A full sensitivity has an axis for the state's module, in front of the axis of the
    # coefficient's module.
    full = is_full(cell, rule)

    def zeros(leaf: jax.ShapeDtypeStruct, reached: set[int]) -> Coefficients:
        front = leaf.shape if full else ()
        return structure.unflatten(
            jnp.zeros(front + c.shape, jnp.result_type(c, leaf)) if place in reached else None
            for place, c in enumerate(coefficients)
        )

    leaves, states_of = jax.tree.flatten(h)
    return states_of.unflatten(map(zeros, leaves, _reached(cell, given)))


def _reached(cell: AbstractCell, given: tuple[Any, Any, Any]) -> list[set[int]]:
    """Return, for each leaf of the state, the places of the coefficients it can depend on.

    Args:
        cell: the recurrence.
        given: shapes of its coefficients, state and input.
    """

    def step(theta: Coefficients, h: State, x: Array) -> State:
        return cell.step(theta, h, h, x)

    # In one step, and then through the leaves of the state before.
    found, first = depends_on_arguments(step, *given), len(jax.tree.leaves(given[0]))
    for _ in found:
        found = [at.union(*(of for k, of in enumerate(found) if first + k in at)) for at in found]
    return found


@jax.custom_jvp
def attach(h: State, e: Sensitivity, theta: PyTree[Inexact[Array, "..."]]) -> State:
    """Return a state as a function of the parameters `theta`, with value h and Jacobian e.

        h + sum_j e_j * (theta_j - stop_gradient(theta_j))

    Plain automatic differentiation of a chunk's loss then contains `sum_t delta_t e_t` (Eq. 5 and
    7). The value of the result is h itself.
    """
    return h


@attach.defjvp
def _attach_jvp(primals: tuple, tangents: tuple) -> tuple:
    h, e, _ = primals
    dh, _, dtheta = tangents

    # The error is multiplied by a sum over all of the past, so this product is never rounded,
    # whatever precision is set for products.
    exact = lax.Precision.HIGHEST

    def moved(d: Array, jacobian: Any) -> Array:
        for j, dt in zip(_with_absent(jacobian), _with_absent(dtheta), strict=True):
            if j is None:
                continue
            full, dt = j.ndim > dt.ndim, dt.astype(j.dtype)
            if full:
                # Every module depends on all coefficients.
                d = d + jnp.tensordot(j, dt, dt.ndim, precision=exact)
            else:
                # Module n depends on its own coefficients theta[n] only.
                d = d + jnp.sum(j * dt, axis=tuple(range(1, j.ndim)))
        return d

    return h, jax.tree.map(moved, dh, e)


def absent(leaf: Any) -> bool:
    """Say whether a place of a sensitivity has none."""
    return leaf is None


def _with_absent(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=absent)


def advance(
    cell: AbstractCell,
    theta: Coefficients,
    h: State,
    e: Sensitivity,
    xs: Inputs,
    hs: States,
    rule: LearningRule,
    reset: Bool[Array, "C"] | None = None,
) -> Sensitivity:
    """Return the sensitivity after a chunk, by vector-Jacobian products of the chunk itself.

    If all modules are independent, one cotangent of ones on a state dimension gives all their
    derivatives at once, because no two modules share a coefficient. A full sensitivity needs one
    cotangent for each module. For an LRU, the result is the matrix product `e_B <- lam^C e_B +
    sum_s lam^(C-1-s) x_s^T`.

    Args:
        cell: the recurrence.
        theta: coefficients of the cell.
        h: state before the chunk.
        e: sensitivity of that state.
        xs: inputs of the chunk.
        hs: states of the chunk as `unroll` returned them.
        rule: learning rule, which says which paths are differentiated.
        reset: steps that start an episode, where the sensitivity becomes zero.
    """
    # Inside the chunk, errors may pass through the inputs (HYBRID). The sensitivity to the layer's
    # own coefficients does not.
    theta, h, e, xs, hs = lax.stop_gradient((theta, h, e, xs, hs))

    # e' = (dh'/dh) e + dh'/dtheta: both terms in one product, because e is attached to the state
    # before the chunk.
    def last(theta: Coefficients) -> State:
        return jax.tree.map(
            lambda x: x[-1], states(cell, theta, attach(h, e, theta), xs, rule, reset, known=hs)
        )

    value, pull = jax.vjp(last, theta)
    leaves, structure = jax.tree.flatten(value)
    rows = []
    for k, leaf in enumerate(leaves):

        def row(cotangent: Array, k: int = k) -> Coefficients:
            return pull(one_leaf_cotangent(value, k, cotangent))[0]

        # sum_n dh'_n/dtheta[m] is dh'_m/dtheta[m], because no other module depends on theta[m].
        ones = jnp.ones_like(leaf)
        rows.append(jax.vmap(row)(jnp.diag(ones)) if is_full(cell, rule) else row(ones))
    return jax.tree.map(
        lambda old, new: None if old is None else new, e, structure.unflatten(rows), is_leaf=absent
    )


def one_leaf_cotangent(state: State, k: int, cotangent: Array) -> State:
    """Return a cotangent that is zero except in leaf k."""
    leaves, structure = jax.tree.flatten(state)
    return structure.unflatten(
        [cotangent if i == k else jnp.zeros_like(leaf) for i, leaf in enumerate(leaves)]
    )


def own_derivatives(function: Callable[[State], State], h: State) -> list[State]:
    """Return the derivative of each module's new state with respect to its own old state.

    function: function from the states of all modules to their next states, in which no module reads
    the state of another module.
            another.
        h: states of the modules.
    """
    value, pull = jax.vjp(function, h)
    # Modules are independent, so a cotangent of ones gives all their derivatives at once.
    ones = enumerate(map(jnp.ones_like, jax.tree.leaves(value)))
    return [pull(one_leaf_cotangent(value, k, one))[0] for k, one in ones]

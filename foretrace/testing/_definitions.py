"""Reference definitions of the rules, by full Jacobians and loops.

They do not use the package's unrolling, scans or sensitivities, and the package does not use them.
Their cost grows with N * |theta| * T, so they are only for small sizes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._network import Network
from foretrace._rule import BPTT, RTRL, SNAP1, LearningRule
from foretrace._types import Array, Bool, Float, Inexact, Sensitivity, States


def plain_states(
    cell: AbstractCell,
    theta: Coefficients,
    xs: Float[Array, "T I"],
    reset: Bool[Array, "T"] | None = None,
) -> States:
    """Run `h_t = step(theta, h_{t-1}, h_{t-1}, x_t)` step by step from the initial state."""
    initial = cell.init_state()
    starts = jnp.zeros(len(xs), bool) if reset is None else reset

    def step(h: Any, now: tuple) -> tuple[Any, Any]:
        x, start = now
        h = optax.tree.where(start, initial, h)
        h = cell.step(theta, h, h, x)
        return h, h

    return lax.scan(step, initial, (xs, starts))[1]


def snap1_by_definition(
    cell: AbstractCell, xs: Float[Array, "T I"], reset: Bool[Array, "T"] | None = None
) -> Sensitivity:
    """Return SnAp-1's sensitivities after every step, from full Jacobians and the one-step mask.

        S_t = M * (D_t S_{t-1} + I_t),  D_t = dh_t/dh_{t-1},  I_t = dh_t/dtheta at fixed h_{t-1}

    M keeps only the states that a coefficient reaches in one step, the states of its own module.

    Args:
        cell: the recurrence.
        xs: inputs.
        reset: steps that start an episode.

    Returns:
        One `Coefficients` for each array of the state; its own arrays are (T, N, ...). The entry
        [t, n, ...] is the derivative of module n's state after step t with respect to its own
        coefficient [n, ...].

    Source: Menick et al., Practical real time recurrent learning with a sparse approximation, ICLR
        2021, Eq. 4.
    """
    n = np.arange(cell.state_size)
    full = _unflatten(cell, sensitivities_by_definition(cell, xs, SNAP1, reset))
    return jax.tree.map(lambda leaf: leaf[:, n, n], full)


def rtrl_by_definition(
    cell: AbstractCell, xs: Float[Array, "T I"], reset: Bool[Array, "T"] | None = None
) -> Sensitivity:
    """Return the full sensitivities after every step, `J_t = D_t J_{t-1} + I_t`.

    Args:
        cell: the recurrence.
        xs: inputs.
        reset: steps that start an episode.

    Returns:
        One `Coefficients` for each array of the state; its own arrays are (T, N, N, ...). The entry
        [t, m, n, ...] is the derivative of module m's state after step t with respect to the
        coefficient [n, ...].

    Source: Williams and Zipser, Neural Computation 1, 1989.
    """
    return _unflatten(cell, sensitivities_by_definition(cell, xs, RTRL, reset))


class Open(NamedTuple):
    """The parts of a rule as booleans, which may be arguments of a compiled program."""

    recurrent: Any
    own: Any
    others: Any
    trains_cells: Any
    credit: None = None


def sensitivities_by_definition(
    cell: AbstractCell,
    xs: Float[Array, "T I"],
    rule: LearningRule,
    reset: Bool[Array, "T"] | None = None,
) -> Inexact[Array, "T K P"]:
    """Return a rule's sensitivities as a matrix: K state numbers (leaf by leaf), P coefficients."""
    reset = jnp.zeros(len(xs), bool) if reset is None else reset
    theta, unravel_theta = ravel_pytree(cell.coefficients())
    before, unravel = _states_before(cell, xs, reset)

    def step(theta: Array, h: Array, x: Array) -> Array:
        return ravel_pytree(cell.step(unravel_theta(theta), unravel(h), unravel(h), x))[0]

    jacobian = jax.jacrev(step, (0, 1), holomorphic=jnp.iscomplexobj(before))
    immediate, D = jax.vmap(jacobian, in_axes=(None, 0, 0))(theta, before, xs)
    immediate = jnp.where(rule.recurrent | ~jnp.asarray(_is_recurrent(cell)), immediate, 0)
    own = jnp.asarray(
        modules_of(cell.init_state())[:, None] == modules_of(cell.coefficients())[None]
    )

    def advance(J: Array, now: tuple) -> tuple[Array, Array]:
        immediate, D, start = now
        J = jnp.where(rule.own & ~start, D @ J, 0) + immediate
        J = jnp.where(rule.others | own, J, 0)
        return J, J

    return lax.scan(advance, jnp.zeros_like(immediate[0]), (immediate, D, reset))[1]


def gradient_by_definition(
    network: Network,
    xs: Float[Array, "T I"],
    ys: Array,
    *,
    rule: LearningRule,
    loss: Callable[[Array, Array], Float[Array, ""]],
    mask: Array | None = None,
    reset: Bool[Array, "T"] | None = None,
) -> tuple[Float[Array, ""], Network]:
    """Return loss and gradient of a whole sequence under a rule, as sums of error x sensitivity.

        dL/dtheta = sum_t delta_t S_t,  delta_t = dL_t/dh_t through the layers above, only at step t

    `BPTT` is plain automatic differentiation of the plain recurrence. `HYBRID` has no separate
    definition: with chunks of one step it equals `SNAP1`, and on a whole sequence of independent
    modules it equals `BPTT`.

    Raises:
        ValueError: the rule has a credit depth, which this definition does not cover.
    """
    if rule.credit is not None:
        raise ValueError(
            f"{rule}: errors here go up at the present step alone; give a rule without credit"
        )
    states = plain_states if rule == BPTT else partial(_states_in_space, rule)

    def total(network: Network) -> Array:
        x = jax.vmap(network.encoder)(xs)
        for i in range(network.depth):
            block = network.block(i)
            cell = optax.tree.where(rule.trains_cells, block.cell, lax.stop_gradient(block.cell))
            zs = jax.vmap(block.before)(x)
            hs = states(cell, cell.coefficients(), zs, reset)
            out = jax.vmap(cell.readout)(hs, zs)
            x = jax.vmap(lambda x, y, block=block: block.after(x, y, None))(x, out)
        losses = jax.vmap(loss)(jax.vmap(network.decoder)(x), ys)
        return jnp.sum(losses if mask is None else losses * mask)

    return jax.value_and_grad(total)(network)


def finite_difference(f: Callable[[Any], Any], at: Any, direction: Any, step: float = 1e-3) -> Any:
    """Return the derivative of f along a direction, by the central difference of order six.

    sum_k c_k (f(at + k step direction) - f(at - k step direction)) / step,  c = (45, -9, 1) / 60
    """
    amounts = step * jnp.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
    weights = jnp.array([-1.0, 9.0, -45.0, 45.0, -9.0, 1.0]) / (60 * step)

    def moved(amount: Array) -> Any:
        return f(jax.tree.map(lambda leaf, d: leaf + amount.astype(d.dtype) * d, at, direction))

    return jax.tree.map(
        lambda v: jnp.tensordot(weights.astype(v.dtype), v, 1), jax.vmap(moved)(amounts)
    )


def _states_in_space(
    rule: LearningRule, cell: AbstractCell, theta: Coefficients, xs: Array, reset: Array | None
) -> States:
    """Return states that depend on the present input and, by sensitivities, on the coefficients."""
    # stop_gradient comes first, because otherwise derivatives of constants would be traced.
    constant, closed, inputs = lax.stop_gradient((cell, theta, xs))
    J = sensitivities_by_definition(constant, inputs, rule, reset)
    before, unravel = _states_before(constant, inputs, reset)

    def now(h: Array, J: Array, x: Array) -> Any:
        here = ravel_pytree(cell.step(closed, unravel(h), unravel(h), x))[0]
        return unravel(here + J @ (ravel_pytree(theta)[0] - ravel_pytree(closed)[0]))

    return jax.vmap(now)(before, J, xs)


def _states_before(
    cell: AbstractCell, xs: Array, reset: Array | None
) -> tuple[Array, Callable[[Array], Any]]:
    """Return the flat state before each step, and a function that unflattens a state."""
    initial, unravel = ravel_pytree(cell.init_state())
    hs = jax.vmap(lambda h: ravel_pytree(h)[0])(plain_states(cell, cell.coefficients(), xs, reset))
    before = jnp.concatenate([initial[None], hs[:-1]])
    return before if reset is None else jnp.where(reset[:, None], initial[None], before), unravel


def _unflatten(cell: AbstractCell, J: Inexact[Array, "T K P"]) -> Sensitivity:
    leaves, structure = jax.tree.flatten(cell.init_state())
    unravel = ravel_pytree(cell.coefficients())[1]
    rows = jnp.split(J, len(leaves), axis=1)
    return structure.unflatten([jax.vmap(jax.vmap(unravel))(block) for block in rows])


def modules_of(tree: Any) -> np.ndarray:
    """Return, for each entry of the flattened tree, the module to which it belongs."""
    return np.concatenate(
        [np.repeat(np.arange(len(a)), a.size // len(a)) for a in jax.tree.leaves(tree)]
    )


def _is_recurrent(cell: AbstractCell) -> np.ndarray:
    theta = cell.coefficients()
    groups = (theta.recurrent, True), (theta.feedforward, False)
    return np.concatenate(
        [np.full(leaf.size, yes) for group, yes in groups for leaf in jax.tree.leaves(group)]
    )

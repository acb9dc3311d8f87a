"""Find the parameters that a rule cannot train, from the trace of one layer."""

from functools import partial

import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractCell
from foretrace._network import AbstractNetwork
from foretrace._recurrence.sensitivity import attach, init_sensitivity
from foretrace._recurrence.step_scan import depends_on_arguments
from foretrace._recurrence.unroll import unroll
from foretrace._rule import LearningRule, as_rule


def untrained_parameters(network: AbstractNetwork, rule: LearningRule | str) -> list[str]:
    """Return the names of the parameters whose gradient is structurally zero under a rule.

    Only cells are checked, because parameters outside the recurrent layers always receive at least
    the error of the present step. A parameter is untrained if its gradient does not depend on the
    errors of the layer's outputs.

    >>> import foretrace as ft, jax
    >>> network = ft.Network(
    ...     2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0)
    ... )
    >>> untrained_parameters(network, ft.SPATIAL)
    ['blocks.cell.nu_log', 'blocks.cell.theta_log']
    """
    rule = as_rule(rule)
    of_cells = partial(
        jax.tree.leaves_with_path, is_leaf=lambda node: isinstance(node, AbstractCell)
    )
    places = [path for path, leaf in of_cells(network) if isinstance(leaf, AbstractCell)]
    cells = of_cells(jax.eval_shape(partial(jax.tree.map, lambda leaf: leaf[0]), network.cells))
    return [
        name
        for place, (_, cell) in zip(places, cells, strict=True)
        for name in _untrained_of(cell, rule, jax.tree_util.keystr(place).removeprefix("."))
    ]


def _untrained_of(cell: AbstractCell, rule: LearningRule, place: str) -> list[str]:
    # Two steps, so that the second step has a past.
    xs = jnp.zeros((2, cell.input_size))
    errors = jnp.zeros((2, cell.output_size))

    def gradient(errors: jax.Array) -> AbstractCell:
        def project(cell: AbstractCell) -> jax.Array:
            closed = cell if rule.trains_cells else jax.lax.stop_gradient(cell)
            theta, h, e = closed.coefficients(), closed.init_state(), init_sensitivity(closed, rule)
            h = h if e is None else attach(h, e, theta)
            _, emitted = unroll(closed, theta, h, xs, rule)
            return jnp.vdot(jax.vmap(closed.readout)(emitted, xs), errors)

        # The values of the parameters do not matter.
        return jax.grad(project)(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), cell))

    # The gradient is linear in the errors: a gradient that does not depend on them is zero.
    reached = depends_on_arguments(gradient, errors)
    paths = [path for path, _ in jax.tree.leaves_with_path(cell)]
    return [
        f"{place}{jax.tree_util.keystr(p)}"
        for p, hit in zip(paths, reached, strict=True)
        if not hit
    ]

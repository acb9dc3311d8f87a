"""A step's scan has the derivative of the written-out loop, and runs forward once."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from jax import lax
from tiers import fast

import foretrace as ft
from foretrace._recurrence.unroll import states

STEPS = 6


class Begun(ft.MinGRU):
    """A linear scan that does not begin at zero."""

    def init_state(self):
        return jnp.full(self.state_size, 0.3)


# Every cell whose recurrence is no linear scan: dense, of two state dimensions, with a spike.
STEPPED = ("begun", "gru", "lstm", "tanh", "linear", "indrnn", "lif")


def loop(cell, theta, h, xs, rule, reset):
    hs = []
    for t in range(STEPS):
        if reset is not None:
            start = cell.init_state()
            h = jax.tree.map(lambda new, old, t=t: jnp.where(reset[t], new, old), start, h)
        h = cell.step(theta, h, h if rule.others else lax.stop_gradient(h), xs[t])
        hs.append(h)
    return jax.tree.map(lambda *rows: jnp.stack(rows), *hs)


def differentiated(function, *args):
    value, pull = jax.vjp(function, *args)
    deltas = jax.tree.map(
        lambda leaf: jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape), value
    )
    return value, pull(deltas)


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("rule", fast([ft.BPTT, ft.HYBRID], 1), ids=str)
@pytest.mark.parametrize("name", fast(STEPPED, 3))
def test_value_and_derivative_are_those_of_the_loop(name, rule, resets):
    cell = (CELLS | {"begun": Begun.factory()})[name](3, key=jax.random.key(0))
    theta, xs = cell.coefficients(), jax.random.normal(jax.random.key(1), (STEPS, 3))
    h = jax.tree.map(lambda leaf: leaf + 0.3, cell.init_state())
    reset = jnp.arange(STEPS) == 3 if resets else None

    want = jax.jit(partial(differentiated, lambda *args: loop(cell, *args, rule, reset)))(
        theta, h, xs
    )
    got = jax.jit(partial(differentiated, lambda *args: states(cell, *args, rule, reset)))(
        theta, h, xs
    )
    known = want[0]
    again = jax.jit(partial(differentiated, lambda *args: states(cell, *args, rule, reset, known)))(
        theta, h, xs
    )
    for found in (got, again):
        for g, w in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-12)


def test_known_states_are_not_computed_again():
    cell = CELLS["gru"](3, key=jax.random.key(0))
    theta, xs, h = cell.coefficients(), jnp.ones((STEPS, 3)), cell.init_state()
    known = states(cell, theta, h, xs, ft.BPTT)

    def loops(function):
        text = str(jax.make_jaxpr(lambda theta: differentiated(function, theta))(theta))
        return text.count("reverse=False"), text.count("reverse=True")

    assert loops(lambda theta: states(cell, theta, h, xs, ft.BPTT)) == (1, 1)
    assert loops(lambda theta: states(cell, theta, h, xs, ft.BPTT, known=known)) == (0, 1)


def test_weights_are_shared_by_all_steps_on_the_way_back():
    # One copy of a weight for each step would take 1,000 times its memory.
    cell = ft.GRU(8, key=jax.random.key(0))
    theta, h = cell.coefficients(), cell.init_state()
    shapes = jax.make_jaxpr(
        lambda xs: differentiated(lambda xs: states(cell, theta, h, xs, ft.BPTT), xs)
    )
    largest = max(
        v.aval.size for equation in shapes(jnp.ones((1000, 8))).jaxpr.eqns for v in equation.outvars
    )
    assert largest <= 1000 * 3 * 8

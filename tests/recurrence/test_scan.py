"""A chunk is the written-out loop of its steps, in value and derivative."""

from functools import partial
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from gradients import filled
from jax import lax
from tiers import fast

import foretrace as ft
from foretrace._cells.abstract import AbstractDiagonalCell
from foretrace._recurrence import scan
from foretrace._recurrence.unroll import states

METHODS = get_args(scan.Method)


class Begun(ft.MinGRU):
    """A decay that varies, and a state that does not begin at zero."""

    def init_state(self):
        return jnp.full(self.state_size, 0.3)


# A constant complex decay, a dense layer, two state dimensions; a spike and what else is a loop.
STEPPED = ("lru", "begun", "gru", "lstm", "tanh", "lif")
RESETS = {"at once": [1, 0, 1, 0, 0], "whole": [0] * 5, "a step": [0], "inside": [0, 0, 0, 1, 0]}


def loop(cell, theta, h, xs, rule, reset):
    hs = []
    for x, start in zip(xs, [False] * len(xs) if reset is None else reset, strict=True):
        h = jax.tree.map(partial(jnp.where, start), cell.init_state(), h)
        h = cell.step(theta, h, h if rule.others else lax.stop_gradient(h), x)
        hs.append(h)
    return jax.tree.map(lambda *rows: jnp.stack(rows), *hs)


def differentiated(function, *args):
    """Return the value of a function and what some error of it pulls back, as one program."""

    def both(*args):
        value, pull = jax.vjp(function, *args)
        errors = jax.tree.map(
            lambda leaf: jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape).astype(leaf.dtype),
            value,
        )
        return value, pull(errors)

    return jax.jit(both)(*args)


@pytest.mark.parametrize("resets", fast(list(RESETS)))
@pytest.mark.parametrize("rule", fast([ft.BPTT, ft.HYBRID]), ids=str)
@pytest.mark.parametrize("name", fast(STEPPED, 4))
def test_value_and_derivative_are_those_of_the_loop(name, rule, resets, monkeypatch):
    """By every method of a linear scan, and where the states are known."""
    cell = filled(lambda: (CELLS | {"begun": Begun.factory()})[name](3, key=jax.random.key(0)))
    reset = jnp.asarray(RESETS[resets], bool) if any(RESETS[resets]) else None
    xs = jnp.asarray(np.random.default_rng(1).normal(size=(len(RESETS[resets]), 3)))
    h = filled(cell.init_state)
    arguments = cell.coefficients(), h, xs
    want = differentiated(lambda *args: loop(cell, *args, rule, reset), *arguments)
    for method in METHODS if isinstance(cell, AbstractDiagonalCell) else METHODS[:1]:
        monkeypatch.setattr(scan, "platform_method", lambda method=method: method)
        for known in (None, want[0]):
            got = differentiated(
                lambda *args, known=known: states(cell, *args, rule, reset, known), *arguments
            )
            for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
                np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_start_forgets_an_infinite_past(method):
    """A state that overflowed must not reach the next episode as 0 * inf."""
    a, b, h = jnp.array([2.0]), jnp.ones((3, 1)), jnp.array([jnp.inf])
    hs = scan.linear_scan(a, b, h, jnp.array([True, False, True]), method)
    assert hs[:, 0].tolist() == [1.0, 3.0, 1.0]


def test_weights_are_shared_by_all_steps_on_the_way_back():
    # One copy of a weight for each step would take 1,000 times its memory.
    cell = ft.GRU(8, key=jax.random.key(0))
    run = partial(states, cell, cell.coefficients(), cell.init_state(), rule=ft.BPTT)
    program = jax.make_jaxpr(lambda xs: jax.vjp(run, xs)[1](jnp.ones((1000, 8))))
    with jax.disable_jit(disable=False):  # also where the other tests run without compilation
        equations = program(jnp.ones((1000, 8))).jaxpr.eqns
    assert max(v.aval.size for each in equations for v in each.outvars) <= 1000 * 3 * 8

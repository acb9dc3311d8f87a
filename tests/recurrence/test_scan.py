"""A chunk is the written-out loop of its steps, in value and derivative."""

from functools import partial
from typing import get_args
from unittest import mock

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


# `lru` and `begun` run by linear scans, which do not know the rule.
PAIRS = [(name, ft.BPTT) for name in STEPPED] + [(name, ft.HYBRID) for name in STEPPED[2:]]


def loop(cell, theta, h, xs, rule, reset):
    def step(h, now):
        x, start = now
        h = jax.tree.map(partial(jnp.where, start), cell.init_state(), h)
        h = cell.step(theta, h, h if rule.others else lax.stop_gradient(h), x)
        return h, h

    return lax.scan(step, h, (xs, jnp.zeros(len(xs), bool) if reset is None else reset))[1]


def differentiated(function, *args):
    """Return the value of a function and what some error of it pulls back."""
    value, pull = jax.vjp(function, *args)
    errors = jax.tree.map(
        lambda leaf: jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape).astype(leaf.dtype), value
    )
    return value, pull(errors)


@partial(jax.jit, static_argnames="rule")
def in_every_way(cell, h, xs, reset, rule):
    """Return the loop, and a chunk by every method of a linear scan and with known states."""
    arguments = cell.coefficients(), h, xs
    want, found = differentiated(lambda *args: loop(cell, *args, rule, reset), *arguments), []
    for method in METHODS if isinstance(cell, AbstractDiagonalCell) else METHODS[:1]:
        for known in (None, want[0]):
            with mock.patch.object(scan, "platform_method", return_value=method):
                run = partial(states, cell, rule=rule, reset=reset, known=known)
                found.append(differentiated(run, *arguments))
    return want, found


@pytest.mark.parametrize("resets", fast(list(RESETS)))
@pytest.mark.parametrize(("name", "rule"), fast(PAIRS, 4), ids=str)
def test_value_and_derivative_are_those_of_the_loop(name, rule, resets):
    cell = filled(lambda: (CELLS | {"begun": Begun.factory()})[name](3, key=jax.random.key(0)))
    reset = jnp.asarray(RESETS[resets], bool) if any(RESETS[resets]) else None
    xs = jnp.asarray(np.random.default_rng(1).normal(size=(len(RESETS[resets]), 3)))
    h = filled(cell.init_state)
    want, found = in_every_way(cell, h, xs, reset, rule)
    for got in found:
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

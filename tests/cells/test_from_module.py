"""Modules of other libraries as cells: their analysis is right, and every law holds."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import slow

import foretrace as ft
from foretrace.testing._check import check_cell

KEY = jax.random.key(0)


def call(module, h, x):
    return module(x, h)


@cache
def gru_cell(size, units):
    return ft.FromModule(
        eqx.nn.GRUCell(size, units, key=KEY), call, input_size=size, state_size=units
    )


class Leaky(eqx.Module):
    """Independent units with two state dimensions, kernels with units behind, one common gain."""

    kernel: jax.Array
    decay: jax.Array
    gain: jax.Array

    def __call__(self, x, h):
        fast, slow = h
        fast = jnp.tanh(self.decay[0] * fast - self.decay[1] * slow + x @ self.kernel)
        return fast, self.decay[2] * slow + self.gain * fast


def leaky():
    kernel, decay = map(jnp.asarray, np.random.default_rng(0).random((2, 3, 2)))
    return ft.FromModule(
        Leaky(kernel, decay, jnp.ones(())), call, input_size=3, state_size=2, state_dims=2
    )


@pytest.mark.full
@pytest.mark.parametrize("make", [slow(partial(gru_cell, 2, 3)), leaky])
def test_a_module_obeys_every_law(make):
    """All but the common gain of the leaky units are split by unit."""
    cell = make()
    assert isinstance(hash(jax.tree.structure(cell)), int)  # it is part of what is compiled
    assert cell.independent == (make is leaky)
    assert len(cell.axes) == len(cell.parameters) - (make is leaky)
    check_cell(cell)


def test_parameters_are_split_by_unit_where_they_can_be():
    """One sensitivity for each entry of a split parameter, one for each unit of a shared one."""
    dense, independent = gru_cell(3, 4), leaky()
    assert (dense.independent, independent.independent) == (False, True)
    shapes = jax.tree.map(jnp.shape, jax.eval_shape(dense.coefficients).recurrent)
    square = {"weight_hh": (4, 3, 4), "weight_ih": (4, 3, 3)}
    assert shapes == square | {"bias": (4, 3), "bias_n": (4, 1)}
    shapes = jax.tree.map(jnp.shape, jax.eval_shape(independent.coefficients).recurrent)
    assert shapes == {"kernel": (2, 3, 1), "decay": (2, 3, 1), "gain": (2,)}
    # A square parameter is split along the axis of the units.
    assert {*dict(gru_cell(3, 3).axes).values()} == {0}


def test_the_value_is_the_modules_own():
    module, cell = eqx.nn.GRUCell(3, 4, key=KEY), gru_cell(3, 4)
    assert jax.tree.structure(cell) == jax.tree.structure(gru_cell(3, 4))
    h, x = jnp.array([0.5, -1.0, 2.0, 0.1]), jnp.arange(3.0)
    step = jax.jit(lambda h, x: (cell.step(cell.coefficients(), h, h, x), module(x, h)))
    np.testing.assert_allclose(*step(h, x), atol=1e-14)


@pytest.mark.parametrize(
    ("error", "options", "message"),
    [
        (ValueError, {"state_size": 5}, "must return the next state.*state_size is 5"),
        (ValueError, {"state_dims": 2}, "state_dims 2"),
        (ValueError, {"feedforward": ("weights",)}, "no 'weights' among weight_ih"),
        (ValueError, {"state_size": 0}, "state_size=0"),
        (TypeError, {"module": (jnp.arange(3), jnp.ones(3))}, "is int.*nnx.Param"),
    ],
)
def test_bad_modules(error, options, message):
    given = {"module": eqx.nn.GRUCell(3, 4, key=KEY), "input_size": 3, "state_size": 4} | options
    with pytest.raises(error, match=message):
        ft.FromModule(call=call, **given)

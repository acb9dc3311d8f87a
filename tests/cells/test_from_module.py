"""Modules of other libraries as cells: their analysis is right, and every law holds."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import foretrace as ft
from foretrace.testing._check import check_cell

KEY = jax.random.key(0)


def call(module, h, x):
    return module(x, h)


def gru_cell(size, units, key=KEY):
    return ft.FromModule(
        eqx.nn.GRUCell(size, units, key=key), call, input_size=size, state_size=units
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
    kernel, decay = jax.random.normal(KEY, (3, 2)), jax.random.uniform(KEY, (3, 2))
    return ft.FromModule(
        Leaky(kernel, decay, jnp.ones(())), call, input_size=3, state_size=2, state_dims=2
    )


@pytest.mark.full
def test_a_dense_module_obeys_every_law():
    check_cell(gru_cell(2, 3))


@pytest.mark.full
def test_an_elementwise_module_obeys_every_law():
    check_cell(leaky())


def test_parameters_are_split_by_unit_where_they_can_be():
    """One sensitivity for each entry of a split parameter, one for each unit of a shared one."""
    dense, independent = gru_cell(3, 4), leaky()
    assert (dense.independent, independent.independent) == (False, True)
    shapes = jax.tree.map(jnp.shape, dense.coefficients().recurrent)
    assert shapes == {
        "bias": (4, 3),
        "bias_n": (4, 1),
        "weight_hh": (4, 3, 4),
        "weight_ih": (4, 3, 3),
    }
    shapes = jax.tree.map(jnp.shape, independent.coefficients().recurrent)
    assert shapes == {"kernel": (2, 3, 1), "decay": (2, 3, 1), "gain": (2,)}


def test_a_wide_module_is_split_in_single_precision():
    """A tanh that is flat to the last bit would hide a unit's dependencies."""
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), eqx.nn.GRUCell(2, 128, key=KEY))
    assert len(ft.FromModule(wide, call, input_size=2, state_size=128).axes) == 4


def test_a_state_of_as_many_units_as_inputs_is_not_confused():
    """A square kernel is split along the axis of the units, whichever it is."""
    cells = [gru_cell(3, 3)]
    cells += [
        ft.FromModule(w, lambda w, h, x: jnp.tanh(h + w @ x), input_size=3, state_size=3)
        for w in (jnp.eye(3) + 0.1,)
    ]
    cells += [
        ft.FromModule(w, lambda w, h, x: jnp.tanh(h + x @ w), input_size=3, state_size=3)
        for w in (jnp.eye(3) + 0.1,)
    ]
    assert [dict(cell.axes) for cell in cells[1:]] == [{"": 0}, {"": 1}]
    assert set(dict(cells[0].axes).values()) == {0}


def test_the_value_is_the_modules_own():
    module, cell = eqx.nn.GRUCell(3, 4, key=KEY), gru_cell(3, 4)
    assert jax.tree.structure(cell) == jax.tree.structure(gru_cell(3, 4))
    h, x = jax.random.normal(KEY, (4,)), jnp.arange(3.0)
    np.testing.assert_allclose(cell.step(cell.coefficients(), h, h, x), module(x, h), atol=1e-14)


@pytest.mark.full
def test_flax_linen():
    linen = pytest.importorskip("flax.linen", reason="needs flax: pip install flax")
    module = linen.GRUCell(4, param_dtype=float)
    variables = module.init(KEY, jnp.zeros(4), jnp.zeros(3))
    cell = ft.FromModule(
        variables, lambda v, h, x: module.apply(v, h, x)[0], input_size=3, state_size=4
    )
    assert not cell.independent
    assert {name: axis for name, axis in cell.axes if "kernel" in name} == {
        f"params.{gate}.kernel": 1 for gate in ("hn", "hr", "hz", "in", "ir", "iz")
    }
    assert len(cell.axes) == len(cell.parameters)
    agrees_with_bptt(cell, jax.random.normal(KEY, (4, 3)))


@pytest.mark.full
def test_flax_nnx():
    nnx = pytest.importorskip("flax.nnx", reason="needs flax: pip install flax")
    definition, state, rest = nnx.split(
        nnx.GRUCell(3, 4, param_dtype=float, rngs=nnx.Rngs(0)), nnx.Param, ...
    )

    def step(state, h, x):
        return nnx.merge(definition, state, rest)(h, x)[0]

    cell = ft.FromModule(state, step, input_size=3, state_size=4)
    assert len(cell.axes) == len(cell.parameters)
    agrees_with_bptt(cell, jax.random.normal(KEY, (4, 3)))


def agrees_with_bptt(cell, xs):
    """RTRL by its sensitivities, against backpropagation through the module's own calls."""
    assert isinstance(hash(jax.tree.structure(cell)), int)  # it is part of what is compiled
    e = ft.testing.rtrl_by_definition(cell, xs)
    online = jax.tree.map(lambda leaf: leaf[-1].sum(axis=0), e).recurrent

    def last(parameters):
        h = cell.init_state()
        for x in xs:
            h = cell._call(parameters, h, x)
        return h.sum()

    want = (
        eqx.tree_at(lambda c: c.parameters, cell, jax.grad(last)(cell.parameters))
        .coefficients()
        .recurrent
    )
    for name, leaf in want.items():
        np.testing.assert_allclose(online[name], leaf, atol=1e-10)


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
    module = options.pop("module", None) or eqx.nn.GRUCell(3, 4, key=KEY)
    options = {"input_size": 3, "state_size": 4} | options
    with pytest.raises(error, match=message):
        ft.FromModule(module, call, **options)

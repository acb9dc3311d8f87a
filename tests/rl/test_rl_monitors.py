"""Monitors of a run: eigenvalues of the memory, and modules that do nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from tiers import fast

import foretrace as ft
from foretrace.rl._monitors import Range, spectral_radius, untrained


def largest(cell, h, z):
    """Return the spectral radius of a cell's step by its definition."""
    theta = cell.coefficients()
    jacobian = jax.jacfwd(lambda h: cell.step(theta, h, h, z), holomorphic=jnp.iscomplexobj(h))(h)
    return np.abs(np.linalg.eigvals(np.asarray(jacobian))).max()


@pytest.mark.parametrize("make", fast([ft.LRU, ft.LinearRNN, ft.GRU, ft.MinGRU]))
def test_the_spectral_radius_is_that_of_the_jacobian(make):
    options = {} if make is ft.LRU else {"state_size": 4}
    cell = make.factory(**(options or {"state_size": 3}))
    network = ft.Network(2, 3, model_size=4, depth=2, cell=cell, key=jax.random.key(0))
    xs = jax.random.normal(jax.random.key(1), (6, 2))
    h = ft.forward(network, ft.init_carry(network, ft.BPTT), xs[:5])[1].h
    found, x = [], network.encoder(xs[5])
    for i in range(2):
        block, state = network.block(i), h[i]
        z = block.before(x)
        found.append(largest(block.cell, state, z))
        x = block.after(
            x,
            block.cell.readout(block.cell.step(block.cell.coefficients(), state, state, z), z),
            None,
        )
    np.testing.assert_allclose(jax.jit(spectral_radius)(network, h, xs[5]), max(found), rtol=1e-3)


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_has_a_radius_and_a_range(name):
    """Shapes alone: nothing is compiled."""

    def watched(key):
        network = ft.Network(2, 3, model_size=4, depth=2, cell=CELLS[name], key=key)
        h = jax.tree.map(lambda leaf: leaf[:, None], ft.init_carry(network, ft.BPTT).h)
        radius = spectral_radius(network, jax.tree.map(lambda leaf: leaf[:, 0], h), jnp.zeros(2))
        return (
            radius,
            Range.empty(network, h).including(network, h).dead(),
            untrained(network, network),
        )

    assert [leaf.shape for leaf in jax.eval_shape(watched, jax.random.key(0))] == [(), (), ()]


def test_a_module_is_dead_if_neither_part_of_its_state_moves():
    # Two layers, one stream, three modules.
    h = jnp.array([[[1 + 1j, 2.0, 0.0]], [[1.0, 1.0, 1.0]]])
    network = ft.Network(
        2, 3, model_size=4, depth=2, cell=ft.LRU.factory(state_size=3), key=jax.random.key(0)
    )
    still = Range.empty(network, h).including(network, h).including(network, h)
    assert float(still.dead()) == 1
    moved = still.including(network, h.at[0, 0, 0].add(0.1j).at[1, 0, 2].add(-0.1))
    np.testing.assert_allclose(moved.dead(), 4 / 6)


def test_a_module_is_trained_if_any_coefficient_changes():
    network = ft.Network(
        2, 3, model_size=4, depth=2, cell=ft.LRU.factory(state_size=3), key=jax.random.key(0)
    )
    assert float(untrained(network, network)) == 1
    changed = eqx.tree_at(
        lambda n: n.blocks.cell.B_re, network, network.blocks.cell.B_re.at[0, 1, 2].add(0.1)
    )
    np.testing.assert_allclose(untrained(network, changed), 5 / 6)

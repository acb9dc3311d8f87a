"""Monitors of a run: eigenvalues of the memory, and modules that do nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from jax.flatten_util import ravel_pytree
from rl_cases import make_network
from tiers import fast

import foretrace as ft
from foretrace._recurrence.chunk import Carry
from foretrace.rl._monitors import dead, has_moved, spectral_radius, untrained


@pytest.mark.exact
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("cell", fast(["lru", None, "linear", "gru", "mingru"], 2))
def test_the_spectral_radius_is_that_of_the_jacobian_of_all_states(cell):
    """By differences: the derivative of `forward` to its carry is cut."""
    network = make_network(cell=cell, depth=2)
    xs = jax.random.normal(jax.random.key(1), (6, 2))
    h = ft.forward(network, ft.init_carry(network, ft.BPTT), xs[:5])[1].h
    flat, restore = ravel_pytree(h)

    def moved_by(part):
        return ravel_pytree(ft.forward(network, Carry(restore(part), None), xs[5:])[1].h)[0]

    steps = 1e-6 * np.eye(flat.size)
    jacobian = np.array([moved_by(flat + d) - moved_by(flat - d) for d in steps]).T / 2e-6
    with jax.numpy_rank_promotion("allow"):
        found = jax.jit(spectral_radius)(network, h, xs[5])
    np.testing.assert_allclose(found, np.abs(np.linalg.eigvals(jacobian)).max(), rtol=1e-3)


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_has_a_radius_and_a_range(name):
    """Shapes alone: nothing is compiled."""

    def watched(key):
        network = ft.Network(2, 3, model_size=4, depth=2, cell=CELLS[name], key=key)
        h = ft.init_carry(network, ft.BPTT).h
        many = jax.tree.map(lambda leaf: leaf[:, None], h)
        share = dead(network, has_moved(many, many))
        return spectral_radius(network, h, jnp.zeros(2)), share, untrained(network, network)

    assert [leaf.shape for leaf in jax.eval_shape(watched, jax.random.key(0))] == [(), (), ()]


@pytest.mark.parametrize(("cell", "count"), [("lru", 6), (None, 10)])
def test_a_module_is_dead_or_untrained_if_no_part_of_it_moves(cell, count):
    """In any stream; what moves by less than rounding does not move."""
    network = make_network(cell=cell, depth=2)
    h = jax.tree.map(lambda leaf: leaf + 1, ft.init_carry(network, ft.ONLINE, 2).h)
    assert float(dead(network, has_moved(h, h))) == 1 == float(untrained(network, network))
    first, *rest = jax.tree.leaves(h)
    by = 0.1j if jnp.iscomplexobj(first) else 0.1
    for size, share in ((by, (count - 1) / count), (1e-8, 1)):
        after = jax.tree.unflatten(jax.tree.structure(h), [first.at[0, 1, 1].add(size), *rest])
        np.testing.assert_allclose(dead(network, has_moved(h, after)), share)
    part = network.blocks.cell.B_re if cell else network.layers[0][0].W
    more = part.at[(0, 1) if cell else 1].add(0.1)
    changed = jax.tree.map(lambda leaf: more if leaf is part else leaf, network)
    np.testing.assert_allclose(untrained(network, changed), (count - 1) / count)

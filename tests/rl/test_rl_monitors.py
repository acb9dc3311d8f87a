"""Monitors of a run: eigenvalues of the memory, and modules that do nothing."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from rl_cases import make_network
from tiers import fast

import foretrace as ft
from foretrace import rl
from foretrace._options.cells import LRU
from foretrace._options.network import NetworkConfig
from foretrace.rl._config import AgentConfig, RLConfig
from foretrace.rl._monitors import STILL, dead, has_moved, spectral_radius, untrained
from foretrace.rl._program import advance, begin, build


@pytest.mark.exact
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("cell", fast(["lru", None, "gru", "mingru", "linear"], 3))
def test_the_spectral_radius_is_that_of_the_jacobian_of_each_cell(cell):
    """By differences of each cell's step without input."""
    network = make_network(cell=cell, depth=2)
    xs = jax.random.normal(jax.random.key(1), (6, 2))
    h = ft.forward(network, ft.init_carry(network, ft.BPTT), xs)[1].h
    radii = []

    def look(cell, own):
        flat, restore = ravel_pytree(own)

        def moved(part):
            own, none = restore(part), jnp.zeros(cell.input_size)
            return ravel_pytree(cell.step(cell.coefficients(), own, own, none))[0]

        steps = 1e-6 * np.eye(flat.size)
        jacobian = np.array([moved(flat + d) - moved(flat - d) for d in steps]).T / 2e-6
        radii.append(np.abs(np.linalg.eigvals(jacobian)).max())

    if cell is None:
        network.each_cell(lambda cell, own: look(cell, own) or jnp.zeros(1), h)
    for i in range(2 if cell else 0):
        look(network.block(i).cell, jax.tree.map(lambda leaf, i=i: leaf[i], h))
    with jax.numpy_rank_promotion("allow"):
        found = jax.jit(spectral_radius)(network, h)
    np.testing.assert_allclose(found, max(radii), rtol=1e-3)


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


def test_a_module_that_drifts_over_a_block_is_not_dead():
    """Each step moves a state by less than rounding; what counts is the way from the beginning."""
    prediction = AgentConfig("prediction", learning_rate=1e-30)
    network = NetworkConfig(1, 4, LRU(3))
    config = RLConfig(rl.TraceConditioning(3), network=network, agent=prediction)
    agent = build(config)
    run = jax.jit(partial(advance, config.seen, agent))
    world, _ = run(begin(config.seen, agent, jax.random.key(0)), 1)
    ones = jax.tree.map(jnp.ones_like, world.agent.carry.h)
    for drift, steps, share in ((STILL / 2, 1, 1), (STILL / 2, 10, 0), (0.0, 10, 1)):
        cell = world.agent.network.blocks.cell
        slow = [jnp.full_like(cell.nu_log, np.log(drift + 1e-30)), cell.theta_log * 0 - 60]
        parts = [*slow, cell.B_re * 0, cell.B_im * 0]
        cell = eqx.tree_at(lambda c: (c.nu_log, c.theta_log, c.B_re, c.B_im), cell, parts)
        changed = eqx.tree_at(lambda n: n.blocks.cell, world.agent.network, cell)
        carry = world.agent.carry._replace(h=ones)
        state = world.agent._replace(network=changed, carry=carry)
        assert float(run(world._replace(agent=state), steps)[1]["dead_modules"]) == share

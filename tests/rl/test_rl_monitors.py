"""Monitors of a run: eigenvalues of the memory, and modules that do nothing."""

from functools import partial
from operator import attrgetter
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from rl_cases import make_agent, make_network
from tiers import fast

import foretrace as ft
from foretrace import rl
from foretrace.rl._metrics import counted, empty
from foretrace.rl._monitors import STILL, dead, has_moved, spectral_radius, untrained
from foretrace.rl._program import advance, begin


@pytest.mark.exact
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("cell", fast(["lru", None, "gru", "mingru", "linear"], 3))
def test_the_spectral_radius_is_that_of_the_jacobian_of_each_cell(cell):
    """By differences of each cell's step without input."""
    network = make_network(cell=cell, depth=2)
    rng, like = np.random.default_rng(1), ft.init_carry(network, ft.BPTT).h
    h = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), like)

    def jacobian(cell, own):
        flat, restore = ravel_pytree(own)

        def moved(part):
            own, none = restore(part), jnp.zeros(cell.input_size)
            return ravel_pytree(cell.step(cell.coefficients(), own, own, none))[0]

        steps = 1e-6 * np.eye(flat.size)
        return (jax.vmap(moved)(flat + steps) - jax.vmap(moved)(flat - steps)).T / 2e-6

    with jax.numpy_rank_promotion("allow"):
        jacobians = jax.jit(lambda network, h: network.each_cell(jacobian, h))(network, h)
        found = jax.jit(spectral_radius)(network, h)
    radii = [abs(np.linalg.eigvals(part)).max() for part in jax.tree.leaves(jacobians)]
    np.testing.assert_allclose(found, max(radii), rtol=1e-3)


@pytest.mark.parametrize(("cell", "count"), [("lru", 6), (None, 10)])
def test_a_module_is_dead_or_untrained_if_no_part_of_it_moves(cell, count):
    """In any stream; what moves by less than rounding does not move."""
    network = make_network(cell=cell, depth=2)
    h = jax.tree.map(np.ones_like, ft.init_carry(network, ft.ONLINE, 2).h)
    still = jax.jit(lambda network, h, after: dead(network, has_moved(h, after)))
    unchanged = jax.jit(untrained)
    assert float(still(network, h, h)) == 1 == float(unchanged(network, network))
    (first, *rest), structure = jax.tree.flatten(h)
    for size, share in ((0.1, (count - 1) / count), (1e-8, 1)):
        moved = first.copy()
        moved[0, 1, 1] += size * (1j if np.iscomplexobj(first) else 1)
        np.testing.assert_allclose(still(network, h, structure.unflatten([moved, *rest])), share)
    part = network.blocks.cell.B_re if cell else network.layers[0][0].W
    more = np.array(part)
    more[(0, 1) if cell else 1] += 0.1
    changed = jax.tree.map(lambda leaf: more if leaf is part else leaf, network)
    np.testing.assert_allclose(unchanged(network, changed), (count - 1) / count)


@pytest.mark.full
def test_a_module_that_drifts_over_a_block_is_not_dead():
    """Each step moves a state by less than rounding; what counts is the way from the beginning."""
    environment, still = rl.TraceConditioning(3), optax.sgd(1e-30)
    agent = make_agent(rl.ValuePrediction(), batch_size=1, optimizer=still)
    run = jax.jit(partial(advance, environment, agent))
    world, _ = run(jax.jit(partial(begin, environment, agent))(jax.random.key(0)), 1)
    ones = jax.tree.map(np.ones_like, world.agent.carry.h)
    for drift, steps, share in ((STILL / 2, 1, 1), (STILL / 2, 10, 0), (0.0, 10, 1)):
        cell = world.agent.network.blocks.cell
        slow = {"nu_log": np.log(drift + 1e-30), "theta_log": -60.0, "B_re": 0.0, "B_im": 0.0}
        for name, number in slow.items():
            cell = eqx.tree_at(
                attrgetter(name), cell, replace_fn=lambda x, n=number: np.full_like(x, n)
            )
        changed = eqx.tree_at(lambda n: n.blocks.cell, world.agent.network, cell)
        carry = world.agent.carry._replace(h=ones)
        state = world.agent._replace(network=changed, carry=carry)
        assert float(run(world._replace(agent=state), steps)[1]["dead_modules"]) == share


@pytest.mark.parametrize("count", [1, 4])
def test_one_number_for_all_environments_is_recorded_as_it_is(count):
    each, one = jnp.full(count, 2.0), jnp.full((), 3.0)
    info = SimpleNamespace(
        td_error=each, trace_norm=each, step_size=each, sensitivity_norm=one, update_norm=one
    )
    never, tally = jnp.zeros(count, bool), empty(jnp.float32)
    step = SimpleNamespace(terminated=never, truncated=never, reward=each)
    for _ in range(3):
        tally = counted(tally, step, info, each, refused=each, error=each, known=never)
    found = {name: float(tally[name] / tally["steps"]) for name in ("sensitivity_norm", "reward")}
    assert found == {"sensitivity_norm": 3.0, "reward": 2.0}

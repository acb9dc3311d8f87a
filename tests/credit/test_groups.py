"""Credit in depth for some groups alone: the definition for them, the rule for the others."""

import jax
import pytest
from cases import CELLS
from gradients import D, T, assert_equal, make_network, run, run_in_chunks
from tiers import fast

import foretrace as ft


@pytest.mark.full
def test_the_encoder_alone_has_the_whole_gradient_at_the_full_depth():
    network, rule = make_network(), ft.rule(f"hybrid(depth={D}, groups=1)")
    _, exact, _ = run(network, ft.BPTT)
    _, got, carry = run_in_chunks(network, rule, (2, 3, 1))
    assert_equal(got.encoder, exact.encoder)
    _, same, _ = run_in_chunks(network, ft.HYBRID, (2, 3, 1))
    assert_equal((got.blocks.cell, got.decoder), (same.blocks.cell, same.decoder))
    assert ft.carry_size(network, rule) < ft.carry_size(network, ft.HYBRID.with_depth(1)) / 2
    assert jax.tree.leaves(carry.e.between) == []


def test_groups_are_counted():
    network, sizes = make_network(), []
    for groups in range(1, D + 2):
        sizes.append(ft.carry_size(network, ft.rule(f"online(depth={D}, groups={groups})")))
    assert sizes == sorted(sizes) and len(set(sizes[:D])) == D
    everything = ft.carry_size(network, ft.ONLINE.with_depth(D))
    assert sizes[-1] == sizes[-2] == everything  # nothing is above the last group
    assert ft.carry_size(network, ft.rule(f"online(depth={D}, groups=99)")) == everything


@pytest.mark.parametrize(
    "cell_name", fast(["lstm", *(name for name in CELLS if name != "lstm")]), indirect=True
)
def test_every_cell_has_the_gradient_of_its_past_at_the_full_depth(make_cell):
    network = ft.Network(2, 3, model_size=4, depth=2, cell=make_cell, key=jax.random.key(1))
    rule = (ft.ONLINE if network.block(0).cell.independent else ft.RTRL).with_depth(2)
    assert_equal(run_in_chunks(network, rule, [1] * T)[:2], run(network, ft.BPTT)[:2])

"""Sensitivities advanced in place, block by block: equal numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import RESET, WEIGHTS, XS, YS, assert_equal, make_network

import foretrace as ft
from foretrace._credit import blocks


def in_chunks(network, rule, batched):
    """Return what three chunks of a sequence give, in programs that are made anew."""

    def loss(output, y):
        return ft.losses.softmax_cross_entropy(output, y)

    carry, found = ft.init_carry(network, rule, 2 if batched else None), []
    arrays = XS, YS, *(np.broadcast_to(a, YS.shape) for a in (WEIGHTS, RESET))
    arrays = [a if batched else a[0] for a in arrays]
    for start in (0, 2, 4):
        part = (slice(None), slice(start, start + 2)) if batched else slice(start, start + 2)
        xs, ys, mask, reset = (jnp.asarray(a[part]) for a in arrays)
        *values, carry = ft.gradient(
            network, carry, xs, ys, rule=rule, loss=loss, mask=mask, reset=reset
        )
        found.append(values)
    return jax.tree.map(np.asarray, (found, carry))


@pytest.mark.full
@pytest.mark.parametrize(
    ("cell", "depth", "batched"), [("lru", 2, True), ("rtu", 1, False)], ids=str
)
def test_blocks_change_nothing(cell, depth, batched, monkeypatch):
    network, rule = make_network(cell, depth=2), ft.ONLINE.with_depth(depth)
    assert not blocks.in_place(network, rule, 2)
    whole = in_chunks(network, rule, batched)
    monkeypatch.setattr(blocks, "AT_ONCE", 0)
    assert blocks.in_place(network, rule, 2)
    assert_equal(in_chunks(network, rule, batched), whole)

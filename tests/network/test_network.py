"""The network is the paper's in size, variants and dropout; programs do not grow with depth."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import filled
from tiers import fast

import foretrace as ft
from foretrace._engine.data import Data
from foretrace._engine.gradient import evaluate
from foretrace.testing import plain_states

KEY = jax.random.key(0)
LOSS = ft.losses.softmax_cross_entropy
T = 5
XS = jnp.asarray(np.random.default_rng(0).normal(size=(T, 2)))
YS = jnp.asarray([0, 1, 2, 1, 0])
LRU = ft.LRU.factory(state_size=3)
SMALL = {"model_size": 4, "cell": LRU, "key": KEY}


def small(**options):
    return filled(lambda: ft.Network(2, 3, **SMALL | options))


def drawn(network):
    return ft.Network(2, 3, depth=network.depth, **SMALL)


def learned(network, rule=ft.ONLINE):
    return ft.gradient(network, ft.init_carry(network, rule), XS, YS, rule=rule, loss=LOSS)


@pytest.mark.parametrize("run", fast([drawn, learned, partial(learned, rule=ft.BPTT)]))
def test_programs_do_not_grow_with_depth(run):
    sizes = {str(jax.make_jaxpr(run)(small(depth=depth))).count(" = ") for depth in (2, 8)}
    assert len(sizes) == 1 and sizes.pop() > 100


def test_a_drawn_network_has_different_blocks_counted_from_both_ends_and_biases_off_zero():
    """LayerNorm at exactly zero has the derivative 1 / sqrt(eps): silent steps must not meet it."""
    network = jax.tree.map(np.asarray, drawn(small(depth=3)))
    first, last = network.block(0), network.block(2)
    assert first.cell.nu_log.shape == (3,)
    assert not np.allclose(first.cell.B_re, last.cell.B_re)
    np.testing.assert_array_equal(network.block(-1).cell.B_re, last.cell.B_re)
    np.testing.assert_array_equal(network.blocks.cell.B_re[1], network.block(1).cell.B_re)
    x = network.encoder.bias
    assert abs(x).max() > 1e-2
    assert abs(np.asarray(jax.jit(jax.jacobian(first.before))(x))).max() < 50


@jax.jit
def recurrence(cell, z):
    return jax.vmap(cell.readout)(plain_states(cell, cell.coefficients(), z), z)


def layer_norm(x, norm):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    return x * norm.scale + norm.bias


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


PLACES = ["pre-glu", "post", "none"]


@pytest.mark.parametrize("place", fast(PLACES))
def test_the_forward_pass_is_figure_1_written_out(place):
    norm, _, glu = place.partition("-")
    network = small(depth=2, norm=norm, norm_eps=1e-3, glu=bool(glu), readout_size=5)
    p = jax.tree.map(np.asarray, network)
    x = np.asarray(XS) @ p.encoder.weight.T + p.encoder.bias
    for block in (p.block(0), p.block(1)):
        normalised = partial(layer_norm, norm=block.norm)
        z = normalised(x) if norm == "pre" else x
        y = gelu(np.asarray(recurrence(block.cell, z)))
        if glu:
            linear = block.glu.linear
            value, gate = np.split(y @ linear.weight.T + linear.bias, 2, axis=1)
            y = value / (1 + np.exp(-gate))
        x = normalised(x + y) if norm == "post" else x + y
    hidden = np.maximum(x @ p.decoder.hidden.weight.T + p.decoder.hidden.bias, 0)
    want = hidden @ p.decoder.linear.weight.T + p.decoder.linear.bias
    np.testing.assert_allclose(jax.jit(ft.forward)(network, None, XS)[0], want, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def memoryless():
    """Return a network with dropout whose cells pass on `D * x`: equal inputs, equal outputs."""
    network = small(depth=2, dropout=0.4)
    zeros = 0 * network.blocks.cell.B_re
    return eqx.tree_at(lambda n: (n.blocks.cell.B_re, n.blocks.cell.B_im), network, (zeros, zeros))


def test_dropout_is_shared_over_time_and_by_all_chunks(memoryless):
    """One mask for a sequence: features are dropped at every step or at none."""
    run = jax.jit(lambda carry, xs, key: ft.forward(memoryless, carry, xs, key=key))
    close = partial(np.testing.assert_allclose, rtol=0, atol=1e-14)
    xs = jnp.broadcast_to(XS[0], XS.shape)
    outputs, _ = run(None, xs, jax.random.key(1))
    close(outputs, np.broadcast_to(outputs[0], outputs.shape))
    _, carry = run(None, xs[:2], jax.random.key(1))
    close(run(carry, xs[2:], jax.random.key(1))[0], outputs[2:])
    assert not np.allclose(run(None, xs, jax.random.PRNGKey(2))[0], outputs)
    assert not np.allclose(jax.jit(ft.forward)(memoryless, None, xs)[0], outputs)


def test_each_stream_of_a_batch_is_dropped_by_its_own_key(memoryless):
    """Of a key for each, of one key for all, and where a gradient is computed."""
    key, xs = jax.random.key(1), jnp.broadcast_to(XS[0], (3, *XS.shape))
    keys, run = jax.random.split(key, 3), jax.jit(partial(ft.forward, memoryless, None))
    alone = jnp.stack([run(x, key=own)[0] for x, own in zip(xs, keys, strict=True)])
    data = Data(xs, jnp.broadcast_to(YS, xs.shape[:2]), key=key)
    trained = jax.jit(partial(evaluate, rule=ft.SPATIAL, loss=LOSS))(memoryless, None, data)
    for outputs in (run(xs, key=keys)[0], run(xs, key=key)[0], trained.outputs):
        np.testing.assert_allclose(outputs, alone, rtol=0, atol=1e-13)
    assert not np.allclose(alone[0], alone[1])


def test_dropout_masks_keep_the_mean_and_differ_between_layers(memoryless):
    first, second = memoryless.dropout_masks(KEY)
    assert first.shape == (2, 4) and not np.array_equal(first, second)
    assert small(depth=2).dropout_masks(KEY) is None
    keep = np.asarray(small(depth=1, dropout=0.2, model_size=1000).dropout_masks(KEY))
    np.testing.assert_allclose(np.unique(keep), [0, 1.25])
    assert abs(keep.mean() - 1) < 0.1


def test_a_cumulative_mean_is_decoded_and_differentiated_straight_through():
    plain, averaged = small(depth=1), small(depth=1, cumulative_mean=True)
    random = np.random.default_rng(0)
    xs, weights = jnp.asarray(random.normal(size=(2, 6, 2))), random.normal(size=(2, 6, 3))
    features = ft.forward(eqx.tree_at(lambda n: n.decoder, plain, eqx.nn.Identity()), None, xs)[0]
    means = np.cumsum(np.asarray(features), axis=1) / np.arange(1, 7)[:, None]

    @partial(jax.grad, has_aux=True)
    def weighted(network):
        outputs = ft.forward(network, None, xs)[0]
        return (outputs * weights).sum(), outputs

    # The errors that reach the blocks are those of the present features, with the weights of a
    # linear decoder.
    (got, outputs), (expected, _) = map(jax.jit(weighted), (averaged, plain))
    linear = averaged.decoder.linear
    want = means @ np.asarray(linear.weight).T + np.asarray(linear.bias)
    np.testing.assert_allclose(outputs, want, rtol=1e-10)
    np.testing.assert_allclose(got.blocks.cell.C_re, expected.blocks.cell.C_re, rtol=1e-9)
    np.testing.assert_allclose(
        got.decoder.linear.weight, np.einsum("bto,bth->oh", weights, means), rtol=1e-9
    )

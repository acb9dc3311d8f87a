"""The network is the paper's in size, variants and dropout; programs do not grow with depth."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import fast

import foretrace as ft
from foretrace._engine.data import Data
from foretrace._engine.gradient import evaluate

KEY = jax.random.key(0)
LOSS = ft.losses.softmax_cross_entropy
T = 5
XS = jnp.asarray(np.random.default_rng(0).normal(size=(T, 2)))
YS = jnp.asarray([0, 1, 2, 1, 0])
LRU = ft.LRU.factory(state_size=3)
GRU = ft.GRU.factory()
SMALL = partial(ft.Network, 2, 3, model_size=4, cell=LRU, key=KEY)


@pytest.mark.parametrize(
    ("count", "make"),
    [
        (
            268_430,
            partial(ft.Network, 8, 14, model_size=128, depth=4, cell=ft.LRU.factory(state_size=64)),
        ),
        (
            267_956,
            partial(
                ft.Network, 8, 14, model_size=146, depth=4, cell=ft.LinearRNN.factory(state_size=64)
            ),
        ),
        (
            269_488,
            partial(
                ft.Network, 8, 14, model_size=134, depth=1, cell=GRU, glu=False, readout_size=1072
            ),
        ),
        (270_011, partial(ft.Network, 8, 14, model_size=91, depth=4, cell=GRU)),
        (
            1_063_178,
            partial(
                ft.Network, 20, 10, model_size=256, depth=4, cell=ft.LRU.factory(state_size=128)
            ),
        ),
        (
            1_068_086,
            partial(
                ft.Network,
                3,
                10,
                model_size=294,
                depth=4,
                cell=ft.LinearRNN.factory(state_size=128),
            ),
        ),
    ],
    ids=["copy-lru", "copy-linear", "copy-gru-1", "copy-gru-4", "listops-lru", "scifar-linear"],
)
def test_parameter_counts_are_the_published_ones(count, make):
    shapes = jax.eval_shape(lambda: make(key=KEY))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == count


def test_parameter_count_counts_numbers():
    network = SMALL(depth=2)
    assert ft.parameter_count(network) == sum(leaf.size for leaf in jax.tree.leaves(network))
    assert ft.parameter_count(network.encoder) == 2 * 4 + 4


def program(run, depth):
    """Return the program as text; only its numbers of layers may depend on depth."""
    return str(jax.make_jaxpr(run)(SMALL(depth=depth)))


@pytest.mark.full
@pytest.mark.parametrize("rule", fast([ft.ONLINE, ft.BPTT]), ids=str)
def test_programs_do_not_grow_with_depth(rule):
    def run(network):
        return ft.gradient(network, ft.init_carry(network, rule), XS, YS, rule=rule, loss=LOSS)

    assert program(run, 2).count(" = ") == program(run, 8).count(" = ") > 100


def test_initialisation_does_not_grow_with_depth():
    def equations(depth):
        return str(jax.make_jaxpr(lambda: SMALL(depth=depth))()).count(" = ")

    assert equations(2) == equations(8)


def test_blocks_differ_and_are_counted_from_both_ends():
    network = SMALL(depth=3)
    first, last = network.block(0), network.block(2)
    assert first.cell.nu_log.shape == (3,)
    assert not np.allclose(first.cell.B_re, last.cell.B_re)
    np.testing.assert_array_equal(network.block(-1).cell.B_re, last.cell.B_re)
    np.testing.assert_array_equal(network.blocks.cell.B_re[1], network.block(1).cell.B_re)


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
    ("norm", "glu"),
    fast(
        [
            ("pre", True),
            ("post", False),
            ("pre", False),
            ("post", True),
            ("none", True),
            ("none", False),
        ],
        2,
    ),
)
def test_the_forward_pass_is_figure_1_written_out(norm, glu):
    network = SMALL(depth=2, norm=norm, glu=glu, readout_size=5)
    p = jax.tree.map(np.asarray, network)
    x = np.asarray(XS) @ p.encoder.weight.T + p.encoder.bias
    for i in range(2):
        cell = jax.tree.map(lambda leaf, i=i: leaf[i], p.blocks.cell)
        z = layer_norm(x) if norm == "pre" else x
        h, y = np.zeros(3, complex), []
        for z_t in z:
            h = np.exp(-np.exp(cell.nu_log) + 1j * np.exp(cell.theta_log)) * h
            h = h + np.exp(cell.gamma_log) * ((cell.B_re + 1j * cell.B_im) @ z_t)
            y.append(((cell.C_re + 1j * cell.C_im) @ h).real + cell.D * z_t)
        y = gelu(np.stack(y))
        if glu:
            linear = jax.tree.map(lambda leaf, i=i: leaf[i], p.blocks.glu.linear)
            value, gate = np.split(y @ linear.weight.T + linear.bias, 2, axis=1)
            y = value / (1 + np.exp(-gate))
        x = layer_norm(x + y) if norm == "post" else x + y
    hidden = np.maximum(x @ p.decoder.hidden.weight.T + p.decoder.hidden.bias, 0)
    want = hidden @ p.decoder.linear.weight.T + p.decoder.linear.bias
    np.testing.assert_allclose(jax.jit(ft.forward)(network, None, XS)[0], want, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def memoryless():
    """Return a network with dropout whose cells pass on `D * x`: equal inputs, equal outputs."""
    network = SMALL(depth=2, dropout=0.5)
    zeros = jnp.zeros_like(network.blocks.cell.B_re)
    return eqx.tree_at(lambda n: (n.blocks.cell.B_re, n.blocks.cell.B_im), network, (zeros, zeros))


def test_dropout_is_shared_over_time_and_by_all_chunks(memoryless):
    """One mask for a sequence: features are dropped at every step or at none."""
    run = jax.jit(lambda carry, xs, key: ft.forward(memoryless, carry, xs, key=key))
    xs = jnp.broadcast_to(XS[0], XS.shape)
    outputs, _ = run(None, xs, jax.random.key(1))
    np.testing.assert_allclose(
        outputs, np.broadcast_to(outputs[0], outputs.shape), rtol=0, atol=1e-14
    )
    _, carry = run(None, xs[:2], jax.random.key(1))
    later, _ = run(carry, xs[2:], jax.random.key(1))
    np.testing.assert_allclose(later, outputs[2:], rtol=0, atol=1e-14)
    assert not np.allclose(run(None, xs, jax.random.key(2))[0], outputs)
    assert not np.allclose(jax.jit(ft.forward)(memoryless, None, xs)[0], outputs)


def test_dropout_differs_between_streams_and_layers(memoryless):
    xs = jnp.broadcast_to(XS[0], (2, *XS.shape))
    ys = jnp.broadcast_to(YS, (2, T))
    run = jax.jit(partial(evaluate, rule=ft.SPATIAL, loss=LOSS))
    outputs = run(memoryless, None, Data(xs, ys, key=jax.random.key(1))).outputs
    assert not np.allclose(outputs[0], outputs[1])
    keys = jax.random.split(jax.random.key(1), 2)
    assert not np.array_equal(*(memoryless.block(i).dropout_masks(16, keys[i]) for i in range(2)))


@pytest.mark.parametrize("streams", [1, 3])
def test_each_stream_of_a_batch_is_dropped_by_its_own_key(memoryless, streams):
    xs = jnp.stack([XS * (1 + i) for i in range(streams)])
    keys = jax.random.split(jax.random.key(1), streams)
    run = jax.jit(lambda xs, key: ft.forward(memoryless, None, xs, key=key)[0])
    alone = jnp.stack([run(x, key) for x, key in zip(xs, keys, strict=True)])
    np.testing.assert_allclose(run(xs, keys), alone, rtol=0, atol=1e-13)
    np.testing.assert_allclose(run(xs, jax.random.key(1)), alone, rtol=0, atol=1e-13)


def test_dropout_keeps_the_mean(memoryless):
    keep = memoryless.block(0).dropout_masks(1000, jax.random.key(0))
    assert set(np.unique(keep)) == {0.0, 2.0}
    assert abs(keep.mean() - 1) < 0.1
    assert SMALL(depth=2).dropout_masks(KEY) is None and memoryless.dropout_masks(KEY).shape == (
        2,
        2,
        4,
    )


def test_initial_biases_stay_off_zero():
    """LayerNorm at exactly zero has the derivative 1 / sqrt(eps): silent steps must not meet it."""
    network = SMALL(depth=1)
    x = network.encoder(jnp.zeros(2))
    assert float(jnp.abs(x).max()) > 1e-2
    assert float(jnp.abs(jax.jacobian(network.block(0).before)(x)).max()) < 50


def test_lru_starts_on_its_ring():
    cell = ft.LRU(2, 1000, r_min=0.5, r_max=0.9, max_phase=0.3, key=KEY)
    lam = np.asarray(cell.coefficients().recurrent["lam"])
    assert 0.5 <= np.abs(lam).min() < 0.52 < 0.88 < np.abs(lam).max() <= 0.9
    assert 0 < np.angle(lam).min() < 0.29 < np.angle(lam).max() <= 0.3
    np.testing.assert_allclose(
        np.exp(np.asarray(cell.gamma_log)), np.sqrt(1 - np.abs(lam) ** 2), atol=1e-12
    )
    area = (np.abs(lam) ** 2 - 0.25) / (0.81 - 0.25)
    assert abs(area.mean() - 0.5) < 0.05, "|lam| is uniform in area"


@pytest.mark.full
def test_lru_on_the_whole_disk_is_finite():
    """|lam| = 0 would be the logarithm of zero, |lam| = 1 a gamma of zero."""
    for precision in (jnp.float32, jnp.float64):
        with jax.enable_x64(precision == jnp.float64):
            cell = jax.vmap(lambda key: ft.LRU(1, 64, key=key))(jax.random.split(KEY, 200))
            assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(cell))


def test_a_cumulative_mean_is_decoded_and_differentiated_straight_through():
    make = {"model_size": 5, "depth": 1, "cell": ft.LRU.factory(state_size=3), "key": KEY}
    plain, averaged = ft.Network(2, 3, **make), ft.Network(2, 3, cumulative_mean=True, **make)
    xs = jax.random.normal(KEY, (2, 6, 2))
    features = ft.forward(eqx.tree_at(lambda n: n.decoder, plain, eqx.nn.Identity()), None, xs)[0]
    means = np.cumsum(np.asarray(features), axis=1) / np.arange(1, 7)[:, None]
    outputs = ft.forward(averaged, None, xs)[0]
    np.testing.assert_allclose(outputs, jax.vmap(jax.vmap(averaged.decoder))(means), rtol=1e-10)

    def weighted(network, weights):
        return (ft.forward(network, None, xs)[0] * weights).sum()

    # The errors that reach the blocks are those of the present features, with the weights of a
    # linear decoder.
    weights = jax.random.normal(KEY, outputs.shape)
    got, expected = (jax.grad(weighted)(network, weights) for network in (averaged, plain))
    np.testing.assert_allclose(got.blocks.cell.C_re, expected.blocks.cell.C_re, rtol=1e-9)
    np.testing.assert_allclose(
        got.decoder.linear.weight, np.einsum("bto,bth->oh", weights, means), rtol=1e-9
    )

"""One small sequence and network for all laws of the gradient, whole or in chunks."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cases import CELLS

import foretrace as ft

T, D = 6, 3
"""Number of steps, number of layers."""
TOLERANCE = 1e-10
LOSS = ft.losses.softmax_cross_entropy
RANDOM = np.random.default_rng(0)
XS = RANDOM.normal(size=(2, T, 2))
YS = RANDOM.integers(0, 3, size=(2, T))
ALL, NONE = np.ones(T), np.zeros(T, bool)
RESET = np.arange(T) == 4
WEIGHTS = np.array([0.5, 0.0, 1.0, 2.0, 0.0, 1.5])


def filled(make):
    """Return what a function makes, with values by NumPy: its own draws would be compiled."""
    random, shapes = np.random.default_rng(0), eqx.filter_eval_shape(make)
    normal = partial(random.normal, 0, 0.5)
    return jax.tree.map(lambda leaf: jnp.asarray(normal(leaf.shape), leaf.dtype), shapes)


@cache
def make_network(cell="lru", depth=D, inputs=2, outputs=3, **options):
    """Return a small network; laws of the last layer and of chunks need layers below it."""
    make = partial(ft.Network, inputs, outputs, depth=depth, cell=CELLS[cell], **options)
    return filled(lambda: make(model_size=4, key=jax.random.key(0)))


def exact_rule(network):
    """Return the rule whose gradient is exact inside a layer of this network."""
    return ft.ONLINE if network.block(0).cell.independent else ft.RTRL


def run(
    network,
    rule,
    carry=None,
    part=slice(None),
    *,
    xs=XS[0],
    ys=YS[0],
    mask=WEIGHTS,
    reset=RESET,
    key=None,
):
    """Return (value, grads, carry) of a part of the sequence, as NumPy arrays."""
    xs, ys, mask, reset = (jnp.asarray(a[part]) for a in (xs, ys, mask, reset))
    out = ft.gradient(network, carry, xs, ys, rule=rule, loss=LOSS, mask=mask, reset=reset, key=key)
    return jax.tree.map(np.asarray, out)


def run_in_chunks(network, rule, lengths, **arguments):
    """Return the same of the sequence in chunks of these lengths: value and gradient are sums."""
    carry, total = ft.init_carry(network, rule), None
    ends = np.cumsum(lengths)
    for start, end in zip(ends - lengths, ends, strict=True):
        *now, carry = run(network, rule, carry, slice(int(start), int(end)), **arguments)
        total = now if total is None else summed([total, now])
    return *total, carry


def partitions(parts, total=T):
    """Return every way of cutting a sequence into chunks of the given lengths."""
    return (
        [[]]
        if total == 0
        else [[n, *rest] for n in parts if n <= total for rest in partitions(parts, total - n)]
    )


def scaled(factor, tree):
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def summed(trees):
    return jax.tree.map(lambda *leaves: sum(leaves), *trees)


def apart(got, want):
    """Return the largest difference of two trees, relative to numbers above one."""
    return farthest(got, want)[0]


def farthest(got, want):
    """Return the largest difference of two trees, and where it is."""
    errors = []
    for (path, g), w in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True):
        assert np.shape(g) == np.shape(w), jax.tree_util.keystr(path)
        error = np.max(np.abs(np.asarray(g) - np.asarray(w)), initial=0.0) / max(
            1.0, np.max(np.abs(w), initial=0.0)
        )
        errors.append((np.inf if np.isnan(error) else error, jax.tree_util.keystr(path)))
    return max(errors, default=(0.0, ""))


def assert_same(got, want):
    """Compare bit for bit, also the keys of random numbers."""
    for (path, a), b in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype, jax.tree_util.keystr(path)
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b, err_msg=jax.tree_util.keystr(path))


def assert_equal(got, want, tolerance=TOLERANCE):
    error, where = farthest(got, want)
    assert error <= tolerance, f"{where} is off by {error:.2e}"

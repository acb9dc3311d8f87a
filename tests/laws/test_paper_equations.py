"""ONLINE is Eq. 12-17 of the paper, written out by hand, to 1e-10.

The hand part: the forward pass of every layer one step after the other, the error delta_t of each
layer's state through the layers above at the same step, the paper's recursions in NumPy loops, and
the chain rule from lam, gamma and B to the stored parameters on paper.
"""

from functools import partial
from types import SimpleNamespace

import gradients
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import ALL, LOSS, RESET, TOLERANCE, T, make_network, run_in_chunks
from tiers import fast

import foretrace as ft
from foretrace.testing._definitions import plain_states

XS, YS, RESET = jnp.asarray(gradients.XS[0]), jnp.asarray(gradients.YS[0]), jnp.asarray(RESET)


def layers_by_hand(network):
    """Return the inputs of every block, the inputs of every cell and the states of every cell."""
    return jax.tree.map(np.asarray, _layers_by_hand(network))


@jax.jit
def _layers_by_hand(network):
    x, blocks, cells, states = jax.vmap(network.encoder)(XS), [], [], []
    for i in range(network.depth):
        block = network.block(i)
        blocks.append(x)
        cells.append(jax.vmap(block.before)(x))
        states.append(plain_states(block.cell, block.cell.coefficients(), cells[-1], RESET))
        out = jax.vmap(block.cell.readout)(states[-1], cells[-1])
        x = jax.vmap(lambda x, y, block=block: block.after(x, y, None))(x, out)
    return blocks, cells, states


@partial(jax.jit, static_argnames="layer")
def error_by_hand(network, before, x, h, y, layer):
    """Return delta, the gradient of one step's loss by one layer's state, at this step alone.

    `before` are the states of the step before in the layers above, which are constants here.
    """

    def loss(h):
        block = network.block(layer)
        now = block.after(x, block.cell.readout(h, block.before(x)), None)
        for i in range(layer + 1, network.depth):
            block, past = network.block(i), before[i]
            z = block.before(now)
            now = block.after(
                now,
                block.cell.readout(block.cell.step(block.cell.coefficients(), past, past, z), z),
                None,
            )
        return LOSS(network.decoder(now), y)

    return jax.grad(loss)(h)


def errors_by_hand(network, layer):
    """Return `delta(t, h)` for one layer."""
    blocks, _, states = layers_by_hand(network)
    initial = [jax.tree.map(lambda leaf: np.zeros_like(leaf[0]), hs) for hs in states]

    def delta(t, h):
        start = t == 0 or bool(RESET[t])
        before = [jax.tree.map(lambda hs: hs[t - 1], hs) for hs in states]
        return error_by_hand(
            network, initial if start else before, blocks[layer][t], h, YS[t], layer=layer
        )

    return delta


def paper_recursions(lam, gamma, B, xs, delta):
    """Return the states, the last sensitivities and the sums of Eq. 12 to 17 for one layer.

    Args:
        delta: `delta(t, h_t)`, the error (N,) of step t as the complex row vector with dL_t =
            Re[delta_t dh_t], which is twice the complex derivative of the paper.
    """
    h, e_lam, e_gamma, e_B = start = (*[0 * lam] * 3, 0 * B)
    hs, d_lam, d_gamma, d_B = [], 0, 0, 0
    for t, x in enumerate(xs):
        if RESET[t]:
            h, e_lam, e_gamma, e_B = start
        e_lam = lam * e_lam + h  # Eq. 12
        e_gamma = lam * e_gamma + B @ x  # Eq. 13
        e_B = lam[:, None] * e_B + np.outer(gamma, x)  # Eq. 14
        h = lam * h + gamma * (B @ x)
        hs.append(h)
        error = np.asarray(delta(t, h))
        d_lam = d_lam + error * e_lam  # Eq. 15
        d_gamma = d_gamma + (error * e_gamma).real  # Eq. 16
        d_B = d_B + error[:, None] * e_B  # Eq. 17
    return SimpleNamespace(
        hs=hs, e_lam=e_lam, e_gamma=e_gamma, e_B=e_B, lam=d_lam, gamma=d_gamma, B=d_B
    )


def lru_gradient_by_hand(network, layer):
    """Return the gradient of one LRU recurrence's six parameters, and the last sensitivities."""
    cell = jax.tree.map(np.asarray, network.block(layer).cell)
    lam = np.exp(-np.exp(cell.nu_log) + 1j * np.exp(cell.theta_log))
    gamma = np.exp(cell.gamma_log)
    _, cells, states = layers_by_hand(network)
    delta = errors_by_hand(network, layer)
    B = cell.B_re + 1j * cell.B_im
    found = paper_recursions(lam, gamma, B, np.asarray(cells[layer]), delta)
    np.testing.assert_allclose(found.hs, states[layer], rtol=0, atol=TOLERANCE)
    gradient = {
        "nu_log": (found.lam * -np.exp(cell.nu_log) * lam).real,
        "theta_log": (found.lam * 1j * np.exp(cell.theta_log) * lam).real,
        "gamma_log": found.gamma * gamma,
        "B_re": found.B.real,
        "B_im": (1j * found.B).real,
    }
    return gradient, found


def assert_close(got, want):
    for name, value in want.items():
        assert np.abs(value).max() > 1e-4, f"{name}: a gradient of zero shows nothing"
        np.testing.assert_allclose(got[name], value, rtol=0, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize(
    ("depth", "lengths"), fast([(3, (1,) * T), (1, (T,)), (3, (T,)), (1, (1,) * T)], 2)
)
def test_online_gradient_of_every_layer_is_the_papers_recursions(depth, lengths):
    network = make_network("lru", depth)
    _, grads, carry = run_in_chunks(network, ft.ONLINE, lengths, mask=ALL)
    for layer in range(depth):
        want, found = lru_gradient_by_hand(network, layer)
        assert_close({name: getattr(grads.blocks.cell, name)[layer] for name in want}, want)
        e = jax.tree.map(lambda leaf, layer=layer: leaf[layer], carry.e)
        gamma = np.exp(np.asarray(network.block(layer).cell.gamma_log))
        np.testing.assert_allclose(e.recurrent["lam"], found.e_lam, rtol=0, atol=TOLERANCE)
        # The coefficient of the package is gamma B, so its sensitivity lacks the factor gamma of
        # Eq. 14 ...
        np.testing.assert_allclose(
            gamma[:, None] * e.feedforward["B"], found.e_B, rtol=0, atol=TOLERANCE
        )
        # ... and summed over the inputs with B it is that of gamma, Eq. 13.
        B = np.asarray(network.block(layer).cell.B_re) + 1j * np.asarray(
            network.block(layer).cell.B_im
        )
        np.testing.assert_allclose(
            (B * e.feedforward["B"]).sum(1), found.e_gamma, rtol=0, atol=TOLERANCE
        )

"""The gradient of LRUs, also in chunks, is that of NumPy, by full Jacobians, to 1e-10.

Under ONLINE these are the recursions of the paper, Eq. 12 to 17, for every layer.
"""

from functools import partial

import jax
import numpy as np
import pytest
from gradients import ALL, NONE, RESET, WEIGHTS, XS, YS, T, make_network, run_in_chunks
from numpy_oracle import Oracle
from tiers import fast

import foretrace as ft

TOLERANCE = 1e-10


def parameters_of(network):
    """Return the parameters by name."""
    leaves = jax.tree.leaves_with_path(network)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in leaves
    }


close = partial(np.testing.assert_allclose, rtol=0, atol=TOLERANCE)


def assert_gradient(got, want):
    """Compare value and gradient with the oracle's."""
    close(got[0], want[0])
    for name, leaf in parameters_of(got[1]).items():
        close(leaf, want[1][name], err_msg=name)


def assert_sensitivities(network, carry, want):
    """Compare what an LRU carries with Eq. 12 to 14: (N,) of lam and gamma, (N, H) of B."""
    for layer, by in enumerate(want):
        cell = jax.tree.map(lambda leaf, layer=layer: np.asarray(leaf)[layer], network.blocks.cell)
        e_lam, e_B = carry.e.recurrent["lam"][layer], carry.e.feedforward["B"][layer]
        lam = np.exp(-np.exp(cell.nu_log) + 1j * np.exp(cell.theta_log))
        gamma, own = np.exp(cell.gamma_log)[:, None], np.arange(len(lam))
        close(e_lam * -np.exp(cell.nu_log) * lam, by["nu_log"][own, own])
        close(e_lam * 1j * np.exp(cell.theta_log) * lam, by["theta_log"][own, own])
        # The coefficient of the package is gamma B: its sensitivity lacks the factor gamma of Eq.
        # 14, and summed over the inputs with B it is that of gamma, Eq. 13.
        B = cell.B_re + 1j * cell.B_im
        close(gamma[:, 0] * (B * e_B).sum(1), by["gamma_log"][own, own])
        close(gamma * e_B, by["B_re"][own, own])
        assert min(np.abs(e_lam).max(), np.abs(e_B).max()) > 1e-4


CASES = [(3, ft.ONLINE, (1, 3, 1, 1)), (2, ft.HYBRID, (2, 2, 2)), (2, ft.BPTT, (2, 2, 2))]


@pytest.mark.parametrize(("depth", "rule", "lengths"), fast(CASES), ids=str)
def test_the_gradient_is_that_of_the_oracle(depth, rule, lengths):
    """With weights and an episode that begins within a chunk, or without both, in one program."""
    network = make_network(depth=depth)
    for mask, reset in ((WEIGHTS, RESET), (ALL, NONE), (WEIGHTS, np.arange(T) == 3)):
        got = run_in_chunks(network, rule, lengths, mask=mask, reset=reset)
        oracle = Oracle(parameters_of(network), depth, rule.name)
        want = oracle.gradient(XS[0], YS[0], mask, reset, lengths)
        assert_gradient(got, want)
        if rule == ft.ONLINE:
            assert_sensitivities(network, got[2], want[2])

"""Every plain rule's gradient is an independent one in NumPy, by full Jacobians, to 1e-10.

Under ONLINE these are the recursions of the paper, Eq. 12 to 17, for every layer of LRUs.
"""

from functools import partial

import jax
import numpy as np
import pytest
from gradients import ALL, NONE, RESET, WEIGHTS, XS, YS, T, make_network, run_in_chunks
from numpy_oracle import RULES, Oracle
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


def oracle(network, rule):
    return Oracle(parameters_of(network), network.depth, rule.name)


close = partial(np.testing.assert_allclose, rtol=0, atol=TOLERANCE)


def assert_gradient(got, want):
    """Compare value and gradient with the oracle's."""
    close(got[0], want[0])
    for name, leaf in parameters_of(got[1]).items():
        close(leaf, want[1][name], err_msg=name)


def assert_sensitivities(network, carry, want):
    """Compare what an LRU carries with Eq. 12 to 14: (N,) of lam and gamma, (N, H) of B."""
    for layer, by in enumerate(want):
        cell = jax.tree.map(lambda leaf, layer=layer: np.asarray(leaf[layer]), network.blocks.cell)
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


CASES = [
    ("lru", 3, ft.ONLINE, (1, 2, 3)),
    ("lru", 2, ft.BPTT, (T,)),
    ("tanh", 2, ft.RTRL, (2, 2, 2)),
    ("lru", 2, ft.SPATIAL, (T,)),
    ("lru", 2, ft.TRUNCATED, (T,)),
    ("lru", 2, ft.HYBRID, (2, 2, 2)),
    ("lru", 2, ft.BPTT, (2, 2, 2)),
    ("lru", 2, ft.ONLINE, (1,) * T),
    ("lru", 1, ft.ONLINE, (T,)),
    ("lru", 1, ft.HYBRID, (3, 3)),
    ("lru", 2, ft.RESERVOIR, (T,)),
    ("tanh", 2, ft.SNAP1, (2, 2, 2)),
    ("tanh", 1, ft.SNAP1, (T,)),
    ("tanh", 1, ft.RTRL, (1,) * T),
    ("tanh", 2, ft.TRUNCATED, (2, 2, 2)),
    ("tanh", 2, ft.HYBRID, (2, 2, 2)),
    ("tanh", 2, ft.BPTT, (2, 2, 2)),
]


def test_every_plain_rule_has_an_oracle():
    assert {rule.name for _, _, rule, _ in CASES} == set(RULES)
    parameters = parameters_of(make_network("tanh", 2))
    found = [
        Oracle(parameters, 2, name).gradient(XS[0], YS[0], ALL, NONE, (2, 2, 2))[1]
        for name in RULES
    ]
    vectors = [np.concatenate([leaf.ravel() for leaf in gradient.values()]) for gradient in found]
    distances = [np.abs(a - b).max() for i, a in enumerate(vectors) for b in vectors[:i]]
    assert min(distances) > 1e-4, "two rules are alike here, so that none of them is tested"


@pytest.mark.parametrize(("cell", "depth", "rule", "lengths"), fast(CASES, 3), ids=str)
def test_the_gradient_is_that_of_the_oracle(cell, depth, rule, lengths):
    """With weights and an episode that begins within a chunk, or without both, in one program."""
    network = make_network(cell, depth)
    for mask, reset in ((WEIGHTS, RESET), (ALL, NONE), (WEIGHTS, np.arange(T) == 3)):
        got = run_in_chunks(network, rule, lengths, mask=mask, reset=reset)
        want = oracle(network, rule).gradient(XS[0], YS[0], mask, reset, lengths)
        assert_gradient(got, want)
        if (cell, rule) == ("lru", ft.ONLINE):
            assert_sensitivities(network, got[2], want[2])


def test_the_oracle_is_the_derivative_of_its_own_loss():
    """Under BPTT on the whole sequence, by finite differences; for the dense layer and the LRU."""
    for cell in ("lru", "tanh"):
        parameters = parameters_of(make_network(cell, 2))
        data, step = (XS[0], YS[0], WEIGHTS, RESET, (T,)), 1e-6
        gradient = Oracle(parameters, 2, "BPTT").gradient(*data)[1]
        way = {
            name: np.random.default_rng(1).normal(size=array.shape)
            for name, array in parameters.items()
        }
        ahead, back = (
            Oracle({k: p + s * step * way[k] for k, p in parameters.items()}, 2, "BPTT").gradient(
                *data
            )[0]
            for s in (1, -1)
        )
        expected = sum((gradient[k] * way[k]).sum() for k in way)
        assert abs(expected) > 1e-2
        np.testing.assert_allclose((ahead - back) / (2 * step), expected, rtol=1e-7)

"""`forward` is compiled and checked as `gradient`; means over steps, targets of sequences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import LOSS, assert_equal, make_network
from tiers import fast

import foretrace as ft
from foretrace._engine.data import Data
from foretrace._engine.forward import _jitted_run
from foretrace._engine.gradient import jitted_evaluate

RANDOM = np.random.default_rng(0)
XS, YS = jnp.asarray(RANDOM.normal(size=(3, 6, 2))), jnp.asarray(RANDOM.integers(0, 3, (3, 6)))

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.fixture(scope="module")
def network():
    return make_network("mingru", 2)


def test_a_second_call_compiles_nothing(network):
    outputs, carry = ft.forward(network, None, XS[0, :3])
    programs = _jitted_run._cache_size()
    ft.forward(network, None, XS[1, :3])
    assert _jitted_run._cache_size() == programs
    later, _ = ft.forward(network, carry, XS[0, 3:], rule="bptt")
    np.testing.assert_allclose(
        jnp.concatenate([outputs, later]), ft.forward(network, None, XS[0])[0], rtol=1e-12
    )


def test_the_carry_of_a_rule_goes_in_and_out_by_its_name(network):
    carry = ft.init_carry(network, ft.ONLINE)
    outputs, after = ft.forward(network, carry, XS[0], rule="online")
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, carry)
    data = Data(XS[0], YS[0])
    *_, expected, seen = jitted_evaluate(network, carry, data, rule=ft.ONLINE, loss=LOSS)
    np.testing.assert_allclose(outputs, seen, rtol=1e-12)
    assert_equal(after, expected)
    with pytest.raises(ValueError, match=r"carry does not fit: expected init_carry\(network, BPTT"):
        ft.forward(network, carry, XS[0])


LENGTHS = np.array([[6], [2], [4]])
MASK = (np.arange(6) < LENGTHS) * np.array([[1], [0], [1]])
LAST = 1.0 * (np.arange(6) == LENGTHS - 1) * MASK


@pytest.mark.parametrize("streams", fast([slice(None), 1]))
def test_means_and_targets_of_sequences_are_weights_of_their_steps(network, streams):
    """A sequence of which no step counts gives nothing."""
    steps = np.maximum(MASK.sum(1, keepdims=True), 1)
    each = np.repeat(YS[:, :1], 6, axis=1)
    for ys, given, every, weights in (
        (YS, {"mean_loss": True}, YS, MASK / steps),
        (YS[:, 0], {"last": True}, each, LAST),
        (YS[:, 0], {"last": True, "mean_loss": True}, each, LAST),
    ):
        of = partial(ft.gradient, network, None, XS[streams], rule=ft.BPTT, loss=LOSS)
        got = of(ys=ys[streams], mask=jnp.asarray(MASK[streams], bool), **given)
        want = of(ys=jnp.asarray(every[streams]), mask=jnp.asarray(weights[streams]))
        assert_equal(got[:2], want[:2], 1e-12)


@pytest.mark.full
def test_a_learner_takes_means_and_targets_of_sequences(network):
    options = {"rule": ft.BPTT, "loss": LOSS}
    learner = ft.Learner(
        network, optimizer=ft.adamw(), whole_sequences=True, mean_loss=True, **options
    )
    given = {"mask": jnp.asarray(MASK, bool), "last": True}
    ys = YS[:, 0]
    _, info = learner.step(learner.init(), XS, ys, **given)
    want = ft.gradient(network, None, XS, ys, mean_loss=True, **given, **options)[0]
    np.testing.assert_allclose(info.loss, want, rtol=1e-12)
